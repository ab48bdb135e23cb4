//! Durations by fine buckets, for percentiles over any span of time.
//!
//! **Promise.** A percentile is within 6 % of a duration that was recorded, and never above the
//! longest one. Below 16 µs it is exact. **Bounds.** 304 buckets, eight for each power of two, up
//! to 2^40 µs or 12 days; longer durations count as that. A recorder takes 1.2 KiB. A spread has
//! the buckets from its shortest to its longest duration: 100 bytes for durations within a factor
//! of eight, and 1.2 KiB at most. **Cost.** Two atomic operations for a duration, or three for one
//! that is the longest so far.

use std::array;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use minicbor::{Decode, Encode};

/// Buckets for each power of two.
const FINENESS: usize = 8;

const BUCKETS: usize = 304;

/// The bucket of a duration in microseconds. Its number is that of its power of two, and the first
/// bits after it.
fn bucket_of(us: u64) -> usize {
    let shift = us.checked_ilog2().unwrap_or(0).saturating_sub(FINENESS.ilog2());
    let bucket = shift as usize * FINENESS + usize::try_from(us >> shift).unwrap_or(usize::MAX);
    bucket.min(BUCKETS - 1)
}

/// The first duration of a bucket, and the one that is equally far from both of its ends, in
/// proportion: the error is at most a seventeenth.
fn bounds_of(bucket: usize) -> (u64, u64) {
    let shift = (bucket / FINENESS).saturating_sub(1);
    let first = (bucket - shift * FINENESS) as u64;
    (first << shift, ((2 * first * (first + 1)) << shift) / (2 * first + 1))
}

/// Durations since they were last taken.
#[derive(Debug)]
pub struct RecentDurations {
    counts: [AtomicU32; BUCKETS],
    longest_us: AtomicU64,
}

impl Default for RecentDurations {
    fn default() -> Self {
        Self { counts: array::from_fn(|_| AtomicU32::default()), longest_us: AtomicU64::default() }
    }
}

impl RecentDurations {
    /// Counts a duration, in microseconds.
    pub fn record(&self, us: u64) {
        if self.longest_us.load(Ordering::Relaxed) < us {
            self.longest_us.fetch_max(us, Ordering::Relaxed);
        }
        if let Some(count) = self.counts.get(bucket_of(us)) {
            count.fetch_add(1, Ordering::Release);
        }
    }

    /// The durations since the last call. A duration that is recorded meanwhile belongs to this
    /// call or to the next one; as the longest it may count for this one already.
    pub fn take(&self) -> Spread {
        let take = |count: &AtomicU32| match count.load(Ordering::Relaxed) {
            0 => 0,
            _ => count.swap(0, Ordering::Acquire),
        };
        let counts: Vec<u32> = self.counts.iter().map(take).collect();
        let longest_us = self.longest_us.swap(0, Ordering::Relaxed);
        Spread { first: 0, counts, longest_us }.trimmed()
    }
}

/// Numbers of durations by bucket.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub struct Spread {
    /// The bucket of the first count.
    #[n(0)]
    first: u16,
    #[n(1)]
    counts: Vec<u32>,
    #[n(2)]
    longest_us: u64,
}

impl Spread {
    /// Without the empty buckets at both ends.
    fn trimmed(self) -> Self {
        let Self { first, counts, longest_us } = self;
        let is_used = |count: &u32| *count > 0;
        let Some(from) = counts.iter().position(is_used) else { return Self::default() };
        let counts = counts.get(from..).unwrap_or_default();
        let length = counts.iter().rposition(is_used).map_or(0, |last| last + 1);
        let counts = counts.iter().take(length).copied().collect();
        Self {
            first: first.saturating_add(u16::try_from(from).unwrap_or(u16::MAX)),
            counts,
            longest_us,
        }
    }

    fn end(&self) -> usize {
        usize::from(self.first) + self.counts.len()
    }

    /// Adds the durations of another one.
    pub fn add(&mut self, other: &Self) {
        if other.counts.is_empty() {
            return;
        }
        if self.counts.is_empty() {
            self.clone_from(other);
            return;
        }
        let first = self.first.min(other.first);
        let end = self.end().max(other.end());
        let mut counts = vec![0_u32; end - usize::from(first)];
        for of in [&*self, other] {
            let sums = counts.iter_mut().skip(usize::from(of.first - first));
            sums.zip(&of.counts).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        }
        *self = Self { first, counts, longest_us: self.longest_us.max(other.longest_us) };
    }

    /// The duration that `percent` of the durations do not exceed, in microseconds, and at least 1;
    /// 0 if there are none.
    pub fn percentile(&self, percent: u64) -> u64 {
        let all: u64 = self.counts.iter().map(|count| u64::from(*count)).sum();
        let rank = (all * percent).div_ceil(100).max(1);
        let mut up_to = 0;
        for (bucket, count) in (usize::from(self.first)..).zip(&self.counts) {
            up_to += u64::from(*count);
            if up_to >= rank {
                let (first, middle) = bounds_of(bucket);
                return middle.min(self.longest_us.max(first)).max(1);
            }
        }
        0
    }

    /// Whether one that was read from a file keeps the bounds.
    pub fn is_sound(&self) -> bool {
        self.end() <= BUCKETS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spread(durations: &[u64]) -> Spread {
        let recent = RecentDurations::default();
        durations.iter().for_each(|us| recent.record(*us));
        recent.take()
    }

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        for bucket in 0..BUCKETS {
            let (first, middle) = bounds_of(bucket);
            assert_eq!(bucket_of(first), bucket);
            assert_eq!(bucket_of(middle), bucket);
            assert!(first == 0 || bucket_of(first - 1) == bucket - 1, "{bucket}");
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn what_was_taken_is_not_taken_again() {
        let recent = RecentDurations::default();
        recent.record(5_002_000);
        assert_eq!(recent.take().percentile(50), 4_966_938, "of 4,718,592 to 5,242,880");
        assert_eq!(recent.take(), Spread::default());
        assert_eq!(Spread::default().percentile(99), 0);
        assert_eq!(spread(&[0]).percentile(50), 1, "there is one");
    }

    #[test]
    fn a_percentile_is_never_above_the_longest_duration() {
        assert_eq!(spread(&[4_800_000]).percentile(99), 4_800_000);
        let week_us = 7 * 86_400_000_000;
        assert!((week_us * 94 / 100..=week_us).contains(&spread(&[week_us]).percentile(50)));
    }

    proptest! {
        #[test]
        fn percentiles_are_within_six_percent(
            durations in proptest::collection::vec((0..40_u32, 0..u64::MAX), 1..200),
            at in 0..200_usize,
            percent in 1..=100_u64,
        ) {
            let durations: Vec<_> =
                durations.into_iter().map(|(bits, any)| any & ((1 << bits) - 1)).collect();
            let (before, after) = durations.split_at(at.min(durations.len()));
            let mut sum = spread(before);
            sum.add(&spread(after));
            prop_assert_eq!(&sum, &spread(&durations), "in any parts");
            prop_assert!(sum.is_sound());
            let mut sorted = durations;
            sorted.sort_unstable();
            let rank = (sorted.len() as u64 * percent).div_ceil(100).max(1);
            let exact = sorted[rank as usize - 1].max(1);
            let found = sum.percentile(percent);
            prop_assert!(found.abs_diff(exact) * 100 <= exact * 6, "{found} for {exact}");
            prop_assert!(found <= sorted.last().copied().unwrap_or(0).max(1));
        }
    }
}
