//! The sources of a project: `dev` watches them, and `run`, `test` and `deploy` build again when
//! one is newer than the component.

use std::fs::{self, File, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::project::FILE_NAME;

/// Directories of tools, wherever they are.
const OF_TOOLS: [&str; 4] = ["node_modules", "__pycache__", "venv", "gristmill-data"];

/// Directories of build results, in the project's own directory.
const BUILT: [&str; 3] = ["build", "dist", "target"];

/// Suffixes of files that tools and editors create.
const OF_EDITORS: [&str; 12] =
    ["~", "#", ".swp", ".swo", ".swx", ".tmp", ".bak", ".orig", ".rej", ".pyc", ".wasm", ".log"];

/// Files that no component contains: settings, cases, inputs and documents.
const NOT_BUILT: [&str; 3] = [FILE_NAME, "tests.json", "test_input.json"];

/// The end of the name of the file with the options of a build, beside the component.
pub(crate) const OPTIONS_SUFFIX: &str = ".options.json";

/// Most entries of directories that a search visits, so that a project with a huge directory of
/// data does not delay each run. A project with more entries is built each time.
pub(crate) const ENTRIES_MAX: usize = 20_000;

/// The beginning of a file in which a JUnit report has its first element, in bytes.
const REPORT_HEAD_BYTES: u64 = 256;

/// The result of a search for a source that is newer than the component.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// All sources are older.
    AllOlder,
    /// A newer source, by its path in the project.
    Newer(PathBuf),
    /// The project has too many entries, and no visited one is newer.
    TooManyEntries,
}

/// Whether a path in a project is one of its sources, or a directory of them.
pub(crate) fn is_source(path: &Path) -> bool {
    let mut names = path.iter().map(|name| name.to_string_lossy());
    let is_built = names.clone().next().is_some_and(|first| BUILT.contains(&&*first));
    let is_of_tools = names.any(|name| {
        name.starts_with('.') || OF_TOOLS.contains(&&*name) || name.ends_with(".egg-info")
    });
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_of_editors = OF_EDITORS.iter().any(|end| name.ends_with(end));
    // A build writes it beside the component, which may be among the sources.
    let is_of_build = name.ends_with(OPTIONS_SUFFIX);
    !is_built && !is_of_tools && !is_of_editors && !is_of_build
}

/// Searches the project in `dir` for a source that was changed at `time` or later.
pub(crate) fn newer_than(dir: &Path, time: SystemTime) -> Search {
    newer_within(dir, time, ENTRIES_MAX)
}

/// Whether a file was changed at `time` or later. An equal time counts, since the times of files
/// have steps of up to 10 ms on Linux, and of up to 2 s on other file systems: the change may be
/// the later one.
pub(crate) fn is_changed_since(file: &Metadata, time: SystemTime) -> bool {
    file.modified().is_ok_and(|changed| changed >= time)
}

fn newer_within(dir: &Path, time: SystemTime, entries_max: usize) -> Search {
    let mut waiting = vec![PathBuf::new()];
    let mut visited = 0;
    while let Some(below) = waiting.pop() {
        // A directory that cannot be read has no sources that a build could read.
        let Ok(entries) = fs::read_dir(dir.join(&below)) else { continue };
        for entry in entries.flatten() {
            visited += 1;
            if visited > entries_max {
                return Search::TooManyEntries;
            }
            let path = below.join(entry.file_name());
            if !is_source(&path) {
                continue;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                waiting.push(path);
            } else if goes_into_component(&path)
                && is_changed_since(&metadata, time)
                && !(metadata.is_file() && is_junit_report(&dir.join(&path)))
            {
                return Search::Newer(path);
            }
        }
    }
    Search::AllOlder
}

/// Whether a build reads the source.
fn goes_into_component(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !name.ends_with(".md") && !NOT_BUILT.iter().any(|name| path == Path::new(name))
}

/// Whether a file is a report of `test --junit`. It may have any name, and a test after a build
/// writes it, so that it would be newer than the component each time.
fn is_junit_report(file: &Path) -> bool {
    let mut head = Vec::new();
    let read =
        File::open(file).and_then(|file| file.take(REPORT_HEAD_BYTES).read_to_end(&mut head));
    let head = String::from_utf8_lossy(&head);
    read.is_ok() && head.starts_with("<?xml") && head.contains("<testsuites")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sources_are_distinguished_from_build_outputs() {
        for path in ["src/lib.rs", "Cargo.toml", "gristmill.toml", "src/build/a.rs", "handler.ts"] {
            assert!(is_source(Path::new(path)), "{path}");
        }
        for path in [
            "build/a.wasm",
            "target/release/a",
            "a.wasm",
            "a.options.json",
            "node_modules/a/b.js",
            ".venv/bin/python",
            "vendor/gristmill-sdk/python/src/gristmill/__pycache__/a.pyc",
            ".git/index",
            "src/.lib.rs.swp",
            "src/lib.rs~",
            "src/#lib.rs#",
            "handler.py.bak",
            "handler.py.orig",
            "dev.log",
            "a.egg-info/PKG-INFO",
        ] {
            assert!(!is_source(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn a_source_is_found_by_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let write = |path: &str, seconds: u64| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "x").unwrap();
            let changed = now + Duration::from_secs(seconds);
            File::options().write(true).open(path).unwrap().set_modified(changed).unwrap();
        };
        let built = now + Duration::from_secs(1);
        write("src/lib.rs", 0);
        for path in
            ["gristmill.toml", "tests.json", "README.md", "target/a", "build/a.json", ".git/a"]
        {
            write(path, 99);
        }
        assert_eq!(newer_than(root, built), Search::AllOlder);
        let deep = Search::Newer("src/deep/mod.rs".into());
        for seconds in [2, 1] {
            write("src/deep/mod.rs", seconds);
            assert_eq!(newer_than(root, built), deep, "an equal time is not older");
        }
        assert_eq!(newer_than(root, built + Duration::from_nanos(1)), Search::AllOlder);
    }

    #[test]
    fn a_report_of_the_tests_is_no_source() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        let report = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"gristmill\">";
        write("out.xml", report);
        write("results", report);
        let built = SystemTime::UNIX_EPOCH;
        assert_eq!(newer_than(dir.path(), built), Search::AllOlder);
        write("grain.xml", "<?xml version=\"1.0\"?>\n<grain/>");
        assert_eq!(newer_than(dir.path(), built), Search::Newer("grain.xml".into()));
    }

    #[test]
    fn a_search_that_cannot_visit_all_entries_does_not_count_the_others_as_older() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.rs", "b.rs", "c.rs"] {
            fs::write(dir.path().join(name), "x").unwrap();
        }
        let changed = fs::metadata(dir.path().join("c.rs")).unwrap().modified().unwrap();
        let built = changed + Duration::from_secs(60);
        assert_eq!(newer_within(dir.path(), built, 3), Search::AllOlder);
        assert_eq!(newer_within(dir.path(), built, 2), Search::TooManyEntries);
        let built = changed - Duration::from_secs(60);
        let newer = newer_within(dir.path(), built, 1);
        assert!(matches!(newer, Search::Newer(_)), "{newer:?}");
    }
}
