//! The data directory of a host whose jobs are in a database that it shares.

use std::path::Path;

use gristmill_core::backup::DATABASE;

use crate::dir_lock::{DirLock, LOCK};
use crate::error::OpenError;
use crate::private::{make_private_dir, open_private_file};

/// A data directory without jobs, which belongs to this process until the drop.
#[derive(Debug)]
pub struct CacheDir {
    _lock: DirLock,
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
        Ok(Self { _lock: lock })
    }
}
