//! The data directory of a host whose jobs are in a database that it shares.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use gristmill_core::backup::DATABASE;

use crate::dir_lock::{DirLock, LOCK};
use crate::error::OpenError;
use crate::private::{make_private_dir, open_private_file};

/// The file with the number of the directory, as 16 digits.
const ID: &str = "host.id";

/// A data directory without jobs, which belongs to this process until the drop.
#[derive(Debug)]
pub struct CacheDir {
    _lock: DirLock,
    id: u64,
}

impl CacheDir {
    /// Locks `dir`, which is created if it does not exist.
    ///
    /// # Errors
    /// [`OpenError`]: the directory cannot be used, another process uses it, or it has jobs of its
    /// own.
    pub fn lock(dir: &Path) -> Result<Self, OpenError> {
        let in_dir = |source| OpenError::Directory { dir: dir.to_owned(), source };
        make_private_dir(dir).map_err(in_dir)?;
        let lock = DirLock::take(open_private_file(&dir.join(LOCK)).map_err(in_dir)?, dir)?;
        if dir.join(DATABASE).exists() {
            return Err(OpenError::HasJobs { dir: dir.to_owned() });
        }
        let id = find_id(dir).map_err(in_dir)?;
        Ok(Self { _lock: lock, id })
    }

    /// Names the directory among those of all hosts: a process with the number of an earlier one
    /// has followed it.
    pub fn id(&self) -> u64 {
        self.id
    }
}

/// The number of the directory. A directory without one, or with a damaged one, gets a new one.
fn find_id(dir: &Path) -> io::Result<u64> {
    let path = dir.join(ID);
    let known = fs::read_to_string(&path).ok();
    if let Some(Ok(id)) = known.map(|text| u64::from_str_radix(text.trim(), 16)) {
        return Ok(id);
    }
    let id: u64 = rand::random();
    let mut file = open_private_file(&path)?;
    file.set_len(0)?;
    writeln!(file, "{id:016x}")?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_number() {
        let dir = tempfile::tempdir().unwrap();
        let id = || CacheDir::lock(dir.path()).unwrap().id();
        let first = id();
        assert_eq!(id(), first);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(CacheDir::lock(other.path()).unwrap().id(), first);
        for damage in ["", "no number", "12345678901234567890"] {
            fs::write(dir.path().join(ID), damage).unwrap();
            let new = id();
            assert_eq!(id(), new, "{damage}");
        }
    }
}
