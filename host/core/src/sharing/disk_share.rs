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
#[path = "disk_share_tests.rs"]
mod tests;
