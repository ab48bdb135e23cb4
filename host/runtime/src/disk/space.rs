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
mod tests {
    use std::sync::Arc;

    use gristmill_core::id::OwnerId;
    use gristmill_core::sharing::disk_space::DiskSpaceGauge;
    use gristmill_core::sharing::tenancy::Tenancy;

    use super::*;

    fn account(disk_space: &Arc<DiskSpaceGauge>, owner: &str) -> DiskAccount {
        DiskAccount::new(disk_space, &OwnerId::new(owner).unwrap())
    }

    const KEY: FileKey = FileKey { device: 1, inode: 2 };

    #[test]
    fn files_count_by_blocks_and_one_by_one() {
        let cases = [(0, 16_384), (1, 20_480), (4_096, 20_480), (4_097, 24_576)];
        for (bytes, expected) in cases {
            assert_eq!(file_charge(bytes), expected);
        }
        assert_eq!(file_charge(u64::MAX), u64::MAX);
    }

    #[test]
    fn no_more_space_is_taken_than_there_is() {
        let space = Space::new(10, 100, DiskAccount::default());
        assert_eq!(space.take(90), Ok(()));
        assert_eq!(space.take(1), Err(Errno::NOSPC));
        assert_eq!(space.take(u64::MAX), Err(Errno::NOSPC));
        space.set_max(50);
        assert_eq!(space.take(0), Ok(()), "what takes nothing always fits");
        space.give_back(51);
        assert_eq!(space.take(1), Ok(()));
        assert_eq!(space.take(1), Err(Errno::NOSPC));
        assert_eq!(space.used(), 50);
    }

    #[test]
    fn no_space_is_taken_on_a_full_disk() {
        let disk_space = Arc::new(DiskSpaceGauge::default());
        let space = Space::new(10, 100, account(&disk_space, "a"));
        disk_space.set(1, 2);
        assert_eq!(space.take(1), Err(Errno::NOSPC));
        assert_eq!(space.take(0), Ok(()));
        space.give_back(5);
        disk_space.set(9, 2);
        assert_eq!(space.take(1), Ok(()));
        assert_eq!(space.used(), 6);
    }

    #[test]
    fn mounts_of_an_owner_leave_room_for_another_owner() {
        const GIB: u64 = 1 << 30;
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(true);
        let disk_space = Arc::new(DiskSpaceGauge::new(tenancy));
        disk_space.set(4 * GIB, 0);
        let mount = |owner| Space::new(0, 100 * GIB, account(&disk_space, owner));
        let [first, second] = ["a", "a"].map(mount);
        assert_eq!(first.take(2 * GIB), Ok(()));
        disk_space.set(2 * GIB, 0);
        assert_eq!(second.take(GIB), Ok(()));
        disk_space.set(GIB, 0);
        assert_eq!(first.take(1), Err(Errno::NOSPC));
        assert_eq!(second.take(0), Ok(()), "what takes nothing always fits");
        assert_eq!(mount("b").take(GIB / 2), Ok(()));
        drop(second);
        disk_space.set(2 * GIB, 0);
        assert_eq!(first.take(GIB / 2), Ok(()));
        first.give_back(u64::MAX);
        assert_eq!(account(&disk_space, "a").bytes(), 0);
    }

    #[test]
    fn growth_counts_before_the_next_measurement_and_holes_have_no_room_beyond_the_share() {
        const GIB: u64 = 1 << 30;
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(true);
        let disk_space = Arc::new(DiskSpaceGauge::new(tenancy));
        disk_space.set(4 * GIB, 0);
        let space = Space::new(0, 100 * GIB, account(&disk_space, "a"));
        let grow = || space.take(GIB / 4).map(|()| space.reallocated(0, GIB / 4));
        let grown = (0..).take_while(|_| grow().is_ok()).count();
        assert_eq!(grown, 12, "three of four GiB, without a measurement");
        space.give_back(3 * GIB);
        space.reallocated(3 * GIB, 0);
        assert_eq!(space.take(3 * GIB), Ok(()), "smaller files make room at once");
        // A file without blocks. Its holes are filled, and the share is used up.
        space.reallocated(0, 3 * GIB);
        assert!(space.disk_has_room());
        space.reallocated(0, 1);
        assert!(!space.disk_has_room());
    }

    #[test]
    fn a_removed_file_counts_until_it_is_closed() {
        let space = Space::new(40, 100, DiskAccount::default());
        space.opened(KEY);
        space.opened(KEY);
        space.removed(KEY, 30, 0);
        assert_eq!(space.used(), 40);
        assert!(!space.closed(KEY));
        assert!(space.closed(KEY), "the last one");
        assert_eq!(space.used(), 40, "closing it releases its space");
        space.removed(KEY, 30, 0);
        assert_eq!(space.used(), 10);
        space.opened(KEY);
        assert!(!space.closed(KEY), "it has its name");
    }
}
