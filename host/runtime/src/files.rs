//! Files that are there whole or not at all.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use gristmill_core::catalog::ArtifactDigest;
use gristmill_core::digest::ComponentDigest;

/// How the name of a file ends that is being written.
const TEMPORARY: &str = ".tmp";

/// Numbers the files being written, so that two writers of one path do not meet.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Makes a directory that only this user can look into, with its parents.
pub(crate) fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Writes a file that only this user can read. It is on stable storage when this returns; until
/// then the path names the old file or none.
pub(crate) fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let directory = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let temporary = temporary(path);
    let written = write_new(&temporary, content)
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| File::open(directory)?.sync_all());
    if written.is_err() {
        // What matters is the first error.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// A name beside `path` for a file that is being written; another one each time.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut temporary = path.as_os_str().to_owned();
    let number = WRITES.fetch_add(1, Ordering::Relaxed);
    temporary.push(format!(".{}-{number}{TEMPORARY}", std::process::id()));
    temporary.into()
}

/// Makes an empty file that only this user can read, to be written.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn write_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = create_private(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Reads a file of at most `bytes_max` bytes.
pub(crate) fn read_capped(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    let limit = bytes_max as u64 + 1;
    File::open(path)?.take(limit).read_to_end(&mut content)?;
    if content.len() > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

/// The digest of a file's content; `None` when there is no such file.
pub(crate) fn digest(path: &Path) -> io::Result<Option<ComponentDigest>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(ComponentDigest::of(&content))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The digest of a compiled file; `None` when there is no such file.
pub(crate) fn artifact_digest(path: &Path) -> io::Result<Option<ArtifactDigest>> {
    match blake3::Hasher::new().update_mmap(path) {
        Ok(hasher) => Ok(Some(ArtifactDigest(hasher.finalize().to_hex().to_string()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Removes what a process left behind that ended while it wrote into this directory.
pub(crate) fn remove_temporaries(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.as_os_str().as_encoded_bytes().ends_with(TEMPORARY.as_bytes()) {
            remove(&path)?;
        }
    }
    Ok(())
}

/// Removes the files `<digest><ending>` of the digests that are not wanted, and tells how many.
pub(crate) fn remove_unless(
    directory: &Path,
    ending: &str,
    is_wanted: impl Fn(ComponentDigest) -> bool,
) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(ending));
        let digest = stem.and_then(|stem| stem.parse().ok());
        if digest.is_some_and(|digest| !is_wanted(digest)) {
            remove(&entry.path())?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// Removes a file, if it is there.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
