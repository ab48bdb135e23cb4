//! A new project in each language: its files, the name in them, links, and the manifest of the SDK.

use std::collections::BTreeSet;

use super::*;

const LANGUAGES: [Language; 3] = [Language::Rust, Language::Python, Language::Javascript];

fn paths(language: Language) -> BTreeSet<String> {
    of(language, NewKind::Job, "count").into_iter().map(|file| file.path).collect()
}

/// The files of both kinds, in each language.
fn all(name: &str) -> impl Iterator<Item = (Language, Vec<File>)> {
    LANGUAGES.into_iter().flat_map(move |language| {
        [NewKind::Job, NewKind::Http].map(|kind| (language, of(language, kind, name)))
    })
}

#[test]
fn a_project_for_http_has_cases_and_the_sdk_that_it_needs() {
    for language in LANGUAGES {
        let files = of(language, NewKind::Http, "count");
        let paths: BTreeSet<_> = files.into_iter().map(|file| file.path).collect();
        for path in [".gitignore", "README.md", "gristmill.toml", "tests.json"] {
            assert!(paths.contains(path), "{language}: {path} is missing in {paths:?}");
        }
        let sdk = of(language, NewKind::Job, "count").into_iter();
        let sdk = sdk.filter(|file| file.path.starts_with(VENDOR) && !file.path.contains(SUMS));
        for File { path, .. } in sdk {
            assert_eq!(paths.contains(&path), language != Language::Rust, "{language}: {path}");
        }
    }
}

#[test]
fn a_project_has_its_files_and_those_of_its_sdk_alone() {
    let of_all = [".gitignore", "README.md", "gristmill.toml", "test_input.json", "tests.json"];
    let of_all = of_all.into_iter().chain(["vendor/LICENSE"]);
    let own = [
        (Language::Rust, vec!["Cargo.toml", "src/lib.rs", "vendor/gristmill-sdk/Cargo.toml"]),
        (
            Language::Python,
            vec![
                "handler.py",
                "test_handler.py",
                "vendor/gristmill-sdk/python/pyproject.toml",
                "vendor/wit/handler.wit",
            ],
        ),
        (
            Language::Javascript,
            vec![
                "handler.ts",
                "package.json",
                "vendor/gristmill-sdk/javascript/build.js",
                "vendor/wit/handler.wit",
            ],
        ),
    ];
    for (language, own) in own {
        let paths = paths(language);
        for path in of_all.clone().chain(own) {
            assert!(paths.contains(path), "{language}: {path} is missing in {paths:?}");
        }
        let of_tools = ["node_modules", "__pycache__", "package-lock", "/test/", "/tests/"];
        for path in &paths {
            assert!(of_tools.iter().all(|part| !path.contains(part)), "{path}");
        }
        let others = ["/python/", "/javascript/"];
        let others = others.iter().filter(|part| !part.contains(&language.to_string()));
        for other in others {
            assert!(paths.iter().all(|path| !path.contains(other)), "{language}: {other}");
        }
    }
    let rust = paths(Language::Rust);
    assert!(rust.contains("vendor/gristmill-sdk/src/host/component.rs"));
    assert!(!rust.contains("vendor/wit/handler.wit"));
    for path in ["src/gristmill/build.py", "src/gristmill/runpod/__init__.py", "wit/guest.wit"] {
        let path = format!("vendor/gristmill-sdk/python/{path}");
        assert!(paths(Language::Python).contains(&path), "{path}");
    }
}

#[test]
fn the_name_stands_everywhere() {
    for (_, files) in all("count") {
        let project = files.iter().find(|file| file.path == "gristmill.toml").unwrap();
        assert!(String::from_utf8_lossy(&project.content).contains("name = \"count\""));
        for file in files.iter().filter(|file| !file.path.starts_with("vendor/")) {
            let text = String::from_utf8_lossy(&file.content);
            assert!(!text.contains(NAME_IN_TEMPLATES), "{}", file.path);
            assert!(!text.contains(&in_code(NAME_IN_TEMPLATES)), "{}", file.path);
        }
    }
}

#[test]
fn a_link_leads_to_a_file_of_the_project_and_a_path_to_one_of_this_repository() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut links, mut paths) = (0, 0);
    for (language, files) in all("count") {
        for page in files.iter().filter(|file| file.path.ends_with(".md")) {
            let text = String::from_utf8_lossy(&page.content);
            let targets = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            let targets = targets.map(|(target, _)| target.split('#').next().unwrap());
            for target in targets.filter(|to| !to.is_empty() && !to.contains(':')) {
                let place = Path::new(&page.path).with_file_name(target);
                let is_there = files.iter().any(|file| Path::new(&file.path) == place);
                assert!(is_there, "{language}: {} links to {target}", page.path);
                links += 1;
            }
            let in_code = text.split('`').skip(1).step_by(2);
            let is_path = |code: &&str| {
                ["docs/", "handlers/", "guest-sdk/"].iter().any(|it| code.starts_with(it))
            };
            for path in in_code.filter(is_path) {
                let file = path.split('#').next().unwrap();
                assert!(repository.join(file).exists(), "{}: {path}", page.path);
                paths += 1;
            }
        }
    }
    assert!(links >= 3 && paths >= 10, "{links} links, {paths} paths");
}

/// The SDK's manifest cannot be copied unchanged: it takes versions from its workspace.
#[test]
fn the_sdk_asks_for_what_it_asks_for_here() {
    fn table(path: &str) -> toml::Table {
        let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(path).unwrap().parse().unwrap()
    }
    let carried = table("templates/rust/vendor/gristmill-sdk/Cargo.toml");
    let (here, workspace) = (table("../../guest-sdk/Cargo.toml"), table("../../Cargo.toml"));
    let workspace = &workspace["workspace"];
    let whole = |dependencies: &toml::Value| -> toml::Value {
        let whole = dependencies.as_table().unwrap().iter().map(|(name, dependency)| {
            let is_inherited = dependency.get("workspace").is_some();
            let dependency =
                if is_inherited { &workspace["dependencies"][name] } else { dependency };
            (name.clone(), dependency.clone())
        });
        toml::Value::Table(whole.collect())
    };
    assert_eq!(carried["dependencies"], whole(&here["dependencies"]));
    let of_components = |manifest: &toml::Table| {
        let target = &manifest["target"]["cfg(target_arch = \"wasm32\")"];
        target["dependencies"].clone()
    };
    assert_eq!(of_components(&carried), whole(&of_components(&here)));
    assert_eq!(carried["features"], here["features"]);
    for key in ["version", "edition", "rust-version", "license"] {
        assert_eq!(carried["package"][key], workspace["package"][key], "{key}");
    }
}
