//! The directories of volumes that stay open between two uses, so that most uses open none.
//!
//! **Promises.** A directory that is in use is open, with the lock that shows its use to other
//! processes, whether it is among these or not: each use holds it itself. **Bounds.** [`OPEN_MAX`]
//! directories of all owners together, or a sixteenth of the files that the process may open if
//! that is less; beyond it the one is closed whose last use began the longest time ago. **Costs.**
//! An open descriptor for each; a look-up for each use; one look at all of them before one is
//! closed. An owner that uses hundreds of volumes in turn costs the next use of another owner's
//! volume an open and a lock of its directory, some microseconds on a local disk.

use std::collections::HashMap;
use std::fs::File;
use std::sync::Arc;

use gristmill_core::id::VolumeId;

use super::io_limits;

/// Most directories that stay open.
pub(super) const OPEN_MAX: usize = 256;

/// The part of the process's files that they may take.
const PART_OF_FILES: u64 = 16;

/// The directories that stay open.
#[derive(Debug)]
pub(super) struct RecentVolumes {
    max: usize,
    uses: u64,
    open: HashMap<VolumeId, Recent>,
}

#[derive(Debug)]
struct Recent {
    /// The number of its last use.
    use_number: u64,
    root: Arc<File>,
}

impl Default for RecentVolumes {
    /// None yet, within the limits of this process.
    fn default() -> Self {
        let part = io_limits::process_files_max() / PART_OF_FILES;
        Self::new(usize::try_from(part).unwrap_or(usize::MAX).min(OPEN_MAX))
    }
}

impl RecentVolumes {
    /// None yet, and `max` at most.
    pub(super) fn new(max: usize) -> Self {
        Self { max, uses: 0, open: HashMap::new() }
    }

    /// A use of the volume begins.
    pub(super) fn touch(&mut self, id: &VolumeId) {
        self.uses += 1;
        if let Some(recent) = self.open.get_mut(id) {
            recent.use_number = self.uses;
        }
    }

    /// Keeps the directory of a volume open. Returns the directories to close, which the caller
    /// drops without a lock: on a network file system that waits for the network.
    pub(super) fn keep(&mut self, id: &VolumeId, root: Arc<File>) -> Vec<Arc<File>> {
        self.uses += 1;
        let recent = Recent { use_number: self.uses, root };
        let replaced = self.open.insert(id.clone(), recent);
        let oldest = (self.open.len() > self.max).then(|| self.remove_oldest()).flatten();
        replaced.map(|recent| recent.root).into_iter().chain(oldest).collect()
    }

    fn remove_oldest(&mut self) -> Option<Arc<File>> {
        let (id, _) = self.open.iter().min_by_key(|(_, recent)| recent.use_number)?;
        let id = id.clone();
        self.remove(&id)
    }

    /// The volume is removed. Returns its directory, if it stayed open.
    pub(super) fn remove(&mut self, id: &VolumeId) -> Option<Arc<File>> {
        self.open.remove(id).map(|recent| recent.root)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directories_that_were_used_last_stay_open() {
        let ids = ["a", "b", "c", "d"].map(|id| VolumeId::new(id).unwrap());
        let [a, b, c, d] = &ids;
        let root = || Arc::new(File::open("/").unwrap());
        let mut recent = RecentVolumes::new(2);
        let is_open =
            |recent: &RecentVolumes| ids.each_ref().map(|id| recent.open.contains_key(id));
        assert!(recent.keep(a, root()).is_empty() && recent.keep(b, root()).is_empty());
        recent.touch(a);
        recent.touch(d);
        assert_eq!(recent.keep(c, root()).len(), 1);
        assert_eq!(is_open(&recent), [true, false, true, false]);
        assert_eq!(recent.keep(a, root()).len(), 1, "the earlier descriptor");
        assert!(recent.remove(c).is_some() && recent.remove(c).is_none());
        assert!(recent.keep(d, root()).is_empty());
        assert_eq!(is_open(&recent), [true, false, false, true]);
        // With very few files none stays open.
        assert_eq!(RecentVolumes::new(0).keep(a, root()).len(), 1);
    }
}
