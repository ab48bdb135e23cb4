//! The database's file as it was at one instant, for whoever copies it.
//!
//! Changes go to the write-ahead log first. While the file is frozen they stay there, so the file
//! does not change, and nobody waits for the copy. A copy that takes so long that the log becomes
//! too large, or that is under way when the store is closed, is cut: reading it fails then.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

/// Says to a [`FrozenFile`] that its file changes now.
#[derive(Debug, Default)]
pub(crate) struct Thaw(Weak<AtomicBool>);

/// The file, read from its front to its end. Frozen until this is dropped.
#[derive(Debug)]
pub(crate) struct FrozenFile {
    file: File,
    at: u64,
    end: u64,
    is_cut: Arc<AtomicBool>,
}

impl FrozenFile {
    /// The file as it is now, and what ends that.
    pub(crate) fn open(path: &Path) -> io::Result<(Self, Thaw)> {
        let file = File::open(path)?;
        let (end, is_cut) = (file.metadata()?.len(), Arc::default());
        let thaw = Thaw(Arc::downgrade(&is_cut));
        Ok((Self { file, at: 0, end, is_cut }, thaw))
    }

    pub(crate) fn size(&self) -> u64 {
        self.end
    }
}

impl Read for FrozenFile {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(into.len());
        let count = self.file.read(into.get_mut(..left).unwrap_or_default())?;
        // After the reading: what was read before the cut is as it was.
        if self.is_cut.load(Ordering::SeqCst) {
            return Err(io::Error::other("the store could not wait any longer for its copy"));
        }
        self.at += count as u64;
        Ok(count)
    }
}

impl Thaw {
    /// Whether somebody still reads.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.strong_count() > 0
    }

    /// The file may change from now on.
    pub(crate) fn now(&self) {
        if let Some(is_cut) = self.0.upgrade() {
            is_cut.store(true, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_whole_or_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, b"grain").unwrap();
        let (mut copy, thaw) = FrozenFile::open(&path).unwrap();
        let mut text = String::new();
        copy.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), copy.size()), ("grain", 5));
        assert!(thaw.is_awaited());
        drop(copy);
        assert!(!thaw.is_awaited());

        let (mut copy, thaw) = FrozenFile::open(&path).unwrap();
        copy.read_exact(&mut [0; 2]).unwrap();
        thaw.now();
        assert!(copy.read(&mut [0; 2]).is_err());
    }
}
