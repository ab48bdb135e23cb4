//! Counters and durations that code records and collectors read.
//!
//! **Cost.** A counter costs one addition to an atomic number, a duration two and a search in 20
//! bounds.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// Subtracts each value from the number at its place.
pub(crate) fn subtract_all(numbers: &mut [u64], values: &[u64]) {
    for (number, value) in numbers.iter_mut().zip(values) {
        *number = number.saturating_sub(*value);
    }
}

/// Adds each value to the sum at its place.
pub(crate) fn add_all(sums: &mut [u64], values: &[u64]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds a number.
    pub fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Adds a number to the counter at an index.
pub(crate) fn add(counters: &[Counter], index: usize, number: u64) {
    if let Some(counter) = counters.get(index) {
        counter.add(number);
    }
}

/// Upper bounds of the buckets of durations, in microseconds: from a quarter of a millisecond,
/// since a small handler runs about as long, to an hour. Longer durations have a bucket too.
pub const DURATION_BOUNDS_US: [u64; 20] = [
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
    3_600_000_000,
];

const BUCKETS: usize = DURATION_BOUNDS_US.len() + 1;

/// Durations by bucket.
#[derive(Debug)]
pub struct Durations {
    buckets: [Counter; BUCKETS],
    sum_us: Counter,
}

impl Default for Durations {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| Counter::default()), sum_us: Counter::default() }
    }
}

impl Durations {
    /// Counts a duration, in microseconds.
    pub fn record(&self, us: u64) {
        let bucket = DURATION_BOUNDS_US.partition_point(|bound| *bound < us);
        add(&self.buckets, bucket, 1);
        self.sum_us.add(us);
    }

    /// The present values.
    pub fn totals(&self) -> DurationTotals {
        DurationTotals {
            buckets: self.buckets.each_ref().map(Counter::get),
            sum_us: self.sum_us.get(),
        }
    }
}

/// Numbers of durations by bucket, and their sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DurationTotals {
    /// Durations up to each of [`DURATION_BOUNDS_US`] and above the bound before it, then those
    /// above the last bound.
    pub buckets: [u64; BUCKETS],
    /// The sum of all durations, in microseconds.
    pub sum_us: u64,
}

impl DurationTotals {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        add_all(&mut self.buckets, &other.buckets);
        self.sum_us += other.sum_us;
    }

    pub(crate) fn subtract(&mut self, earlier: &Self) {
        subtract_all(&mut self.buckets, &earlier.buckets);
        self.sum_us = self.sum_us.saturating_sub(earlier.sum_us);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_duration_is_in_the_first_bucket_whose_bound_it_does_not_exceed() {
        for (us, bucket) in [
            (0, 0),
            (250, 0),
            (251, 1),
            (1_000, 2),
            (1_001, 3),
            (3_600_000_000, 19),
            (3_600_000_001, 20),
            (u64::MAX / 2, 20),
        ] {
            let durations = Durations::default();
            durations.record(us);
            let totals = durations.totals();
            let expected: Vec<_> = (0..BUCKETS).map(|at| u64::from(at == bucket)).collect();
            assert_eq!(totals.buckets.to_vec(), expected, "{us}");
            assert_eq!((totals.sum_us, totals.count()), (us, 1));
        }
    }

    proptest! {
        #[test]
        fn buckets_and_sum_agree_with_the_durations(
            durations in proptest::collection::vec(0..5_000_000_000_u64, 0..50),
        ) {
            let recorded = Durations::default();
            durations.iter().for_each(|us| recorded.record(*us));
            let totals = recorded.totals();
            prop_assert_eq!(totals.sum_us, durations.iter().sum::<u64>());
            let mut up_to = 0;
            for (bound, bucket) in DURATION_BOUNDS_US.iter().zip(totals.buckets) {
                up_to += bucket;
                prop_assert_eq!(up_to, durations.iter().filter(|us| *us <= bound).count() as u64);
            }
            prop_assert_eq!(totals.count(), durations.len() as u64);
        }
    }
}
