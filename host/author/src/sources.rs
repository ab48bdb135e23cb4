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
#[path = "sources_tests.rs"]
mod tests;
