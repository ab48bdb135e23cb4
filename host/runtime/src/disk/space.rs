//! The space that a mount has taken, and its bound.
//!
//! Every file counts with its size, rounded up to blocks, and every file and directory with
//! [`NODE_BYTES`] more: one number bounds the bytes of a mount and the count of its files, however
//! empty they are. A file that was removed while it was open counts until it is closed.
//!
//! The bytes also count in the account of the mount's owner, who has a share of the host's disk.
//!
//! **Costs.** A few instructions under a lock, and one entry for each open file.

use std::collections::HashMap;

use gristmill_core::sharing::disk_share::DiskAccount;
use parking_lot::Mutex;
use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

/// Bytes that a file or a directory counts besides its content. An ext4 disk has one inode for each
/// 16 KiB, so such files do not use up the inodes of a disk before its bytes.
pub(crate) const NODE_BYTES: u64 = 16 << 10;

/// The size of a file is rounded up to a multiple of this.
pub(crate) const BLOCK_BYTES: u64 = 4 << 10;

/// Identifies a file as long as it exists: its device and its inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FileKey {
    device: u64,
    inode: u64,
}

impl FileKey {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino }
    }
}

/// The bytes that a file of this size counts.
pub(crate) fn file_charge(bytes: u64) -> u64 {
    NODE_BYTES.saturating_add(bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES))
}

/// The bytes that a file or directory counts.
pub(crate) fn charge(stat: &Stat) -> u64 {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => file_charge(size(stat)),
        _ => NODE_BYTES,
    }
}

/// The bytes of the disk that a file takes: fewer than its size if it has holes.
pub(crate) fn allocated(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}

/// The size of a file, in bytes.
pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// The space of one mount.
#[derive(Debug)]
pub(crate) struct Space {
    counts: Mutex<Counts>,
    /// The owner's account of the host's disk: the bounds of all mounts together may exceed the
    /// disk.
    account: DiskAccount,
}

#[derive(Debug)]
struct Counts {
    used: u64,
    max: u64,
    open: HashMap<FileKey, Open>,
}

/// A file that is open.
#[derive(Debug, Default)]
struct Open {
    handles: u32,
    is_removed: bool,
}

impl Space {
    /// A space with `used` bytes in use, which are on the disk already.
    pub(crate) fn new(used: u64, max: u64, account: DiskAccount) -> Self {
        account.add_existing(used);
        Self { counts: Mutex::new(Counts { used, max, open: HashMap::new() }), account }
    }

    /// Changes the bound. Space in use beyond it stays in use.
    pub(crate) fn set_max(&self, max: u64) {
        self.counts.lock().max = max;
    }

    /// Takes this many more bytes.
    ///
    /// # Errors
    /// [`Errno::NOSPC`] when the mount, the owner's share or the host's disk has less; nothing is
    /// taken then.
    pub(crate) fn take(&self, bytes: u64) -> Result<(), Errno> {
        let mut counts = self.counts.lock();
        match counts.used.checked_add(bytes) {
            Some(used) if bytes == 0 || (used <= counts.max && self.admits(bytes)) => {
                counts.used = used;
                self.account.add_existing(bytes);
                Ok(())
            }
            _ => Err(Errno::NOSPC),
        }
    }

    /// Whether so many more bytes could be taken now.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        let (used, max) = self.used_of();
        used.checked_add(bytes).is_some_and(|used| used <= max) && self.admits(bytes)
    }

    /// The bytes in use, and their bound.
    pub(crate) fn used_of(&self) -> (u64, u64) {
        let counts = self.counts.lock();
        (counts.used, counts.max)
    }

    /// The owner's account of the host's disk.
    pub(crate) fn account(&self) -> &DiskAccount {
        &self.account
    }

    /// Whether the host's disk and the owner's share have room for further blocks, wherever in a
    /// file they are.
    pub(crate) fn disk_has_room(&self) -> bool {
        self.admits(0)
    }

    /// A file takes other bytes of the disk than before, whatever its size: the next measurement of
    /// the disk is up to a quarter of a second away.
    pub(crate) fn reallocated(&self, before: u64, after: u64) {
        let disk_space = self.account.disk_space();
        match after.checked_sub(before) {
            Some(more) => disk_space.grant(more),
            None => disk_space.take_back(before - after),
        }
    }

    fn admits(&self, bytes: u64) -> bool {
        self.account.disk_space().admits_work() && self.account.admits_files(bytes)
    }

    /// Returns this many bytes.
    pub(crate) fn give_back(&self, bytes: u64) {
        counts_less(&mut self.counts.lock(), bytes, &self.account);
    }

    /// A file was opened.
    pub(crate) fn opened(&self, key: FileKey) {
        self.counts.lock().open.entry(key).or_default().handles += 1;
    }

    /// A handle of a file is being closed. Returns whether it was the last handle of a file that
    /// has no name any more: then the caller must return the file's bytes.
    pub(crate) fn closed(&self, key: FileKey) -> bool {
        let mut counts = self.counts.lock();
        let Some(open) = counts.open.get_mut(&key) else { return false };
        open.handles = open.handles.saturating_sub(1);
        if open.handles > 0 {
            return false;
        }
        counts.open.remove(&key).is_some_and(|open| open.is_removed)
    }

    /// A file has lost its name. The bytes that it counts, and those that it takes of the disk, are
    /// returned now, or when it is closed.
    pub(crate) fn removed(&self, key: FileKey, charge: u64, allocated: u64) {
        let mut counts = self.counts.lock();
        match counts.open.get_mut(&key) {
            Some(open) => open.is_removed = true,
            None => {
                counts_less(&mut counts, charge, &self.account);
                self.reallocated(allocated, 0);
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.counts.lock().used
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        self.account.remove(self.counts.get_mut().used);
    }
}

/// Counts so many bytes fewer, in the mount and in its owner's account.
fn counts_less(counts: &mut Counts, bytes: u64, account: &DiskAccount) {
    let less = bytes.min(counts.used);
    counts.used -= less;
    account.remove(less);
}

#[cfg(test)]
#[path = "space_tests.rs"]
mod tests;
