//! The files of a data directory, for tests that search them for secrets.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// All files below a directory with their bytes, except `admin.key` and `secrets.key`, which hold a
/// secret on purpose. A file that a working host deletes meanwhile is left out.
pub fn files_without_keys(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    assert!(directory.is_dir(), "{} is no directory", directory.display());
    let mut found = vec![];
    add(directory, &mut found);
    found
}

fn add(directory: &Path, found: &mut Vec<(PathBuf, Vec<u8>)>) {
    let entries = present(fs::read_dir(directory)).into_iter().flatten();
    for path in entries.filter_map(present).map(|entry| entry.path()) {
        if path.is_dir() {
            add(&path, found);
        } else if !path.ends_with("admin.key") && !path.ends_with("secrets.key") {
            found.extend(present(fs::read(&path)).map(|bytes| (path, bytes)));
        }
    }
}

/// `None`: the file or directory was deleted meanwhile.
fn present<T>(result: io::Result<T>) -> Option<T> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        result => Some(result.unwrap()),
    }
}
