//! Counters and durations of one endpoint's jobs, for the metrics that operators collect.
//!
//! They belong to the endpoint's [incarnation](crate::endpoint::EndpointIncarnation), so the code of a job
//! reaches them without a lookup. They count from the creation of the endpoint, or the start of the
//! host, and are never reset.
//!
//! **Cost.** About 700 bytes for each endpoint, and some ten additions to atomic numbers for each job.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of one endpoint.
#[derive(Debug, Default)]
pub struct EndpointMetrics {
    submitted: [Counter; SubmittedBy::ALL.len()],
    refused: [Counter; RefusedFor::ALL.len()],
    finished: [Counter; FinishedAs::ALL.len()],
    requeued: Counter,
    chunks: Counter,
    log_lines_dropped: Counter,
    wait: Durations,
    run: Durations,
    cpu: Durations,
}

/// The operation that submitted a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmittedBy {
    /// `/run`.
    Run,
    /// `/runsync`, and the OpenAI routes, which wait for their jobs too.
    RunSync,
}

/// The limit that refused a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedFor {
    /// Too many calls in ten seconds.
    RateLimited,
    /// Too many calls at one time.
    ConcurrencyLimited,
    /// A bound on jobs and their data.
    QueueFull,
    /// The disk has no room.
    DiskFull,
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishedAs {
    /// The handler returned.
    Completed,
    /// The handler failed.
    Failed,
    /// The attempt reached its executionTimeout.
    TimedOut,
}

/// Defines the labels of a dimension: all values, and their texts.
macro_rules! labels {
    ($type:ident { $($value:ident: $text:literal),* $(,)? }) => {
        impl $type {
            /// All values.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$value),*];

            /// The value of the label.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $text,)* }
            }
        }
    };
}

labels!(SubmittedBy { Run: "run", RunSync: "runsync" });
labels!(RefusedFor {
    RateLimited: "rate_limited",
    ConcurrencyLimited: "concurrency_limited",
    QueueFull: "queue_full",
    DiskFull: "disk_full",
});
labels!(FinishedAs { Completed: "completed", Failed: "failed", TimedOut: "timed_out" });

/// The measured values of an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttemptValues {
    /// Microseconds in which the handler ran.
    pub run_us: u64,
    /// Microseconds in which the handler held a processor.
    pub cpu_us: u64,
    /// Chunks emitted.
    pub chunks: u64,
    /// Log lines beyond the bound of an attempt.
    pub log_lines_dropped: u64,
}

impl EndpointMetrics {
    /// Counts an accepted submission.
    pub fn submitted(&self, by: SubmittedBy) {
        add(&self.submitted, by as usize, 1);
    }

    /// Counts a refused submission.
    pub fn refused(&self, why: RefusedFor) {
        add(&self.refused, why as usize, 1);
    }

    /// Counts an attempt that begins, `waited_us` microseconds after its job was queued.
    pub fn started(&self, waited_us: u64) {
        self.wait.record(waited_us);
    }

    /// Counts an attempt that has ended, with or without a result.
    pub fn ended(&self, values: AttemptValues) {
        self.run.record(values.run_us);
        self.cpu.record(values.cpu_us);
        self.chunks.add(values.chunks);
        self.log_lines_dropped.add(values.log_lines_dropped);
    }

    /// Counts a result that the store has accepted.
    pub fn finished(&self, status: FinishedAs) {
        add(&self.finished, status as usize, 1);
    }

    /// Counts a job that was queued again, by a retry or because its attempt was released.
    pub fn requeued(&self) {
        self.requeued.add(1);
    }

    /// The present values.
    pub fn totals(&self) -> EndpointTotals {
        EndpointTotals {
            submitted: self.submitted.each_ref().map(Counter::get),
            refused: self.refused.each_ref().map(Counter::get),
            finished: self.finished.each_ref().map(Counter::get),
            requeued: self.requeued.get(),
            chunks: self.chunks.get(),
            log_lines_dropped: self.log_lines_dropped.get(),
            wait: self.wait.totals(),
            run: self.run.totals(),
            cpu: self.cpu.totals(),
        }
    }
}

/// The values of the counters at one time, or the sum over several endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointTotals {
    /// Accepted submissions, in the order of [`SubmittedBy::ALL`].
    pub submitted: [u64; SubmittedBy::ALL.len()],
    /// Refused submissions, in the order of [`RefusedFor::ALL`].
    pub refused: [u64; RefusedFor::ALL.len()],
    /// Results, in the order of [`FinishedAs::ALL`].
    pub finished: [u64; FinishedAs::ALL.len()],
    /// Jobs that were queued again.
    pub requeued: u64,
    /// Chunks of streams.
    pub chunks: u64,
    /// Log lines beyond the bound of an attempt.
    pub log_lines_dropped: u64,
    /// Time between queueing and start of each attempt.
    pub wait: DurationTotals,
    /// Run time of each attempt.
    pub run: DurationTotals,
    /// Processor time of each attempt.
    pub cpu: DurationTotals,
}

impl EndpointTotals {
    /// Adds the values of another endpoint.
    pub fn add(&mut self, other: &Self) {
        add_all(&mut self.submitted, &other.submitted);
        add_all(&mut self.refused, &other.refused);
        add_all(&mut self.finished, &other.finished);
        self.requeued += other.requeued;
        self.chunks += other.chunks;
        self.log_lines_dropped += other.log_lines_dropped;
        self.wait.add(&other.wait);
        self.run.add(&other.run);
        self.cpu.add(&other.cpu);
    }

    /// The counts of the same endpoint since it had these `earlier` values.
    pub fn since(mut self, earlier: &Self) -> Self {
        subtract_all(&mut self.submitted, &earlier.submitted);
        subtract_all(&mut self.refused, &earlier.refused);
        subtract_all(&mut self.finished, &earlier.finished);
        self.requeued = self.requeued.saturating_sub(earlier.requeued);
        self.chunks = self.chunks.saturating_sub(earlier.chunks);
        self.log_lines_dropped = self.log_lines_dropped.saturating_sub(earlier.log_lines_dropped);
        self.wait.subtract(&earlier.wait);
        self.run.subtract(&earlier.run);
        self.cpu.subtract(&earlier.cpu);
        self
    }
}

fn subtract_all(numbers: &mut [u64], values: &[u64]) {
    for (number, value) in numbers.iter_mut().zip(values) {
        *number = number.saturating_sub(*value);
    }
}

fn add_all(sums: &mut [u64], values: &[u64]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

/// A number that only grows.
#[derive(Debug, Default)]
struct Counter(AtomicU64);

impl Counter {
    fn add(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn add(counters: &[Counter], index: usize, number: u64) {
    if let Some(counter) = counters.get(index) {
        counter.add(number);
    }
}

/// Upper bounds of the buckets of durations, in microseconds: from a quarter of a millisecond, since
/// a small handler runs about as long, to an hour. Longer durations have a bucket too.
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
struct Durations {
    buckets: [Counter; BUCKETS],
    sum_us: Counter,
}

impl Default for Durations {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| Counter::default()), sum_us: Counter::default() }
    }
}

impl Durations {
    fn record(&self, us: u64) {
        let bucket = DURATION_BOUNDS_US.partition_point(|bound| *bound < us);
        add(&self.buckets, bucket, 1);
        self.sum_us.add(us);
    }

    fn totals(&self) -> DurationTotals {
        DurationTotals {
            buckets: self.buckets.each_ref().map(Counter::get),
            sum_us: self.sum_us.get(),
        }
    }
}

/// Numbers of durations by bucket, and their sum.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DurationTotals {
    /// Durations up to each of [`DURATION_BOUNDS_US`] and above the bound before it, then those above
    /// the last bound.
    pub buckets: [u64; BUCKETS],
    /// The sum of all durations, in microseconds.
    pub sum_us: u64,
}

impl DurationTotals {
    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn add(&mut self, other: &Self) {
        add_all(&mut self.buckets, &other.buckets);
        self.sum_us += other.sum_us;
    }

    fn subtract(&mut self, earlier: &Self) {
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

    #[test]
    fn each_event_is_counted_once_and_under_its_label() {
        let metrics = EndpointMetrics::default();
        for by in [SubmittedBy::Run, SubmittedBy::RunSync, SubmittedBy::RunSync] {
            metrics.submitted(by);
        }
        for (why, times) in RefusedFor::ALL.into_iter().zip(1..) {
            (0..times).for_each(|_| metrics.refused(why));
        }
        metrics.started(7);
        metrics.requeued();
        metrics.ended(AttemptValues { run_us: 300, cpu_us: 200, chunks: 5, log_lines_dropped: 2 });
        for (status, times) in FinishedAs::ALL.into_iter().zip([1, 2, 1]) {
            (0..times).for_each(|_| metrics.finished(status));
        }
        let totals = metrics.totals();
        assert_eq!(totals.submitted, [1, 2]);
        assert_eq!(totals.refused, [1, 2, 3, 4]);
        assert_eq!(totals.finished, [1, 2, 1]);
        assert_eq!((totals.chunks, totals.log_lines_dropped, totals.requeued), (5, 2, 1));
        assert_eq!((totals.wait.sum_us, totals.run.sum_us, totals.cpu.sum_us), (7, 300, 200));
        let mut twice = totals.clone();
        twice.add(&totals);
        assert_eq!(twice.finished, [2, 4, 2]);
        assert_eq!((twice.run.sum_us, twice.run.count()), (600, 2));
        assert_eq!(twice.clone().since(&totals), totals);
        assert_eq!(twice.clone().since(&twice), EndpointTotals::default());
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
