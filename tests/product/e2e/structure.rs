//! Checks the structure of the crates: no module imports another one that, directly or through
//! further modules, imports it, and neither does a folder; and a crate does not name what another
//! crate is there to keep.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use data_encoding::HEXLOWER;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// A crate of the product, as cargo knows it.
struct Crate {
    /// Such as `host/store`.
    dir: String,
    /// Such as `gristmill-store`.
    name: String,
    /// The names of those of the product that it uses outside of tests.
    uses: BTreeSet<String>,
}

impl Crate {
    /// Such as `store`.
    fn short_name(&self) -> &str {
        short(&self.name)
    }
}

fn short(name: &str) -> &str {
    name.strip_prefix("gristmill-").unwrap_or(name)
}

/// All crates of the product: the members of the workspace outside of `tests`, by their
/// directories.
static CRATES: LazyLock<Vec<Crate>> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--locked", "--offline", "--format-version", "1"])
        .current_dir(&root)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of_package = |package: &Value| {
        let manifest = PathBuf::from(text(&package["manifest_path"]));
        let dir = text_of(manifest.parent().unwrap().strip_prefix(&root).unwrap());
        let uses = package["dependencies"].as_array().unwrap().iter();
        let uses = uses.filter(|used| used["kind"].is_null()).map(|used| text(&used["name"]));
        let uses = uses.filter(|name| name.starts_with("gristmill")).collect();
        Crate { dir, name: text(&package["name"]), uses }
    };
    let mut crates: Vec<_> = found["packages"].as_array().unwrap().iter().map(of_package).collect();
    crates.retain(|it| !it.dir.starts_with("tests"));
    crates.sort_by(|one, other| one.dir.cmp(&other.dir));
    assert!(crates.len() > 15, "the crates are not found");
    crates
});

fn text_of(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The crates of the documents of the APIs, and of their clients, which need no other crate of the
/// host.
const DOCUMENTS: [&str; 3] = ["host/client", "host/commands", "host/wire"];

/// What no client needs: the other crates of the host, and the engine and the database.
fn host_crates() -> Vec<String> {
    let of_host = CRATES.iter().filter(|it| it.dir.starts_with("host/"));
    let of_host = of_host.filter(|it| !DOCUMENTS.contains(&it.dir.as_str()));
    let names = of_host.map(|it| it.name.replace('-', "_"));
    names.chain(["rusqlite", "wasmtime"].map(str::to_owned)).collect()
}

/// What the code of a crate must not name. The API reads and changes what is deployed by the
/// operations of `gristmill-control`, and jobs by those of `Jobs`; so each rule is in one place,
/// and can be tested without HTTP. The types of the HTTP APIs need neither an HTTP library nor the
/// domain.
const KEPT_APART: [(&str, &[&str]); 3] = [
    (
        "host/api",
        &[
            "Catalog",
            "CatalogChange",
            "CatalogEntry",
            "CatalogKey",
            "CatalogStore",
            "View",
            "JobStore",
            "DeliveryStore",
            "UsageStore",
            "Logs",
            "Components",
            "Registries",
            "Runtime",
            "gristmill_store",
        ],
    ),
    ("host/control", &["axum", "hyper", "utoipa", "gristmill_store"]),
    ("host/wire", &["axum", "hyper", "reqwest", "tokio", "gristmill_client", "gristmill_core"]),
];

/// The modules of a crate by their paths, such as `["disk", "mount"]`, with their texts.
type Modules = BTreeMap<Vec<String>, String>;

/// Adds the modules below a directory. Modules of tests may import anything.
fn read_modules(directory: &Path, path: &[String], modules: &mut Modules) {
    for entry in fs::read_dir(directory).unwrap() {
        let file = entry.unwrap().path();
        let stem = file.file_stem().unwrap().to_str().unwrap().to_owned();
        if file.is_dir() {
            read_modules(&file, &[path, &[stem]].concat(), modules);
        } else if file.extension().is_some_and(|extension| extension == "rs")
            && !stem.ends_with("tests")
        {
            let is_parent = ["lib", "main", "mod"].contains(&stem.as_str());
            let own = if is_parent { path.to_vec() } else { [path, &[stem]].concat() };
            modules.entry(own).or_default().push_str(&code_of(&fs::read_to_string(file).unwrap()));
        }
    }
}

/// The text without comments, and without the tests at its end.
fn code_of(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let lines = text[..end].lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Reads a path such as `a::{b, c::D}` from the beginning of `text` into `paths`, each behind
/// `prefix`, and returns the rest of the text.
fn read_path<'a>(mut text: &'a str, prefix: &[String], paths: &mut Vec<Vec<String>>) -> &'a str {
    let mut path = prefix.to_vec();
    loop {
        text = text.trim_start();
        if let Some(mut group) = text.strip_prefix('{') {
            loop {
                group = group.trim_start();
                if let Some(rest) = group.strip_prefix('}') {
                    return rest;
                }
                let rest = read_path(group, &path, paths).trim_start();
                let next = rest.find([',', '}']).map_or("", |at| &rest[at..]);
                group = next.strip_prefix(',').unwrap_or(next);
                if group.is_empty() {
                    return group;
                }
            }
        }
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        if end > 0 {
            path.push(text[..end].to_owned());
        }
        match text[end..].strip_prefix("::") {
            Some(rest) => text = rest,
            None => {
                paths.push(path);
                return &text[end..];
            }
        }
    }
}

/// All paths in a module's text that begin in its crate.
fn paths_of(module: &[String], text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = ["crate::", "super::", "self::"].iter().filter_map(|k| rest.find(k)).min()
    {
        let is_start = !rest[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        let mut paths = Vec::new();
        let next = read_path(&rest[at..], &[], &mut paths);
        rest = if is_start { next } else { &rest[at + 1..] };
        found.extend(paths.into_iter().filter(|_| is_start).map(|path| {
            let mut absolute = module.to_vec();
            let is_relative =
                |segment: &&String| ["crate", "super", "self"].contains(&segment.as_str());
            for segment in path.iter().take_while(is_relative) {
                match segment.as_str() {
                    "crate" => absolute.clear(),
                    "super" => drop(absolute.pop()),
                    _ => {}
                }
            }
            absolute.extend(path.iter().skip_while(is_relative).cloned());
            absolute
        }));
    }
    found
}

/// The paths in a module's text that begin with one of its child modules.
fn paths_into(children: &[&str], module: &[String], text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut add = |text: &str| {
        if children
            .iter()
            .any(|child| text.strip_prefix(child).is_some_and(|it| it.starts_with("::")))
        {
            read_path(text, module, &mut found);
        }
    };
    // A statement `use` can name a module of another crate in braces, which begins no path.
    let mut rest = String::new();
    for (number, part) in text.split("use ").enumerate() {
        let (statement, behind) = match number {
            0 => ("", part),
            _ => part.split_once(';').unwrap_or((part, "")),
        };
        add(statement);
        rest.push_str(behind);
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':' || c == '.';
    let starts = rest.char_indices().filter(|(at, _)| !rest[..*at].ends_with(is_word));
    starts.for_each(|(at, _)| add(&rest[at..]));
    found
}

/// The modules that each module imports. The root of a crate only names its modules.
fn imports(modules: &Modules) -> BTreeMap<&[String], BTreeSet<&[String]>> {
    let module_of = |path: &[String]| {
        (1..=path.len()).rev().find_map(|len| modules.get_key_value(&path[..len]))
    };
    let of_module = |(module, text): (&'_ Vec<String>, &String)| {
        let children: Vec<_> = modules
            .keys()
            .filter(|other| other.len() == module.len() + 1 && other.starts_with(module))
            .filter_map(|child| Some(child.last()?.as_str()))
            .collect();
        let mut paths = paths_of(module, text);
        paths.extend(paths_into(&children, module, text));
        let found: BTreeSet<_> = paths
            .iter()
            .filter_map(|path| module_of(path))
            .map(|(name, _)| name.as_slice())
            .filter(|name| name != module)
            .collect();
        found
    };
    let named = modules.iter().filter(|(module, _)| !module.is_empty());
    named.map(|module| (module.0.as_slice(), of_module(module))).collect()
}

/// The modules that import themselves around others.
fn circle(modules: &Modules) -> Vec<String> {
    in_circles(&imports(modules))
}

/// Those that lead back to themselves.
fn in_circles(imports: &BTreeMap<&[String], BTreeSet<&[String]>>) -> Vec<String> {
    let imports_itself = |module: &&&[String]| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![**module]);
        while let Some(importer) = next.pop() {
            let imported = imports.get(importer).into_iter().flatten();
            next.extend(imported.filter(|imported| seen.insert(**imported)));
        }
        seen.contains(**module)
    };
    imports.keys().filter(imports_itself).map(|module| module.join("::")).collect()
}

/// The rooms of a crate, files and folders side by side, that import themselves around others of
/// the same folder. A folder imports what any of its files imports.
fn circles_of_rooms(modules: &Modules) -> Vec<String> {
    let imports = imports(modules);
    let folders: BTreeSet<_> =
        imports.keys().flat_map(|module| (0..module.len()).map(|len| &module[..len])).collect();
    let in_folder = |folder: &&[String]| {
        let is_inside =
            |module: &[String]| module.len() > folder.len() && module.starts_with(folder);
        let mut rooms = BTreeMap::<_, BTreeSet<_>>::new();
        for (from, imported) in imports.iter().filter(|(module, _)| is_inside(module)) {
            let from = &from[..=folder.len()];
            let inside = imported.iter().filter(|module| is_inside(module));
            let others = inside.map(|to| &to[..=folder.len()]).filter(|to| *to != from);
            rooms.entry(from).or_default().extend(others);
        }
        in_circles(&rooms)
    };
    folders.iter().flat_map(in_folder).collect()
}

/// The types that a module's text defines for other modules, each with whether other crates see it.
fn types_of(code: &str) -> Vec<(&str, bool)> {
    let of_line = |line| -> Option<(&str, bool)> {
        let (is_public, item) = match str::strip_prefix(line, "pub(") {
            Some(restricted) => (false, restricted.split_once(") ")?.1),
            None => (true, line.strip_prefix("pub ")?),
        };
        let (kind, name) = item.strip_prefix("unsafe ").unwrap_or(item).split_once(' ')?;
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
        let is_type = ["enum", "struct", "trait", "type", "union"].contains(&kind);
        is_type.then_some((&name[..end], is_public))
    };
    code.lines().filter_map(of_line).collect()
}

/// The names among these that are there several times.
fn repeated<'n>(names: impl IntoIterator<Item = &'n str>) -> BTreeSet<&'n str> {
    let mut seen = BTreeSet::new();
    names.into_iter().filter(|name| !seen.insert(*name)).collect()
}

/// All Rust files below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The modules of the crate in this directory.
fn modules_of(name: &str) -> Modules {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let mut modules = Modules::new();
    read_modules(&source, &[], &mut modules);
    modules
}

/// The first of these names that is a word of the code.
fn named<'n>(code: &str, names: &[&'n str]) -> Option<&'n str> {
    let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find_map(|word| names.iter().find(|name| **name == word).copied())
}

#[test]
fn crates_do_not_name_what_another_crate_keeps() {
    for (name, names) in KEPT_APART {
        let modules = modules_of(name);
        assert!(modules.len() > 10, "{name}: its modules are not found");
        let modules = modules.iter().filter(|(module, _)| !module.contains(&"tests".to_owned()));
        for (module, code) in modules {
            let found = named(code, names);
            assert_eq!(found, None, "{name}: module `{}` names it", module.join("::"));
        }
    }
}

#[test]
fn the_engine_of_the_store_names_no_file_and_no_table() {
    let modules = modules_of("host/store");
    let is_engine = |path: &[String]| match path {
        [state, ..] if state == "state" => true,
        [commit, file] if commit == "commit" => {
            ["writer", "compose", "log"].contains(&file.as_str())
        }
        [file] => file == "medium" || file == "memory",
        _ => false,
    };
    let of_engine: Vec<_> = modules.iter().filter(|(path, _)| is_engine(path)).collect();
    assert!(of_engine.len() > 30, "the engine is not found");
    for (module, code) in of_engine {
        for name in ["crate::journal", "crate::tables", "crate::checkpoint", "rusqlite"] {
            assert!(!code.contains(name), "module `{}` names `{name}`", module.join("::"));
        }
    }
}

/// `cargo install --path host/commands` compiles neither wasmtime nor SQLite.
#[test]
fn a_client_builds_without_the_hosts_crates() {
    let host_crates = host_crates();
    let names: Vec<_> = host_crates.iter().map(String::as_str).collect();
    for dir in DOCUMENTS {
        let used = CRATES.iter().find(|it| it.dir == dir).unwrap();
        let clients = ["gristmill-client", "gristmill-wire"];
        let others: Vec<_> =
            used.uses.iter().filter(|name| !clients.contains(&name.as_str())).collect();
        assert!(others.is_empty(), "{dir}: {others:?}");
        for (module, code) in modules_of(dir) {
            assert_eq!(named(&code, &names), None, "{dir}: module `{}`", module.join("::"));
        }
    }
}

/// The arrows between crates are chosen, so that a new one is seen in a review.
#[test]
fn the_architecture_lists_what_each_crate_uses() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/internals/architecture.md");
    let page = fs::read_to_string(path).unwrap();
    let using = CRATES.iter().filter(|it| it.dir.starts_with("host/") && !it.uses.is_empty());
    let lines = using.map(|it| {
        let uses: Vec<_> = it.uses.iter().map(|name| short(name)).collect();
        format!("{} → {}\n", it.short_name(), uses.join(", "))
    });
    let arrows = format!("```text\n{}```\n", lines.collect::<String>());
    assert!(
        page.contains(&arrows),
        "docs/internals/architecture.md must contain this list:\n{arrows}"
    );
    for it in CRATES.iter() {
        let row = format!("\n{}/ ", it.dir);
        assert!(
            page.contains(&row),
            "the list of crates in docs/internals/architecture.md lacks {}",
            it.dir
        );
    }
}

/// Rustdoc reads a whole crate for its examples, so crates without examples set `doctest = false`:
/// 5 s each in a cold `make test`.
#[test]
fn every_example_in_the_docs_is_compiled() {
    let has_example = |text: &str| {
        let comments = text.lines().map(str::trim_start).filter_map(|line| {
            line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim_start)
        });
        let fences = comments.filter_map(|text| text.strip_prefix("```"));
        // Every second one ends a block.
        fences.step_by(2).any(|info| ["", "rust", "no_run", "should_panic"].contains(&info.trim()))
    };
    for Crate { dir, .. } in CRATES.iter() {
        let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(dir);
        let manifest = fs::read_to_string(crate_dir.join("Cargo.toml")).unwrap();
        if manifest.contains("doctest = false") {
            let mut files = files_below(&crate_dir.join("src")).into_iter();
            let found = files.find(|file| has_example(&fs::read_to_string(file).unwrap()));
            assert_eq!(found, None, "{dir}: remove `doctest = false`, or the example");
        }
    }
}

/// The bindings are written by `make bindings`, not by each build, so they can be older than the
/// contract.
#[test]
fn the_rust_sdks_bindings_are_those_of_the_contract() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let contract = Sha256::digest(fs::read(root.join("wit/handler.wit")).unwrap());
    let expected = format!("// contract: sha256:{}", HEXLOWER.encode(&contract));
    for file in ["handler.rs", "with_init.rs"] {
        let bindings = fs::read_to_string(root.join("guest-sdk/src/bindings").join(file)).unwrap();
        assert_eq!(bindings.lines().next().unwrap(), expected, "{file}: run `make bindings`");
    }
}

#[test]
fn a_name_is_found_as_a_word() {
    let names = ["JobStore", "View"];
    assert_eq!(named("store: Arc<dyn JobStore>,", &names), Some("JobStore"));
    assert_eq!(named(&code_of("// JobStore\nlet Viewer = MyView;"), &names), None);
}

#[test]
fn no_crate_has_a_circle_of_imports() {
    let of_crate = |it: &'static Crate| (&it.dir, circle(&modules_of(&it.dir)));
    let found: Vec<_> = CRATES.iter().map(of_crate).filter(|it| !it.1.is_empty()).collect();
    assert!(found.is_empty(), "circles of imports: {found:#?}");
}

/// A folder is read from its top to its bottom: what is below knows nothing of what is above.
#[test]
fn no_crate_has_a_circle_of_folders() {
    let of_crate = |it: &'static Crate| (&it.dir, circles_of_rooms(&modules_of(&it.dir)));
    let found: Vec<_> = CRATES.iter().map(of_crate).filter(|it| !it.1.is_empty()).collect();
    assert!(found.is_empty(), "circles of folders: {found:#?}");
}

/// A document of the APIs has the name of the object that it describes, so the two are searched
/// apart. The SDK is read by authors of handlers, who see nothing of the host; its bindings repeat
/// it.
#[test]
fn a_type_that_others_see_has_its_name_for_itself() {
    let is_product = |(path, _): &(Vec<String>, String)| !path.iter().any(|part| part == "tests");
    let of_crate = |name: &&str| {
        let product = modules_of(name).into_iter().filter(is_product);
        product.map(|(_, code)| code).collect::<Vec<_>>()
    };
    let host = CRATES.iter().map(|it| it.dir.as_str()).filter(|dir| *dir != "guest-sdk");
    let (documents, domain): (Vec<_>, Vec<_>) =
        host.clone().partition(|name| DOCUMENTS.contains(name));
    for crates in [documents, domain] {
        let texts: Vec<_> = crates.iter().flat_map(of_crate).collect();
        let types = texts.iter().flat_map(|text| types_of(text));
        let public: Vec<_> = types.filter(|(_, is_public)| *is_public).map(|it| it.0).collect();
        assert!(public.len() > 100, "the types are not found");
        assert!(repeated(public.clone()).is_empty(), "in {crates:?}: {:?}", repeated(public));
    }
    for name in host {
        let texts = of_crate(&name);
        let types = repeated(texts.iter().flat_map(|text| types_of(text)).map(|it| it.0));
        assert!(types.is_empty(), "in {name}: {types:?}");
    }
}

#[test]
fn a_repeated_name_is_found() {
    let code = "pub struct A<T>(T);\npub(crate) enum B {\n    pub struct C;\n}\nstruct D;\npub use x::E;\n\
                pub unsafe trait F: G {}\npub type H = u8;";
    let expected = [("A", true), ("B", false), ("F", true), ("H", true)];
    assert_eq!(types_of(code), expected);
    assert_eq!(repeated(["A", "B", "A", "C"]), BTreeSet::from(["A"]));
}

fn modules(texts: &[(&str, &str)]) -> Modules {
    let path = |name: &str| name.split("::").map(str::to_owned).collect();
    texts.iter().map(|(name, text)| (path(name), code_of(text))).collect()
}

#[test]
fn a_circle_of_folders_is_found() {
    let chain = [
        ("a::one", "use crate::b::two;"),
        ("a::three", ""),
        ("b::two", "use crate::c;"),
        ("c", "use self::d::D;"),
        ("c::d", ""),
    ];
    assert_eq!(circles_of_rooms(&modules(&chain)), [""; 0]);
    let back = [chain[0], chain[1], ("b::two", "use crate::a::three;")];
    assert_eq!(circle(&modules(&back)), [""; 0], "no circle of files");
    assert_eq!(circles_of_rooms(&modules(&back)), ["a", "b"]);
    let inside =
        [("a::b::x", "use crate::a::c;"), ("a::c", "use crate::a::b::y;"), ("a::b::y", "")];
    assert_eq!(circles_of_rooms(&modules(&inside)), ["a::b", "a::c"]);
}

#[test]
fn a_circle_is_found() {
    let chain =
        [("a", "use crate::{b::{self, B}, c};"), ("b", "use super::c::C;"), ("c", "// crate::a")];
    assert_eq!(circle(&modules(&chain)), [""; 0]);
    for last in ["use crate::a::A;", "fn f() { super::a::f(); }", "use super::{d, a::{A}};"] {
        let texts = [chain[0], chain[1], ("c", last), ("d", "")];
        assert_eq!(circle(&modules(&texts)), ["a", "b", "c"], "{last}");
    }
    for text in ["use self::b::B;", "pub use b::{B, C};", "mod b; fn f() { let x: b::B; }"] {
        let child = [("a", text), ("a::b", "use super::A;")];
        assert_eq!(circle(&modules(&child)), ["a", "a::b"], "{text}");
    }
    let other = [("a", "use other::{b::B}; fn f() { other::b::f() }"), ("a::b", "use super::A;")];
    assert_eq!(circle(&modules(&other)), [""; 0]);
    let test = [("a", "use crate::b;"), ("b", "#[cfg(test)]\nmod tests {\nuse crate::a;\n}")];
    assert_eq!(circle(&modules(&test)), [""; 0]);
}

/// Links that are longer by themselves, and what a generator wrote, are exempt. rustfmt leaves
/// comments as they are.
#[test]
fn comments_have_100_columns_at_most() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let product = CRATES.iter().map(|it| root.join(&it.dir).join("src"));
    let files = product.chain([root.join("tests")]).flat_map(|directory| files_below(&directory));
    let (mut count, mut wide) = (0, vec![]);
    let is_ours = |file: &PathBuf| {
        !file
            .components()
            .any(|part| ["bindings", "target"].map(OsStr::new).contains(&part.as_os_str()))
    };
    for file in files.filter(is_ours) {
        let code = fs::read_to_string(&file).unwrap();
        for (number, line) in code.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            count += usize::from(is_comment);
            if is_comment && line.chars().count() > 100 && line.split_whitespace().count() > 2 {
                wide.push(format!("{}:{}", file.display(), number + 1));
            }
        }
    }
    assert!(count > 10_000, "{count} comments: the files are not found");
    assert_eq!(wide, Vec::<String>::new());
}

/// A reader of a module meets the product first: more than 80 lines of tests stand in a file of
/// their own.
#[test]
fn a_module_has_80_lines_of_tests_at_most() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut count, mut long) = (0, vec![]);
    for file in CRATES.iter().flat_map(|it| files_below(&root.join(&it.dir).join("src"))) {
        let code = fs::read_to_string(&file).unwrap();
        for (start, _) in code.match_indices("#[cfg(test)]\nmod tests {\n") {
            let lines = code[start..].lines().take_while(|line| *line != "}").count() + 1;
            count += 1;
            if lines > 80 {
                long.push(format!("{}: {lines} lines of tests", file.display()));
            }
        }
    }
    assert!(count > 100, "{count} modules of tests: the files are not found");
    assert_eq!(long, Vec::<String>::new(), "move them to `<module>_tests.rs`");
}
