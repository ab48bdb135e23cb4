//! Whether the host's disk has space for new work: bytes, and inodes, which each file needs. The
//! gauge does no I/O: the host measures the disk and sets the gauge, and all code that adds data to
//! the disk reads it. The bytes of each owner are in [`disk_share`](crate::sharing::disk_share).
//!
//! **Promise.** Between two measurements the gauge takes off the bytes that callers have announced
//! since the first of them, so that a quarter of a second of writes, up to 1 GB on a fast disk,
//! cannot exceed the reserve or an owner's share.
//!
//! Accepted data can still take more of the disk than it does: it waits in memory for the journal,
//! and in the journal for the tables. These bytes are *owed*. They are not free either, so that the
//! host can always complete what it has accepted.
//!
//! **Costs.** Reading it is three or four loads of atomic numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::sharing::disk_accounts::Accounts;
use crate::sharing::tenancy::Tenancy;

/// Divisor of the reserve for the free space below which waiting jobs do not start: the rest is for
/// the results of running jobs, for cancels, and for deletes.
const START_DIVISOR: u64 = 4;

/// Divisor of the reserve for the space that must be free beyond the reserve before new work is
/// admitted again. Without it, each job that ends near the bound would switch admission.
const RETURN_DIVISOR: u64 = 8;

/// Divisor of the reserve for the space that stays free of results.
const RESULT_DIVISOR: u64 = 8;

/// Divisor of the reserve for the space above it at which the store begins to give back space. More
/// than [`RETURN_DIVISOR`] gives: work is admitted again before the store stops.
const TIGHT_DIVISOR: u64 = 4;

/// The gauge. A new one reports that there is space.
#[derive(Debug, Default)]
pub struct DiskSpaceGauge {
    /// Whether bytes or inodes are below their reserve.
    is_low: AtomicBool,
    is_short: AtomicBool,
    /// Whether jobs did not start for lack of space.
    is_start_awaited: AtomicBool,
    /// Writers that wait for space.
    waiting_writers: AtomicU32,
    bytes: Gauge,
    inodes: Gauge,
    /// Bytes that were granted to callers and are not in the last measurement.
    granted: AtomicU64,
    /// Bytes that the store will still write for data that it has accepted.
    owed: AtomicU64,
    accounts: Accounts,
}

/// How much of one resource of the disk is free. Before the first measurement, all of it.
#[derive(Debug)]
struct Gauge {
    is_low: AtomicBool,
    is_short: AtomicBool,
    free: AtomicU64,
    reserve: AtomicU64,
}

impl Default for Gauge {
    fn default() -> Self {
        let (is_low, is_short) = (AtomicBool::default(), AtomicBool::default());
        Self { is_low, is_short, free: AtomicU64::new(u64::MAX), reserve: AtomicU64::default() }
    }
}

impl Gauge {
    fn set(&self, free: u64, reserve: u64) {
        self.free.store(free, Ordering::Relaxed);
        self.reserve.store(reserve, Ordering::Relaxed);
        let bound = |was_below: bool, bound: u64| {
            bound.saturating_add(if was_below { reserve / RETURN_DIVISOR } else { 0 })
        };
        let was_low = self.is_low.load(Ordering::Relaxed);
        self.is_low.store(free < bound(was_low, reserve), Ordering::Relaxed);
        let was_short = self.is_short.load(Ordering::Relaxed);
        self.is_short.store(free < bound(was_short, reserve / START_DIVISOR), Ordering::Relaxed);
    }
}

/// The resource of a disk that is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// Bytes. A write that finds no space may mean either.
    #[error("the host's disk is nearly full")]
    Bytes,
    /// Inodes: there are very many files, however small.
    #[error("the file system of the host's disk has nearly no free inodes: it has too many files")]
    Inodes,
}

/// A writer that waits for space. While there is one, there is no space.
#[derive(Debug)]
pub struct SpaceWait(Arc<DiskSpaceGauge>);

impl Drop for SpaceWait {
    fn drop(&mut self) {
        self.0.waiting_writers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DiskSpaceGauge {
    /// A gauge that reports that there is room, on a disk that the owners of this host share.
    pub fn new(tenancy: Tenancy) -> Self {
        Self { accounts: Accounts::new(tenancy), ..Self::default() }
    }

    /// The bytes of each owner on the disk.
    pub(crate) fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Whether several owners share the host.
    pub fn has_several_owners(&self) -> bool {
        self.accounts.has_several_owners()
    }

    /// Whether new work may be accepted: submissions, uploads, images.
    pub fn admits_work(&self) -> bool {
        !self.is_low.load(Ordering::Relaxed)
            && !self.has_waiting_writers()
            && self.free_bytes() >= self.reserve_bytes()
    }

    /// Whether the disk is so full that the store should give back all space that it can: it is
    /// below the bound of new work, or a quarter of the reserve above it. Also when the owed bytes
    /// take half of the space above the reserve: a small disk would otherwise refuse work although
    /// the space is only owed.
    pub fn is_tight(&self) -> bool {
        let reserve = self.reserve_bytes();
        let above_reserve = self.bytes.free.load(Ordering::Relaxed).saturating_sub(reserve);
        self.has_waiting_writers()
            || self.free_bytes() < reserve.saturating_add(reserve / TIGHT_DIVISOR)
            || self.owed.load(Ordering::Relaxed) > above_reserve / 2
    }

    /// Whether running jobs may add chunks to their streams. Unlike the start of a job, a chunk is
    /// refused as soon as the bytes that were granted reach a quarter of the reserve.
    pub fn admits_chunks(&self) -> bool {
        self.has_space_to_start() && self.free_bytes() >= self.reserve_bytes() / START_DIVISOR
    }

    /// Whether the result of a job may be written. Results may use more of the reserve than chunks:
    /// the rest of it is for cancels, deletes and expiry, which make room.
    pub fn admits_results(&self) -> bool {
        !self.has_waiting_writers() && self.free_bytes() >= self.reserve_bytes() / RESULT_DIVISOR
    }

    /// Free bytes above the reserve, without those that were granted or are owed.
    pub fn bytes_above_reserve(&self) -> u64 {
        self.free_bytes().saturating_sub(self.reserve_bytes())
    }

    /// Whether waiting jobs may start.
    pub fn has_space_to_start(&self) -> bool {
        !self.is_short.load(Ordering::Relaxed)
            && !self.has_waiting_writers()
            && self.unowed_bytes() >= self.reserve_bytes() / START_DIVISOR
    }

    /// The same, for callers that want to start a job: a refusal is recorded for
    /// [`may_start_again`](Self::may_start_again).
    pub fn may_start_jobs(&self) -> bool {
        let may_start = self.has_space_to_start();
        if !may_start {
            self.is_start_awaited.store(true, Ordering::Release);
        }
        may_start
    }

    /// Whether there is space again for jobs that did not start before. True once for all refusals
    /// so far; a refusal at the same time counts for the next call.
    pub fn may_start_again(&self) -> bool {
        self.has_space_to_start() && self.is_start_awaited.swap(false, Ordering::AcqRel)
    }

    /// Whether a writer waits for space.
    pub fn has_waiting_writers(&self) -> bool {
        self.waiting_writers.load(Ordering::Relaxed) > 0
    }

    /// Records a writer that found no space; it waits until the guard is dropped.
    pub fn wait_for_space(self: &Arc<Self>) -> SpaceWait {
        self.waiting_writers.fetch_add(1, Ordering::Relaxed);
        SpaceWait(self.clone())
    }

    /// Sets the number of free bytes of the disk, and the reserve. The measurement contains all
    /// bytes that were granted so far.
    pub fn set(&self, free_bytes: u64, reserve_bytes: u64) {
        self.set_measured(free_bytes, reserve_bytes, self.granted_bytes());
    }

    /// The same for a measurement that contains `granted` bytes of those that were granted:
    /// [`granted_bytes`](Self::granted_bytes) before the disk was measured.
    pub fn set_measured(&self, free_bytes: u64, reserve_bytes: u64, granted: u64) {
        self.bytes.set(free_bytes, reserve_bytes);
        self.combine();
        self.take_back(granted);
    }

    /// Bytes that were granted and are not in the last measurement.
    pub fn granted_bytes(&self) -> u64 {
        self.granted.load(Ordering::Relaxed)
    }

    /// A caller is going to write so many bytes, or has just done so.
    pub fn grant(&self, bytes: u64) {
        // It wraps only after 2^64 bytes without a measurement.
        self.granted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many of the granted bytes are in a measurement, or are free again.
    pub fn take_back(&self, bytes: u64) {
        subtract(&self.granted, bytes);
    }

    /// The store has accepted data for which it will write so many bytes more.
    pub fn owe(&self, bytes: u64) {
        self.owed.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many of the owed bytes were written. They count as granted until the next measurement,
    /// since the last one may not contain them.
    pub fn settle_written(&self, bytes: u64) {
        self.grant(bytes);
        self.settle(bytes);
    }

    /// So many of the owed bytes will not be written.
    pub fn settle(&self, bytes: u64) {
        // Below zero, the host would refuse all work for ever.
        subtract(&self.owed, bytes);
    }

    /// The same for inodes. A file system without a fixed number of them has no reserve of them.
    pub fn set_inodes(&self, free: u64, reserve: u64) {
        self.inodes.set(free, reserve);
        self.combine();
    }

    fn combine(&self) {
        let either = |flag: fn(&Gauge) -> &AtomicBool| {
            [&self.bytes, &self.inodes].iter().any(|gauge| flag(gauge).load(Ordering::Relaxed))
        };
        self.is_low.store(either(|gauge| &gauge.is_low), Ordering::Relaxed);
        self.is_short.store(either(|gauge| &gauge.is_short), Ordering::Relaxed);
    }

    /// The resource that is below its reserve. Bytes if both are, and if neither is: then a writer
    /// has found no space.
    pub fn shortage(&self) -> Shortage {
        let is_low = |gauge: &Gauge| gauge.is_low.load(Ordering::Relaxed);
        match is_low(&self.inodes) && !is_low(&self.bytes) {
            true => Shortage::Inodes,
            false => Shortage::Bytes,
        }
    }

    /// Free bytes at the last measurement, without the bytes that were granted since then and those
    /// that are owed.
    pub fn free_bytes(&self) -> u64 {
        self.unowed_bytes().saturating_sub(self.granted_bytes())
    }

    /// Free bytes at the last measurement, without those that are owed.
    fn unowed_bytes(&self) -> u64 {
        let free = self.bytes.free.load(Ordering::Relaxed);
        free.saturating_sub(self.owed.load(Ordering::Relaxed))
    }

    /// Bytes that should stay free.
    pub fn reserve_bytes(&self) -> u64 {
        self.bytes.reserve.load(Ordering::Relaxed)
    }

    /// Free inodes at the last measurement.
    pub fn free_inodes(&self) -> u64 {
        self.inodes.free.load(Ordering::Relaxed)
    }

    /// Inodes that should stay free.
    pub fn reserve_inodes(&self) -> u64 {
        self.inodes.reserve.load(Ordering::Relaxed)
    }
}

/// Subtracts `bytes`, down to 0.
fn subtract(from: &AtomicU64, bytes: u64) {
    let less = |value: u64| Some(value.saturating_sub(bytes));
    // The closure always returns a value, so the update succeeds.
    let _ = from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

#[cfg(test)]
#[path = "disk_space_tests.rs"]
mod tests;
