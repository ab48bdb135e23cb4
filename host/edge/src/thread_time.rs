//! How much of the threads that serve connections each owner takes.
//!
//! **Promise.** Once several owners have called, and while calls take about half of the threads'
//! time, each owner that takes more than a small part of it is [greedy](OwnerTime::is_greedy),
//! whatever its connections send. They are then read in [turns](crate::read_turns) of owners, so
//! that the calls of others wait for few of theirs.
//! **Bounds.** An entry of some 200 bytes for each owner with connections, and for up to
//! [`ABSENT_MAX`] others.
//! **Cost.** One atomic load on a host that one owner calls. Otherwise two looks at the clock and
//! two atomic changes each time a connection or a call is polled: 0.1 µs.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gristmill_core::id::OwnerId;
use gristmill_core::sharing::cores::cores;
use parking_lot::Mutex;

/// Time that was taken counts half after each of these.
const WINDOW: Duration = Duration::from_millis(50);

/// Owners without connections that are known at most, at the next change of an owner.
const ABSENT_MAX: usize = 1_000;

/// An owner that takes less than one part of so many of what all take is never greedy.
const MODEST_PART: u64 = 32;

/// Bits of the nanoseconds in a [`Recent`]: 18 minutes.
const NANOS_BITS: u32 = 40;

/// The largest sum.
const NANOS_MAX: u64 = (1 << NANOS_BITS) - 1;

/// The owners of a listener, and the time that they have taken.
#[derive(Debug)]
pub(crate) struct ThreadTimes {
    begin: Instant,
    /// The threads are busy when all owners have recently taken more, in nanoseconds.
    busy: u64,
    of_owners: Mutex<HashMap<OwnerId, Arc<Recent>>>,
    are_several: AtomicBool,
    all: Recent,
}

/// The time of one owner.
#[derive(Debug)]
pub(crate) struct OwnerTime {
    owner: OwnerId,
    of_owner: Arc<Recent>,
    times: Arc<ThreadTimes>,
}

/// A sum of nanoseconds that halves with each window. The upper bits have the number of the window
/// of the last change.
#[derive(Debug, Default)]
struct Recent(AtomicU64);

impl Recent {
    /// The sum in a window.
    fn sum(&self, window: u64) -> u64 {
        Self::halved(self.0.load(Ordering::Relaxed), window)
    }

    fn add(&self, window: u64, nanos: u64) {
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.0.fetch_update(set, fetch, |before| {
            let sum = Self::halved(before, window).saturating_add(nanos).min(NANOS_MAX);
            Some(window << NANOS_BITS | sum)
        });
    }

    fn halved(before: u64, window: u64) -> u64 {
        // Another thread may have begun the next window.
        let windows = (window << NANOS_BITS).saturating_sub(before & !NANOS_MAX) >> NANOS_BITS;
        (before & NANOS_MAX) >> windows.min(NANOS_BITS.into())
    }
}

impl ThreadTimes {
    /// For a listener whose connections are served by a thread on each core.
    pub(crate) fn new() -> Arc<Self> {
        Self::of_threads(cores())
    }

    fn of_threads(threads: usize) -> Arc<Self> {
        // Calls that take all have a sum of one to two windows, so this is 37 to 75 % of it.
        let busy = WINDOW.as_nanos() as u64 * threads as u64 * 3 / 4;
        let (of_owners, are_several, all) = Default::default();
        Arc::new(Self { begin: Instant::now(), busy, of_owners, are_several, all })
    }

    /// Whether several owners have called.
    pub(crate) fn are_several(&self) -> bool {
        self.are_several.load(Ordering::Relaxed)
    }

    /// The time of an owner.
    pub(crate) fn of_owner(self: &Arc<Self>, owner: &OwnerId) -> Arc<OwnerTime> {
        let mut of_owners = self.of_owners.lock();
        if of_owners.len() > ABSENT_MAX && !of_owners.contains_key(owner) {
            of_owners.retain(|_, recent| Arc::strong_count(recent) > 1);
        }
        let of_owner = of_owners.entry(owner.clone()).or_default().clone();
        self.are_several.store(of_owners.len() > 1, Ordering::Relaxed);
        Arc::new(OwnerTime { owner: owner.clone(), of_owner, times: self.clone() })
    }

    fn window(&self, now: Instant) -> u64 {
        let windows = now.saturating_duration_since(self.begin).as_nanos() / WINDOW.as_nanos();
        // 2^24 windows are ten days; then one window counts as the first one.
        windows as u64 & ((1 << (u64::BITS - NANOS_BITS)) - 1)
    }
}

impl OwnerTime {
    pub(crate) fn is_of(&self, owner: &OwnerId) -> bool {
        self.owner == *owner
    }

    /// Begins a piece of work of the owner.
    pub(crate) fn measure(self: Arc<Self>) -> Measured {
        Measured { time: self, begin: Instant::now() }
    }

    /// Whether the threads have recently been busy, and the owner has taken more than a small part
    /// of what all have taken.
    fn is_greedy(&self, now: Instant) -> bool {
        let window = self.times.window(now);
        let all = self.times.all.sum(window);
        all > self.times.busy && self.of_owner.sum(window) > all / MODEST_PART
    }
}

/// A piece of work of an owner.
#[must_use]
#[derive(Debug)]
pub(crate) struct Measured {
    time: Arc<OwnerTime>,
    begin: Instant,
}

impl Measured {
    /// Whether the owner was [greedy](OwnerTime::is_greedy) when the work began.
    pub(crate) fn is_of_greedy(&self) -> bool {
        self.time.is_greedy(self.begin)
    }

    /// Counts the work up to now. Returns how long it took.
    pub(crate) fn end(self) -> Duration {
        let OwnerTime { of_owner, times, .. } = &*self.time;
        let now = Instant::now();
        let took = now.saturating_duration_since(self.begin);
        let (window, nanos) = (times.window(now), took.as_nanos() as u64);
        of_owner.add(window, nanos);
        times.all.add(window, nanos);
        took
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(name: &str) -> OwnerId {
        name.parse().unwrap()
    }

    #[test]
    fn an_owner_is_greedy_that_takes_a_part_of_busy_threads() {
        let times = ThreadTimes::of_threads(2);
        let windows = |count: u32| times.begin + WINDOW * count;
        let works = |time: &OwnerTime, window: u32, millis: u64| {
            time.of_owner.add(window.into(), millis * 1_000_000);
            times.all.add(window.into(), millis * 1_000_000);
        };
        let flood = times.of_owner(&owner("flood"));
        assert!(!times.are_several());
        let other = times.of_owner(&owner("other"));
        assert!(times.are_several());
        works(&flood, 1, 90);
        works(&other, 1, 2);
        assert!(flood.is_greedy(windows(1)) && !other.is_greedy(windows(1)));
        assert!(!flood.is_greedy(windows(2)), "46 ms are left");
        for window in 3..40 {
            works(&flood, window, 30);
            assert!(!flood.is_greedy(windows(window)), "the threads are not busy: {window}");
        }
        let several: Vec<_> =
            (0..8).map(|number| times.of_owner(&owner(&format!("one-{number}")))).collect();
        for time in &several {
            works(time, 50, 10);
        }
        assert!(several.iter().all(|time| time.is_greedy(windows(50))), "80 ms together");
        assert!(!other.is_greedy(windows(50)));
    }

    #[test]
    fn a_sum_halves_with_each_window_and_never_grows_by_itself() {
        let recent = Recent::default();
        recent.add(5, 1 << 20);
        let sums = [4, 5, 6, 7, 24, 25, 26, 1_000].map(|window| recent.sum(window));
        assert_eq!(sums, [1 << 20, 1 << 20, 1 << 19, 1 << 18, 2, 1, 0, 0]);
        recent.add(6, u64::MAX);
        assert_eq!(recent.sum(6), NANOS_MAX);
        recent.add(0, 1);
        assert_eq!(recent.sum(1), (1 << (NANOS_BITS - 1)) - 1, "the numbers began again");
    }

    #[test]
    fn owners_without_connections_are_forgotten() {
        let times = ThreadTimes::of_threads(1);
        let kept = times.of_owner(&owner("kept"));
        for number in 0..3 * ABSENT_MAX {
            drop(times.of_owner(&owner(&format!("owner-{number}"))));
        }
        let known = times.of_owners.lock();
        assert!(known.len() <= ABSENT_MAX + 1 && known.contains_key(&kept.owner));
    }
}
