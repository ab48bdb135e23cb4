//! Whether the host's disk has room for new work. The gauge does no I/O: the host measures the disk
//! and sets it, and all code that adds data to the disk reads it.
//!
//! **Costs.** Reading it is one load of an atomic number.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Divisor of the reserve for the free space below which waiting jobs do not start: the rest is for
/// the results of running jobs, for cancels, and for deletes.
const START_PART: u64 = 4;

/// Divisor of the reserve for the space that must be free beyond the reserve before new work is
/// admitted again. Without it, each job that ends near the bound would switch admission.
const RETURN_PART: u64 = 8;

/// The gauge. A new one reports that there is room.
#[derive(Debug, Default)]
pub struct DiskRoom {
    is_low: AtomicBool,
    is_short: AtomicBool,
    /// Whether jobs did not start for lack of room.
    is_start_awaited: AtomicBool,
    /// Writers that wait for space.
    stalls: AtomicU32,
    free_bytes: AtomicU64,
    reserve_bytes: AtomicU64,
}

/// A writer that waits for space. While there is one, there is no room.
#[derive(Debug)]
pub struct Stall(Arc<DiskRoom>);

impl Drop for Stall {
    fn drop(&mut self) {
        self.0.stalls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DiskRoom {
    /// Whether new work may be accepted: submissions, uploads, images.
    pub fn admits_work(&self) -> bool {
        !self.is_low.load(Ordering::Relaxed) && !self.is_stalled()
    }

    /// Whether waiting jobs may start.
    pub fn has_room_to_start(&self) -> bool {
        !self.is_short.load(Ordering::Relaxed) && !self.is_stalled()
    }

    /// The same, for callers that want to start a job: a refusal is recorded for
    /// [`may_start_again`](Self::may_start_again).
    pub fn may_start_jobs(&self) -> bool {
        let may_start = self.has_room_to_start();
        if !may_start {
            self.is_start_awaited.store(true, Ordering::Release);
        }
        may_start
    }

    /// Whether there is room again for jobs that did not start before. True once for all refusals
    /// so far; a refusal at the same time counts for the next call.
    pub fn may_start_again(&self) -> bool {
        self.has_room_to_start() && self.is_start_awaited.swap(false, Ordering::AcqRel)
    }

    /// Whether a writer waits for space.
    pub fn is_stalled(&self) -> bool {
        self.stalls.load(Ordering::Relaxed) > 0
    }

    /// Records a writer that found no space; it waits until the guard is dropped.
    pub fn stall(self: &Arc<Self>) -> Stall {
        self.stalls.fetch_add(1, Ordering::Relaxed);
        Stall(self.clone())
    }

    /// Sets the number of free bytes of the disk, and the reserve.
    pub fn set(&self, free_bytes: u64, reserve_bytes: u64) {
        self.free_bytes.store(free_bytes, Ordering::Relaxed);
        self.reserve_bytes.store(reserve_bytes, Ordering::Relaxed);
        let bound = |was_below: bool, bytes: u64| {
            bytes.saturating_add(if was_below { reserve_bytes / RETURN_PART } else { 0 })
        };
        let was_low = self.is_low.load(Ordering::Relaxed);
        self.is_low.store(free_bytes < bound(was_low, reserve_bytes), Ordering::Relaxed);
        let was_short = self.is_short.load(Ordering::Relaxed);
        let short = reserve_bytes / START_PART;
        self.is_short.store(free_bytes < bound(was_short, short), Ordering::Relaxed);
    }

    /// Free bytes at the last measurement.
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that should stay free.
    pub fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_work_stops_at_the_reserve_and_waiting_jobs_later() {
        let room = DiskRoom::default();
        assert!(room.admits_work() && room.may_start_jobs());
        // (free, admits work, may start jobs)
        let looks = [
            (8_000, true, true),
            (800, true, true),
            (799, false, true),
            (899, false, true),
            (200, false, true),
            (199, false, false),
            (299, false, false),
            (300, false, true),
            (899, false, true),
            (900, true, true),
            (800, true, true),
            (0, false, false),
        ];
        for (free, admits, starts) in looks {
            room.set(free, 800);
            assert_eq!((room.admits_work(), room.may_start_jobs()), (admits, starts), "{free}");
            assert_eq!((room.free_bytes(), room.reserve_bytes()), (free, 800));
        }
        room.set(0, 0);
        assert!(room.admits_work() && room.may_start_jobs(), "without a reserve");
    }

    #[test]
    fn there_is_no_room_while_a_writer_waits() {
        let room = Arc::new(DiskRoom::default());
        let first = room.stall();
        let second = room.stall();
        drop(first);
        assert!(room.is_stalled() && !room.admits_work() && !room.may_start_jobs());
        drop(second);
        assert!(!room.is_stalled() && room.admits_work() && room.may_start_jobs());
        assert!(room.may_start_again(), "jobs were refused before");
        assert!(!room.may_start_again(), "once");
    }
}
