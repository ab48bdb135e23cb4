//! `gristmill new` and `gristmill build`: from the first command to a component, with the real Rust
//! toolchain. The toolchains of Python and JavaScript need packages: `tests/interop/guests` tests
//! them.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use data_encoding::HEXLOWER;
use gristmill_tests::{binary, command, shared_host};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::command::{Finished, run, run_args, run_within};
use crate::project::inside;

/// How long a build with cargo may take.
pub(crate) const BUILD_PATIENCE: Duration = Duration::from_secs(600);

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The directory of Rust projects: always the same place, with the handlers' own target directory,
/// so that further runs compile little and leave no further files behind.
pub(crate) struct RustProjects {
    pub(crate) dir: PathBuf,
    target: PathBuf,
}

impl RustProjects {
    pub(crate) fn new(place: &str) -> Self {
        let target = repository().join("handlers/target");
        let dir = target.join("new-projects").join(place);
        if dir.exists() {
            fs::remove_dir_all(&dir).unwrap();
        }
        fs::create_dir_all(&dir).unwrap();
        Self { dir, target }
    }

    /// Pins a project to the versions of the handlers' dependencies, which are already downloaded.
    pub(crate) fn pin(&self, project: &str) {
        let lock = repository().join("handlers/Cargo.lock");
        fs::copy(lock, self.dir.join(project).join("Cargo.lock")).unwrap();
    }

    /// The environment of a command that runs cargo.
    pub(crate) fn prepare(&self, command: &mut Command) {
        command.env("CARGO_TARGET_DIR", &self.target).env("CARGO_NET_OFFLINE", "true");
    }
}

/// The guide to handlers in a language.
fn page(language: &str) -> String {
    let path = format!("docs/guides/handlers-{language}.md");
    fs::read_to_string(repository().join(path)).unwrap()
}

/// The block of shell commands in the guide after the line that names it.
fn guide(name: &str) -> String {
    let guide = page(name);
    let (_, rest) = guide.split_once(&format!("<!-- guide: {name} -->\n```sh\n")).unwrap();
    rest.split_once("\n```").unwrap().0.to_owned()
}

#[test]
fn the_guide_leads_from_nothing_to_an_endpoint_in_rust() {
    let host = shared_host();
    let projects = RustProjects::new("guide");
    let bin = projects.dir.join("bin");
    fs::create_dir(&bin).unwrap();
    // The real program; a new project gets a lock file, so that cargo fetches nothing.
    let program = format!(
        "#!/bin/sh\n'{}' \"$@\" || exit\n[ \"$1\" != new ] || cp '{}' \"$2/Cargo.lock\"\n",
        binary().display(),
        repository().join("handlers/Cargo.lock").display()
    );
    script(&bin.join("gristmill"), &program);
    let commands = guide("rust");
    assert!(commands.lines().count() < 10, "{commands}");
    let mut shell = Command::new("sh");
    projects.prepare(&mut shell);
    shell
        .current_dir(&projects.dir)
        .env("GRISTMILL_URL", host.url())
        .env("GRISTMILL_API_KEY", host.admin_key());
    let commands = format!("PATH='{}':$PATH\n{commands}", bin.display());
    let done = run_within(BUILD_PATIENCE, shell, ["-eu", "-c", &commands], "").succeeded();
    assert!(done.stdout.contains("build/count.wasm"), "{done:?}");
    assert!(done.stdout.contains("3 passed"), "{done:?}");
    assert!(done.stdout.contains("test result: ok. 3 passed"), "{done:?}");
    assert!(done.stdout.trim_end().ends_with(r#"{"words":6}"#), "{done:?}");
    assert!(done.stderr.contains("built count in"), "{done:?}");

    // The input beside the project, and its limits on the host.
    let ran = run(inside(&projects.dir.join("count")), "run").succeeded();
    let words: Vec<_> = ran.stdout.lines().collect();
    let expected = ["\"to\"", "\"be\"", "\"or\"", "\"not\"", "\"to\"", "\"be\"", r#"{"words":6}"#];
    assert_eq!(words, expected);
    let shown = run(crate::command::on(&host), "endpoints get count --json").succeeded().json();
    assert_eq!(shown["memoryMib"], 64, "{shown}");
    assert_eq!(shown["executionTimeoutMs"], 60_000, "{shown}");
}

#[test]
fn a_component_that_is_older_than_a_source_is_built_first() {
    let projects = RustProjects::new("stale");
    // The directory of builds is shared, so that no other project may have the name.
    run(inside(&projects.dir), "new stale-count --lang rust").succeeded();
    projects.pin("stale-count");
    let project = projects.dir.join("stale-count");
    let run_count = |words: &[&str]| {
        let mut command = inside(&project);
        projects.prepare(&mut command);
        let words = ["run", "--input", r#"{"text":"to be"}"#].iter().chain(words);
        run_within(BUILD_PATIENCE, command, words, "").succeeded()
    };
    let edit = |from: &str, to: &str| {
        let path = project.join("src/lib.rs");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{text}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    };
    let missing = run_count(&[]);
    assert!(missing.stdout.ends_with("{\"words\":2}\n"), "{missing:?}");
    assert!(missing.stderr.contains("building stale-count: "), "{missing:?}");
    assert!(!run_count(&[]).stderr.contains("building"), "nothing has changed");
    edit("words += 1", "words += 10");
    let stale = run_count(&["--no-build"]);
    assert!(stale.stdout.ends_with("{\"words\":2}\n"), "{stale:?}");
    let built = run_count(&[]);
    assert!(built.stdout.ends_with("{\"words\":20}\n"), "{built:?}");
    assert!(built.stderr.contains("build/stale-count.wasm is older than src/lib.rs"), "{built:?}");
}

/// A handler that uses both crates for log lines.
const LOGGING: &str = r#"
use gristmill_sdk::{Context, Error, RawValue, handler};

fn grind(ctx: &Context, _input: Box<RawValue>) -> Result<u32, Error> {
    log::debug!("{} sacks", ctx.attempt());
    log::trace!("unseen");
    let _span = tracing::info_span!("stone", number = 2).entered();
    tracing::error!(sacks = 3, "no water");
    Ok(7)
}

handler!(grind);
"#;

#[test]
fn lines_of_the_crates_log_and_tracing_are_in_the_jobs_log() {
    let projects = RustProjects::new("logging");
    run(inside(&projects.dir), "new mill --lang rust").succeeded();
    let project = projects.dir.join("mill");
    fs::write(project.join("src/lib.rs"), LOGGING).unwrap();
    let manifest = fs::read_to_string(project.join("Cargo.toml")).unwrap();
    let sdk = "gristmill-sdk = { path = \"vendor/gristmill-sdk\"";
    assert!(manifest.contains(sdk), "{manifest}");
    let features = format!(
        "log = \"0.4\"\ntracing = {{ version = \"0.1\", default-features = false, features = [\"std\"] }}\n\
         {sdk}, features = [\"log\", \"tracing\"]"
    );
    fs::write(project.join("Cargo.toml"), manifest.replace(sdk, &features)).unwrap();
    let mut building = inside(&project);
    projects.prepare(&mut building);
    run_within(BUILD_PATIENCE, building, ["build"], "").succeeded();
    let run_mill = |level: &str| {
        let words = ["run", "--input", "{}", "--env", level];
        run_args(inside(&project), words, "").succeeded()
    };
    let shown = run_mill("LOG_LEVEL=debug");
    assert_eq!(shown.line(), "7");
    assert!(shown.stderr.contains("log debug: mill_component: 1 sacks"), "{shown:?}");
    assert!(!shown.stderr.contains("unseen"), "{shown:?}");
    let error = shown.stderr.lines().find(|line| line.starts_with("log error: ")).unwrap();
    for part in ["stone{number=2}", "mill_component", "no water", "sacks=3"] {
        assert!(error.contains(part), "{error}");
    }
    let shown = run_mill("LOG_LEVEL=");
    assert!(!shown.stderr.contains("log debug"), "by default the lines begin with info: {shown:?}");
    assert!(shown.stderr.contains("stone{number=2}"), "{shown:?}");
    let shown = run_mill("LOG_LEVEL=error");
    assert!(!shown.stderr.contains("log debug"), "{shown:?}");
    assert!(shown.stderr.contains("no water"), "{shown:?}");
}

/// The code in a guide equals that of its template, which the guide's commands test.
#[test]
fn the_guides_show_the_code_of_the_templates() {
    let templates = repository().join("host/author/templates");
    for path in ["rust/src/lib.rs", "python/handler.py", "javascript/handler.ts"] {
        let guide = page(path.split('/').next().unwrap());
        let (_, rest) = guide.split_once(&format!("<!-- template: {path} -->\n```")).unwrap();
        let (_, code) = rest.split_once('\n').unwrap();
        let code = code.split_once("\n```").unwrap().0;
        let template = fs::read_to_string(templates.join(path)).unwrap();
        let shown = template.split_once("\n#[cfg(test)]").map_or(&*template, |(code, _)| code);
        assert_eq!(code, shown.trim_end(), "{path}");
    }
}

#[test]
fn a_project_is_created_only_in_an_empty_directory() {
    let dir = tempfile::tempdir().unwrap();
    let new = |line: &str| run(inside(dir.path()), line);
    let made = new("new count --lang python").succeeded();
    assert_eq!(made.line(), "count");
    for word in ["cd count", "pip install -r requirements.txt", "gristmill build"] {
        assert!(made.stderr.contains(word), "{made:?}");
    }
    assert!(dir.path().join("count/vendor/gristmill-sdk/python/pyproject.toml").is_file());
    new("new count --lang rust").failed(1, &["a project in count already", "--dir"]);
    fs::create_dir(dir.path().join("full")).unwrap();
    fs::write(dir.path().join("full/notes"), "").unwrap();
    new("new count --lang rust --dir full").failed(1, &["full is not empty", "--dir"]);
    new("new count --lang rust --dir full/notes").failed(1, &["is a file", "--dir"]);
    fs::create_dir(dir.path().join("empty")).unwrap();
    assert_eq!(new("new count --lang ts --dir empty").succeeded().line(), "empty");
    for name in ["Count", "2count", "a_b", "count-"] {
        new(&format!("new {name} --lang rust")).failed(2, &["lower-case letters", "begins with"]);
    }
    new("new count --lang cobol").failed(2, &["rust", "python", "js", "typescript"]);
}

/// A project of a language, and a directory that is the whole PATH.
struct Bare {
    dir: TempDir,
}

impl Bare {
    fn new(language: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        run(inside(dir.path()), &format!("new count --lang {language}")).succeeded();
        fs::create_dir(dir.path().join("bin")).unwrap();
        // The interpreter of the scripts below.
        symlink("/bin/sh", dir.path().join("bin/sh")).unwrap();
        Self { dir }
    }

    fn project(&self) -> PathBuf {
        self.dir.path().join("count")
    }

    /// Installs a program.
    fn with(&self, name: &str, text: &str) -> &Self {
        script(&self.dir.path().join("bin").join(name), &format!("#!/bin/sh\n{text}\n"));
        self
    }

    fn build(&self) -> Finished {
        let mut command = inside(&self.project());
        command.env("PATH", self.dir.path().join("bin"));
        run_args(command, ["build"], "")
    }
}

fn script(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_missing_toolchain_is_named_with_the_command_that_brings_it() {
    let rust = Bare::new("rust");
    rust.build().failed(1, &["cargo and rustc are missing", "sh.rustup.rs"]);
    rust.with("rustc", "echo /nowhere").build();
    rust.build().failed(1, &["wasm32-wasip2 is missing", "rustup target add wasm32-wasip2"]);

    let python = Bare::new("python");
    python.build().failed(1, &["python 3.11 or newer is missing", "apt install python3"]);
    python.with("python3", "[ \"$1\" = --version ] || exit 3");
    python.build().failed(1, &["python 3.11 or newer is missing"]);
    python.with("python3", "[ \"$1\" = --version ] || echo componentize_py");
    let make = "python3 -m venv .venv && .venv/bin/pip install -r requirements.txt";
    python.build().failed(1, &["componentize-py is missing in python3", make]);
    fs::create_dir_all(python.project().join(".venv/bin")).unwrap();
    script(&python.project().join(".venv/bin/python"), "#!/bin/sh\necho gristmill\n");
    let said = python.build().failed(1, &["package gristmill is missing", ".venv/bin/python"]);
    assert!(!said.stderr.contains("-m venv"), "{said:?}");

    let javascript = Bare::new("js");
    javascript.build().failed(1, &["node.js 20.11 or newer is missing"]);
    javascript.with("node", "").build().failed(1, &["npm is missing", "apt install npm"]);
    javascript.with("npm", "").build().failed(1, &["node_modules", "npm install"]);
}

#[test]
fn impossible_builds_are_explained() {
    let empty = tempfile::tempdir().unwrap();
    run(inside(empty.path()), "build").failed(1, &["no gristmill.toml in .", "gristmill new name"]);
    run(command(), "build /nowhere").failed(1, &["no gristmill.toml in /nowhere"]);
    let python = Bare::new("python");
    let build = |options: &str| run(inside(&python.project()), &format!("build {options}"));
    build("--profile dev").failed(1, &["--profile is for projects in rust", "python"]);
    build("--engine quickjs").failed(1, &["--engine is for projects in javascript"]);
}

/// The component then contains the table of primes, which this handler makes in `init`.
#[test]
fn init_can_run_during_the_build() {
    let projects = RustProjects::new("preinit");
    run(inside(&projects.dir), "new primes --lang rust").succeeded();
    projects.pin("primes");
    let dir = projects.dir.join("primes");
    fs::copy(repository().join("handlers/factors/src/lib.rs"), dir.join("src/lib.rs")).unwrap();
    let fuel = |options: &str| {
        let mut building = inside(&dir);
        projects.prepare(&mut building);
        run_within(BUILD_PATIENCE, building, ["build"].into_iter().chain(options.split(' ')), "")
            .succeeded();
        let arguments = ["run", "--json", "--input", r#"{"number":360}"#];
        let ran = run_args(inside(&dir), arguments, "").succeeded().json();
        assert_eq!(ran["output"]["factors"], serde_json::json!([2, 2, 2, 3, 3, 5]), "{ran}");
        ran["usage"]["fuel"].as_u64().unwrap()
    };
    let (with_init, preinitialized) = (fuel("--profile release"), fuel("--preinit"));
    assert!(preinitialized < with_init / 10, "{preinitialized} of {with_init}");

    fs::write(dir.join("src/lib.rs"), NO_INIT).unwrap();
    let mut building = inside(&dir);
    projects.prepare(&mut building);
    run_within(BUILD_PATIENCE, building, ["build", "--preinit"], "").failed(1, &["init"]);
}

const NO_INIT: &str = "use gristmill_sdk::{Context, Error, handler};

fn nothing(_ctx: &Context, _input: bool) -> Result<bool, Error> {
    Ok(true)
}

handler!(nothing);
";

/// All files below a directory, by their paths.
fn files_of(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                todo.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().to_owned();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

#[test]
fn the_sdk_of_an_older_project_is_renewed_and_nothing_else() {
    for (language, manifest) in [
        ("rust", "gristmill-sdk/Cargo.toml"),
        ("python", "gristmill-sdk/python/pyproject.toml"),
        ("typescript", "gristmill-sdk/javascript/package.json"),
    ] {
        let dir = TempDir::new().unwrap();
        let gristmill = |words: &str| run(inside(dir.path()), words);
        gristmill(&format!("new mill --lang {language}")).succeeded();
        let project = dir.path().join("mill");
        let vendor = project.join("vendor");
        fs::write(project.join("own.txt"), "mine").unwrap();
        fs::write(vendor.join("own.txt"), "mine").unwrap();
        let new = files_of(&project);
        let said = gristmill("upgrade-sdk mill").succeeded().stderr;
        assert!(said.contains("has the SDK of this program already, 0.1.0"), "{said}");

        // The SDK of an earlier version, with a file that this one does not have.
        let text = fs::read_to_string(vendor.join(manifest)).unwrap().replace("0.1.0", "0.0.9");
        fs::write(vendor.join(manifest), &text).unwrap();
        fs::write(vendor.join("gristmill-sdk/gone"), "old").unwrap();
        let hash = |content: &str| HEXLOWER.encode(&Sha256::digest(content));
        let sums = fs::read_to_string(vendor.join("SHA256SUMS")).unwrap();
        let sums = sums.lines().map(|line| match line.split_once("  ") {
            Some((_, path)) if path == manifest => format!("{}  {path}\n", hash(&text)),
            _ => format!("{line}\n"),
        });
        let sums: String = sums.chain([format!("{}  gristmill-sdk/gone\n", hash("old"))]).collect();
        fs::write(vendor.join("SHA256SUMS"), sums).unwrap();
        let said = gristmill("upgrade-sdk mill").succeeded().stderr;
        assert!(said.contains("the SDK of mill is 0.1.0 now, it was 0.0.9"), "{said}");
        assert_eq!(files_of(&project), new, "{language}");
    }
}

#[test]
fn a_sdk_that_was_changed_by_hand_is_replaced_with_force_alone() {
    let dir = TempDir::new().unwrap();
    let gristmill = |words: &str| run(inside(dir.path()), words);
    gristmill("new mill --lang rust").succeeded();
    let new = files_of(dir.path());
    fs::write(dir.path().join("mill/vendor/gristmill-sdk/src/http.rs"), "// mine\n").unwrap();
    let changed = files_of(dir.path());
    gristmill("upgrade-sdk mill").failed(1, &["gristmill-sdk/src/http.rs", "--force"]);
    assert_eq!(files_of(dir.path()), changed);
    let said = gristmill("upgrade-sdk mill --force").succeeded().stderr;
    assert!(
        said.contains("the SDK of mill is 0.1.0 as before; files written: 1, removed: 0"),
        "{said}"
    );
    assert_eq!(files_of(dir.path()), new);

    fs::remove_file(dir.path().join("mill/vendor/SHA256SUMS")).unwrap();
    fs::write(dir.path().join("mill/vendor/gristmill-sdk/src/http.rs"), "// mine\n").unwrap();
    gristmill("upgrade-sdk mill").failed(1, &["sha256sums does not exist", "src/http.rs"]);
    gristmill("upgrade-sdk").failed(1, &["there is no gristmill.toml", "gristmill new"]);
    fs::remove_dir_all(dir.path().join("mill/vendor")).unwrap();
    gristmill("upgrade-sdk mill").failed(1, &["mill/vendor", "no copy of the sdk for rust"]);
}
