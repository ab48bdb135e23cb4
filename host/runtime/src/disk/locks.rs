//! Directories by which handlers lock files. The SQLite of a guest locks the database `NAME` by the
//! directory `NAME.lock`, which a handler that is stopped in a transaction cannot remove.
//!
//! **Promises.** An empty directory `*.lock` that an instance created on a volume is removed when
//! the instance ends, however it ends, unless a handler has removed or renamed it before: then its
//! successor under the same name belongs to another instance, and stays. After a crash of the host,
//! the next process removes the directories before its first job. A directory with content stays.
//! **Bounds.** [`LOCKS_MAX`] directories of an instance; further ones are ordinary directories.
//! **Costs.** An entry and at most one open descriptor for each such directory. On the disk, the
//! sticky bit marks it: one call creates directory and mark.

use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use gristmill_core::runtime::FileGuard;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, FlockOperation, Stat, flock, statat, unlinkat};

use super::marks::is_marked_directory;
use super::space::{FileKey, NODE_BYTES, Space};

/// The end of the name of such a directory.
const SUFFIX: &str = ".lock";

/// Most such directories of an instance at one time. SQLite attaches at most 10 databases to a
/// connection.
pub(crate) const LOCKS_MAX: usize = 32;

/// The directories of a mount by which instances hold locks.
#[derive(Debug, Default)]
pub(super) struct Locks(Mutex<HashMap<FileKey, Held>>);

/// A directory that an instance has created.
#[derive(Debug)]
pub(super) struct Held {
    /// The number of the instance.
    pub(super) holder: u64,
    /// The directory that contains it. It is held open, since a handler may rename it.
    pub(super) parent: Arc<File>,
    pub(super) name: String,
    /// The right to have it open.
    pub(super) _open_file: FileGuard,
}

/// Whether a directory of this name is a lock.
pub(super) fn is_lock(name: &str) -> bool {
    name.ends_with(SUFFIX)
}

impl Locks {
    /// Whether the instance may hold one more.
    pub(super) fn admit(&self, holder: u64) -> bool {
        self.count(holder) < LOCKS_MAX
    }

    /// Whether the instance holds any.
    pub(super) fn has(&self, holder: u64) -> bool {
        self.count(holder) > 0
    }

    fn count(&self, holder: u64) -> usize {
        self.0.lock().values().filter(|held| held.holder == holder).count()
    }

    /// Adds a directory that was just created.
    pub(super) fn add(&self, stat: &Stat, held: Held) {
        self.0.lock().insert(FileKey::of(stat), held);
    }

    /// A directory was removed, or has another name now: it is no lock any more, and its number may
    /// become that of another directory.
    pub(super) fn forget(&self, stat: &Stat) {
        if is_marked_directory(stat) {
            self.0.lock().remove(&FileKey::of(stat));
        }
    }

    /// Removes what an instance that has ended still holds, while nothing else changes the mount.
    /// Blocks on the disk.
    pub(super) fn release(&self, holder: u64, space: &Space) {
        let released: Vec<_> = self.0.lock().extract_if(|_, held| held.holder == holder).collect();
        for (key, Held { parent, name, .. }) in released {
            let is_same = |stat: Stat| FileKey::of(&stat) == key && is_marked_directory(&stat);
            if statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(is_same) {
                // A directory with content cannot be removed, and stays.
                if unlinkat(&parent, &name, AtFlags::REMOVEDIR).is_ok() {
                    space.give_back(NODE_BYTES);
                }
            }
        }
    }
}

/// Removes a directory that an earlier process has left behind. Returns whether it did.
pub(super) fn remove_left(parent: BorrowedFd<'_>, name: &CStr, stat: &Stat) -> bool {
    is_marked_directory(stat)
        && name.to_bytes().ends_with(SUFFIX.as_bytes())
        && unlinkat(parent, name, AtFlags::REMOVEDIR).is_ok()
}

/// Whether no other process uses this directory as a volume: then what carries the mark was left
/// behind by a process that has ended. `gristmill run --volume` of two shells may name one
/// directory.
pub(super) fn is_alone(root: &File) -> bool {
    // Without support of the file system, nothing is removed.
    flock(root, FlockOperation::NonBlockingLockExclusive).is_ok()
}

/// Shows other processes that this one uses the directory, until `root` is closed.
pub(super) fn show_use(root: &File) {
    // If another process is removing what was left behind at this moment, this one is not shown.
    let _ = flock(root, FlockOperation::NonBlockingLockShared);
}
