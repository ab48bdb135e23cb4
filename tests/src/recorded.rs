//! Data directories and databases that `tests/fixtures/record.py` has recorded with a real host.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The path of an archive.
fn path(archive: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/data").join(archive)
}

/// The content of a file in an archive.
pub fn member(archive: &str, name: &str) -> Vec<u8> {
    let mut read = Command::new("tar");
    read.arg("xzOf").arg(path(archive)).arg(name);
    let output = read.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    output.stdout
}

/// Unpacks the data directory of an archive to `data`, whose last part is `data`, and which does
/// not exist yet.
pub fn unpack(archive: &str, data: &Path) {
    let mut unpack = Command::new("tar");
    unpack.arg("xzf").arg(path(archive)).args(["--no-same-owner", "-C"]);
    unpack.arg(data.parent().unwrap()).arg("data");
    assert!(unpack.status().unwrap().success(), "{archive}");
    assert!(data.ends_with("data") && data.is_dir(), "{}", data.display());
}

/// All files below a directory, by their path there, with their content.
pub fn content(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            let below = content(&path).into_iter();
            found.extend(below.map(|(path, bytes)| (name.join(path), bytes)));
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

/// The part of [`content`] that an upgrade copies before it changes anything: the tables and the
/// journal.
pub fn tables_and_journal(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = content(dir);
    found.retain(|path, _| {
        path == Path::new("store.db")
            || path == Path::new("store.db-wal")
            || path.starts_with("journal")
    });
    found
}
