//! The lock that keeps a data directory to one user at a time.

use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;

use crate::error::OpenError;

/// The name of the lock's file in the data directory.
pub(crate) const LOCK: &str = "store.lock";

/// The exclusive lock on a data directory. Dropping it releases the lock at once.
///
/// Closing the file would release the lock as well, but later: a child process that another thread
/// is starting holds a copy of the descriptor until it executes its program.
#[derive(Debug)]
pub(crate) struct DirLock(File);

impl DirLock {
    /// Locks `dir` by its lock file, which is open as `file`.
    ///
    /// # Errors
    /// [`OpenError::InUse`] when a process, this process included, holds the lock.
    pub(crate) fn take(file: File, dir: &Path) -> Result<Self, OpenError> {
        match file.try_lock() {
            Ok(()) => Ok(Self(file)),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse { dir: dir.to_owned() }),
            Err(TryLockError::Error(source)) => {
                Err(OpenError::Directory { dir: dir.to_owned(), source })
            }
        }
    }
}

impl Drop for DirLock {
    fn drop(&mut self) {
        // Closing the file releases the lock if this fails.
        let _: io::Result<()> = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(dir: &Path) -> Result<DirLock, OpenError> {
        DirLock::take(File::create(dir.join(LOCK)).unwrap(), dir)
    }

    #[test]
    fn a_dropped_lock_is_free_although_a_copy_of_its_descriptor_is_open() {
        let dir = tempfile::tempdir().unwrap();
        let lock = take(dir.path()).unwrap();
        // As a child process has it between `fork` and `exec`.
        let copy = lock.0.try_clone().unwrap();
        assert!(matches!(take(dir.path()), Err(OpenError::InUse { .. })));
        drop(lock);
        take(dir.path()).unwrap();
        drop(copy);
    }
}
