//! The database's file as it was at one instant, for a copy of it.
//!
//! Changes are written to the write-ahead log first. While the file is frozen they stay there, so
//! the file does not change, and no caller waits for the copy. A copy is aborted, and reading
//! fails, when it takes so long that the log becomes too large, or when the store is closed.
//!
//! **Invariant.** The file is never opened a second time while SQLite has it open: closing any
//! descriptor of a file drops all locks that the process holds on it, SQLite's own included
//! (<https://sqlite.org/howtocorrupt.html>, section 2.2). Copies read through [`OpenFile`].

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use crate::dir_lock::DirLock;

/// The database's file, opened before SQLite's connection and closed after it. There is one for
/// each connection.
#[derive(Debug)]
pub(crate) struct OpenFile {
    file: File,
    /// The lock of the data directory. It must be the last field: no other store, in this process
    /// or another, can open the directory while `file` is still open.
    _lock: DirLock,
}

impl OpenFile {
    pub(crate) fn new(file: File, lock: DirLock) -> Arc<Self> {
        Arc::new(Self { file, _lock: lock })
    }

    /// Returns when everything that was ever written to the file is on stable storage.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }
}

/// Notifies a [`FrozenFile`] that its file changes now.
#[derive(Debug, Default)]
pub(crate) struct Thaw(Weak<AtomicBool>);

/// Reads the file from its front to its end. Frozen until this is dropped.
#[derive(Debug)]
pub(crate) struct FrozenFile {
    /// A copy that outlives the connection must not keep the file open: a later connection's locks
    /// would end with it.
    file: Weak<OpenFile>,
    at: u64,
    end: u64,
    is_cut: Arc<AtomicBool>,
}

impl FrozenFile {
    /// The file as it is now, and the handle that ends the freeze.
    pub(crate) fn of(file: &Arc<OpenFile>) -> io::Result<(Self, Thaw)> {
        let (end, is_cut) = (file.file.metadata()?.len(), Arc::default());
        let thaw = Thaw(Arc::downgrade(&is_cut));
        Ok((Self { file: Arc::downgrade(file), at: 0, end, is_cut }, thaw))
    }

    pub(crate) fn size(&self) -> u64 {
        self.end
    }
}

impl Read for FrozenFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(into.len());
        let cut = || io::Error::other("the store could not wait any longer for its copy");
        let file = self.file.upgrade().ok_or_else(cut)?;
        let count = file.file.read_at(into.get_mut(..left).unwrap_or_default(), self.at)?;
        // Checked after the read: bytes that were read before the abort are correct.
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(cut());
        }
        self.at += count as u64;
        Ok(count)
    }
}

impl Thaw {
    /// Whether a reader still exists.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// Allows changes of the file from now on.
    pub(crate) fn now(&self) {
        if let Some(is_cut) = self.0.upgrade() {
            is_cut.store(true, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn open(dir: &Path) -> Arc<OpenFile> {
        let path = dir.join("file");
        let lock = DirLock::take(File::create(dir.join("lock")).unwrap(), dir).unwrap();
        std::fs::write(&path, b"grain").unwrap();
        OpenFile::new(File::open(&path).unwrap(), lock)
    }

    #[test]
    fn a_copy_is_whole_or_cut() {
        let dir = tempfile::tempdir().unwrap();
        let file = open(dir.path());
        let (mut copy, thaw) = FrozenFile::of(&file).unwrap();
        let mut text = String::new();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), copy.size()), ("grain", 5));
        assert!(thaw.is_awaited());
        drop(copy);
        assert!(!thaw.is_awaited());

        let (mut copy, thaw) = FrozenFile::of(&file).unwrap();
        copy.read_exact(&mut [0; 2]).unwrap();
        thaw.now();
        assert!(copy.read(&mut [0; 2]).is_err());
    }

    #[test]
    fn a_copy_does_not_keep_the_file_open() {
        let dir = tempfile::tempdir().unwrap();
        let file = open(dir.path());
        let (mut copy, _thaw) = FrozenFile::of(&file).unwrap();
        copy.read_exact(&mut [0; 2]).unwrap();
        drop(file);
        assert!(copy.read(&mut [0; 2]).is_err());
    }
}
