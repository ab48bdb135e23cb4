//! Each owner's share of the disk: the bytes of the owner's jobs, results, waiting webhooks, files,
//! log lines, and handlers with their compiled files.
//!
//! **Bounds.** While the host has several owners, an owner's new work is refused once its account
//! would exceed [`WORK_TO_FREE`] times the bytes that are left free above the disk's reserve, and
//! its results once the account would exceed [`RESULTS_TO_FREE`] times them. So an owner that is
//! alone on the disk leaves a quarter of it to the next owner, each further owner leaves a quarter
//! of the rest, and accepted jobs keep room for their results. Up to [`SMALL_BYTES`] an owner is
//! refused by the disk's reserve only. While the host has one owner, that owner may use the whole
//! disk.
//!
//! The free bytes are those of the last measurement, a quarter of a second old at most, without
//! those that the accounts of all owners have grown by since then. Files of an owner that are not
//! counted yet, after a start, count with the most bytes that they may have when files grow.
//!
//! **Cost.** An account is two atomic numbers, and one more for all accounts together.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::id::OwnerId;
use crate::sharing::disk_accounts::Account;
use crate::sharing::disk_space::DiskSpaceGauge;

/// New work is accepted while the owner has at most this many times the free bytes.
const WORK_TO_FREE: u64 = 3;

/// Results are accepted while the owner has at most this many times the free bytes: submissions are
/// refused long before a job fails for lack of room.
const RESULTS_TO_FREE: u64 = 9;

/// Bytes that each owner may have, however much the others have.
const SMALL_BYTES: u64 = 16 << 20;

/// The bytes of one owner on the disk. All accounts of an owner count the same bytes.
#[derive(Debug, Clone, Default)]
pub struct DiskAccount {
    disk_space: Arc<DiskSpaceGauge>,
    account: Arc<Account>,
}

impl DiskAccount {
    /// The account of this owner on this disk.
    pub fn new(room: &Arc<DiskSpaceGauge>, owner: &OwnerId) -> Self {
        Self { disk_space: room.clone(), account: room.accounts().find(owner) }
    }

    /// The disk.
    pub fn disk_space(&self) -> &DiskSpaceGauge {
        &self.disk_space
    }

    /// Bytes that the owner has.
    pub fn bytes(&self) -> u64 {
        self.account.bytes.load(Ordering::Relaxed)
    }

    /// Whether the owner's share has room for so many bytes of new work: jobs, files and uploads.
    pub fn admits_work(&self, bytes: u64) -> bool {
        self.admits(bytes, bytes, WORK_TO_FREE)
    }

    /// The same for bytes that are on the disk already, and are not in the account yet.
    pub fn admits_written_work(&self, bytes: u64) -> bool {
        self.admits(bytes, 0, WORK_TO_FREE)
    }

    /// Whether the owner's share has room for so many further bytes of files, however many bytes
    /// its [uncounted](Self::charge_uncounted) files have.
    pub fn admits_files(&self, bytes: u64) -> bool {
        let uncounted = self.account.uncounted_max.load(Ordering::Relaxed);
        self.admits(bytes.saturating_add(uncounted), bytes, WORK_TO_FREE)
    }

    /// Whether the owner's share has room for so many bytes of results.
    pub fn admits_results(&self, bytes: u64) -> bool {
        self.admits(bytes, bytes, RESULTS_TO_FREE)
    }

    /// Whether the account may have `more` bytes. `to_write` of them are not on the disk yet.
    fn admits(&self, more: u64, to_write: u64, to_free: u64) -> bool {
        if !self.disk_space.accounts().has_several_owners() {
            return true;
        }
        let then = self.bytes().saturating_add(more);
        let free = self.disk_space.bytes_above_reserve();
        then <= SMALL_BYTES || then <= free.saturating_sub(to_write).saturating_mul(to_free)
    }

    /// The owner has so many bytes more, which are being written.
    pub fn add(&self, bytes: u64) {
        self.disk_space.grant(bytes);
        self.add_existing(bytes);
    }

    /// The owner has so many bytes more, which are on the disk already, or take no space there.
    pub fn add_existing(&self, bytes: u64) {
        self.account.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The owner has so many bytes fewer. They were added before. The next measurement shows
    /// whether the disk has more space by then.
    pub fn remove(&self, bytes: u64) {
        let before = self.account.bytes.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(bytes <= before, "they were added");
    }

    /// Adds bytes that are being written, until the charge is dropped.
    pub fn charge(&self, bytes: u64) -> DiskCharge {
        self.disk_space.grant(bytes);
        self.charge_existing(bytes)
    }

    /// The same for bytes that are on the disk already.
    pub fn charge_existing(&self, bytes: u64) -> DiskCharge {
        self.add_existing(bytes);
        DiskCharge { account: self.clone(), bytes }
    }

    /// Files of the owner exist that take at most so many bytes; their number is not known yet.
    pub fn charge_uncounted(&self, bytes_max: u64) -> UncountedFiles {
        self.account.uncounted_max.fetch_add(bytes_max, Ordering::Relaxed);
        UncountedFiles { account: self.account.clone(), bytes_max }
    }

    /// An object that took `before` bytes takes `after` bytes now. Nothing is written for it.
    pub fn replace(&self, before: u64, after: u64) {
        match after.cmp(&before) {
            std::cmp::Ordering::Greater => self.add_existing(after - before),
            std::cmp::Ordering::Less => self.remove(before - after),
            std::cmp::Ordering::Equal => {}
        }
    }
}

/// Bytes of an object that count in its owner's account until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the charge"]
pub struct DiskCharge {
    account: DiskAccount,
    bytes: u64,
}

impl DiskCharge {
    /// The object takes so many bytes now. They are on the disk already.
    pub fn resize(&mut self, bytes: u64) {
        self.account.replace(self.bytes, bytes);
        self.bytes = bytes;
    }
}

impl Drop for DiskCharge {
    fn drop(&mut self) {
        self.account.remove(self.bytes);
    }
}

/// Files whose bytes are not known, until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it means that the files are counted"]
pub struct UncountedFiles {
    account: Arc<Account>,
    bytes_max: u64,
}

impl Drop for UncountedFiles {
    fn drop(&mut self) {
        self.account.uncounted_max.fetch_sub(self.bytes_max, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sharing::tenancy::Tenancy;

    const GIB: u64 = 1 << 30;

    fn disk(is_shared: bool) -> Arc<DiskSpaceGauge> {
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(is_shared);
        Arc::new(DiskSpaceGauge::new(tenancy))
    }

    fn account(room: &Arc<DiskSpaceGauge>, owner: &str) -> DiskAccount {
        DiskAccount::new(room, &OwnerId::new(owner).unwrap())
    }

    /// Adds work until it is refused, and returns the owner's bytes.
    fn fill(room: &Arc<DiskSpaceGauge>, free: &mut u64, account: &DiskAccount) -> u64 {
        const STEP: u64 = 1 << 20;
        room.set(*free, 0);
        while *free >= STEP && account.admits_work(STEP) {
            account.add(STEP);
            *free -= STEP;
            room.set(*free, 0);
        }
        account.bytes()
    }

    #[test]
    fn an_owner_leaves_a_quarter_of_the_disk_to_the_next() {
        let (room, mut free) = (disk(true), 4 * GIB);
        let [first, second] = ["a", "b"].map(|owner| account(&room, owner));
        assert_eq!(fill(&room, &mut free, &first), 3 * GIB);
        assert!(first.admits_results(1 << 20), "accepted jobs have room for their results");
        assert_eq!(fill(&room, &mut free, &second), 3 * GIB / 4);
        assert!(!first.admits_results(GIB / 4));
        first.remove(2 * GIB);
        free += 2 * GIB;
        assert!(fill(&room, &mut free, &second) > GIB);
    }

    #[test]
    fn an_owner_that_is_alone_has_the_whole_disk_and_a_small_one_is_never_refused() {
        let (room, mut free) = (disk(false), GIB);
        let all = account(&room, "a");
        assert_eq!(fill(&room, &mut free, &all), GIB);
        let (room, mut free) = (disk(true), 2 * SMALL_BYTES);
        room.set(GIB, GIB);
        let small = account(&room, "b");
        assert!(small.admits_work(SMALL_BYTES) && !small.admits_work(SMALL_BYTES + 1));
        assert!(fill(&room, &mut free, &small) >= SMALL_BYTES);
    }

    #[test]
    fn an_owner_cannot_exceed_the_share_between_two_measurements() {
        const MIB: u64 = 1 << 20;
        let room = disk(true);
        room.set(5 * GIB, GIB);
        let [first, second] = ["a", "b"].map(|owner| account(&room, owner));
        let fill = |account: &DiskAccount| {
            while account.admits_work(MIB) && account.disk_space().admits_work() {
                account.add(MIB);
            }
            account.bytes()
        };
        assert_eq!(fill(&first), 3 * GIB);
        assert_eq!(fill(&second), 3 * GIB / 4);
        // Files that shrink free space at once; deleted jobs free it until the next measurement.
        first.remove(2 * GIB);
        assert_eq!(fill(&second), 3 * GIB / 4);
        room.take_back(GIB);
        assert!(fill(&second) > GIB);
        // Bytes that were found on the disk are in the measurement.
        let free = room.free_bytes();
        second.add_existing(GIB);
        assert_eq!(room.free_bytes(), free);
    }

    #[test]
    fn files_that_are_not_counted_yet_take_room_from_files_only() {
        let room = disk(true);
        room.set(4 * GIB, 0);
        let [first, other] = ["a", "b"].map(|owner| account(&room, owner));
        let uncounted = first.charge_uncounted(20 * GIB);
        let small = first.charge_uncounted(GIB);
        assert!(!first.admits_files(0) && other.admits_files(2 * GIB));
        assert!(first.admits_work(2 * GIB) && first.admits_results(2 * GIB) && first.bytes() == 0);
        drop(uncounted);
        assert!(first.admits_files(2 * GIB) && !first.admits_files(29 * GIB / 10));
        drop(small);
        assert!(first.admits_files(29 * GIB / 10));
    }

    #[test]
    fn accounts_of_one_owner_count_the_same_bytes() {
        let room = disk(true);
        let [first, same, other] = ["a", "a", "b"].map(|owner| account(&room, owner));
        first.add(7);
        same.replace(4, 2);
        assert_eq!((first.bytes(), same.bytes(), other.bytes()), (5, 5, 0));
        let mut charge = first.charge(3);
        assert_eq!(same.bytes(), 8);
        for bytes in [7, 2] {
            charge.resize(bytes);
            assert_eq!(same.bytes(), 5 + bytes);
        }
        drop(charge);
        assert_eq!(same.bytes(), 5);
    }

    proptest! {
        /// For any additions and removals: an owner's last addition has left a third of its bytes
        /// free, and an owner without any finds room for three quarters of what is free.
        #[test]
        fn every_owner_leaves_room_for_the_next(
            events in prop::collection::vec((0..3_usize, any::<bool>(), 1..256_u64), 1..200),
        ) {
            let room = disk(true);
            let mut free = 4 * GIB;
            let accounts = ["a", "b", "c"].map(|owner| account(&room, owner));
            let next = account(&room, "next");
            for (who, adds, mib) in events {
                room.set(free, 0);
                let (account, bytes) = (&accounts[who], mib << 20);
                prop_assert!(next.admits_work(free / 4 * 3));
                if adds && account.admits_work(bytes) && bytes <= free {
                    account.add(bytes);
                    free -= bytes;
                    let held = account.bytes();
                    prop_assert!(held <= 3 * free || held <= SMALL_BYTES, "{held} {free}");
                } else {
                    let bytes = bytes.min(account.bytes());
                    account.remove(bytes);
                    free += bytes;
                }
            }
        }
    }
}
