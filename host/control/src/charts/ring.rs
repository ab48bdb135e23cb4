//! The values of one endpoint over one window: closed steps, and the step that is filled now.
//!
//! **Bounds.** As many closed steps as the window has; a step takes 64 bytes, and the open one 220.

use std::collections::VecDeque;

use gristmill_core::metrics::instruments::{DURATION_BOUNDS_US, DurationTotals};
use gristmill_core::workers::WorkerCounts;
use serde::{Deserialize, Serialize};

use super::window::Window;

const BUCKETS: usize = DURATION_BOUNDS_US.len() + 1;

/// Durations by bucket.
pub(super) type Buckets = [u32; BUCKETS];

/// The events between two samples, and the state at the second one.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Numbers of jobs: all but their delays and run times.
    pub(super) numbers: Point,
    pub(super) delay: DurationTotals,
    pub(super) run: DurationTotals,
}

/// The values of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Submitted jobs.
    pub submitted: u32,
    /// Attempts that returned.
    pub completed: u32,
    /// Attempts that failed.
    pub failed: u32,
    /// Jobs that were cancelled or purged.
    pub cancelled: u32,
    /// Attempts that reached their time limit.
    pub timed_out: u32,
    /// Most jobs that waited at one time.
    pub waiting: u32,
    /// Most jobs that ran at one time.
    pub running: u32,
    /// Most workers of each state at one time.
    pub workers: MostWorkers,
    /// The times that jobs waited.
    pub delay: Quantiles,
    /// The times that attempts ran.
    pub run: Quantiles,
}

/// Most workers of each state at one time. The states of one step can have different times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MostWorkers {
    /// They wait for a job.
    pub idle: u16,
    /// They load the component.
    pub initializing: u16,
    /// They run a job.
    pub running: u16,
    /// They wait for a sandbox.
    pub throttled: u16,
    /// They cannot run the component.
    pub unhealthy: u16,
}

impl From<WorkerCounts> for MostWorkers {
    /// An endpoint has at most [`WORKERS`](gristmill_wire::bounds::WORKERS).
    fn from(counts: WorkerCounts) -> Self {
        let number = |number: u64| u16::try_from(number).unwrap_or(u16::MAX);
        let WorkerCounts { idle, initializing, running, throttled, unhealthy } = counts;
        Self {
            idle: number(idle),
            initializing: number(initializing),
            running: number(running),
            throttled: number(throttled),
            unhealthy: number(unhealthy),
        }
    }
}

impl MostWorkers {
    fn max(self, other: Self) -> Self {
        Self {
            idle: self.idle.max(other.idle),
            initializing: self.initializing.max(other.initializing),
            running: self.running.max(other.running),
            throttled: self.throttled.max(other.throttled),
            unhealthy: self.unhealthy.max(other.unhealthy),
        }
    }
}

/// Durations that half, 95 and 99 of 100 did not exceed, in microseconds; zeros without any. They are
/// estimates, from buckets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Of half.
    pub p50: u32,
    /// Of 95 in 100.
    pub p95: u32,
    /// Of 99 in 100.
    pub p99: u32,
}

impl Quantiles {
    fn of(buckets: &Buckets) -> Self {
        let at = |part| quantile(buckets, part);
        Self { p50: at(50), p95: at(95), p99: at(99) }
    }
}

/// The duration that `percent` of the durations do not exceed; between the bounds of its bucket it is in
/// proportion. Zero if there are none.
fn quantile(buckets: &Buckets, percent: u64) -> u32 {
    let all: u64 = buckets.iter().map(|count| u64::from(*count)).sum();
    if all == 0 {
        return 0;
    }
    let rank = (all * percent).div_ceil(100).max(1);
    let mut before = 0;
    for (bucket, count) in buckets.iter().enumerate() {
        let count = u64::from(*count);
        if before + count < rank {
            before += count;
            continue;
        }
        let lower = bucket.checked_sub(1).and_then(|at| DURATION_BOUNDS_US.get(at)).unwrap_or(&0);
        // The last bucket has no upper bound.
        let upper = DURATION_BOUNDS_US.get(bucket).unwrap_or(lower);
        let us = lower + (upper - lower) * (rank - before) / count;
        return u32::try_from(us.max(1)).unwrap_or(u32::MAX);
    }
    0
}

/// The step that is filled now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) numbers: Point,
    pub(super) delay: Buckets,
    pub(super) run: Buckets,
}

impl Step {
    fn add(&mut self, Sample { numbers, delay, run }: &Sample) {
        let sum = &mut self.numbers;
        for (sum, number) in [
            (&mut sum.submitted, numbers.submitted),
            (&mut sum.completed, numbers.completed),
            (&mut sum.failed, numbers.failed),
            (&mut sum.cancelled, numbers.cancelled),
            (&mut sum.timed_out, numbers.timed_out),
        ] {
            *sum = sum.saturating_add(number);
        }
        sum.waiting = sum.waiting.max(numbers.waiting);
        sum.running = sum.running.max(numbers.running);
        sum.workers = sum.workers.max(numbers.workers);
        for (sums, added) in [(&mut self.delay, delay), (&mut self.run, run)] {
            for (sum, added) in sums.iter_mut().zip(added.buckets) {
                *sum = sum.saturating_add(u32::try_from(added).unwrap_or(u32::MAX));
            }
        }
    }

    fn point(&self) -> Point {
        Point { delay: Quantiles::of(&self.delay), run: Quantiles::of(&self.run), ..self.numbers }
    }
}

/// The rings of an endpoint, in the order of [`Window::ALL`].
pub(super) type Rings = [Ring; Window::ALL.len()];

/// The steps of one window. A step's number is its time divided by the length of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ring {
    /// The number of the open step.
    pub(super) now: u64,
    pub(super) open: Step,
    /// The closed steps before it, the oldest first.
    pub(super) closed: VecDeque<Point>,
}

impl Ring {
    pub(super) fn new(window: Window, now_ms: u64) -> Self {
        Self { now: window.step_of(now_ms), open: Step::default(), closed: VecDeque::new() }
    }

    /// Adds a sample, at a time that may be before the last one if the clock was set back.
    pub(super) fn add(&mut self, window: Window, now_ms: u64, sample: &Sample) {
        self.advance(window, now_ms);
        self.open.add(sample);
    }

    fn advance(&mut self, window: Window, now_ms: u64) {
        let to = window.step_of(now_ms);
        if to < self.now {
            // The steps after this time are forgotten: each step is there once.
            let forgotten = usize::try_from(self.now - to).unwrap_or(usize::MAX);
            self.closed.truncate(self.closed.len().saturating_sub(forgotten));
            self.now = to;
            return;
        }
        let steps = usize::try_from(to - self.now).unwrap_or(usize::MAX);
        if steps == 0 {
            return;
        }
        self.closed.push_back(std::mem::take(&mut self.open).point());
        let empty = (steps - 1).min(window.steps());
        self.closed.extend(std::iter::repeat_n(Point::default(), empty));
        let surplus = self.closed.len().saturating_sub(window.steps());
        self.closed.drain(..surplus);
        self.now = to;
    }

    /// The closed steps and, in the coarse windows, the open one; the oldest first, with the number of the
    /// first one.
    pub(super) fn points(&self, window: Window) -> (u64, Vec<Point>) {
        let first = self.now.saturating_sub(self.closed.len() as u64);
        let open = (window != Window::Minutes15).then(|| self.open.point());
        (first, self.closed.iter().copied().chain(open).collect())
    }

    /// Whether a ring that was read from a file keeps the bounds.
    pub(super) fn is_sound(&self, window: Window) -> bool {
        self.closed.len() <= window.steps() && self.now >= self.closed.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WINDOW: Window = Window::Minutes15;
    const STEP: u64 = 10_000;

    fn sample(submitted: u32) -> Sample {
        let counts = WorkerCounts { idle: submitted.into(), ..WorkerCounts::default() };
        let workers = counts.into();
        Sample {
            numbers: Point { submitted, waiting: submitted, workers, ..Point::default() },
            ..Sample::default()
        }
    }

    fn submitted(ring: &Ring) -> (u64, Vec<u32>) {
        let (first, points) = ring.points(WINDOW);
        (first, points.iter().map(|point| point.submitted).collect())
    }

    #[test]
    fn each_step_has_the_sum_of_its_samples_and_a_gap_is_empty() {
        let mut ring = Ring::new(WINDOW, 100 * STEP);
        for (at, number) in [(100 * STEP, 1), (100 * STEP + 9_999, 2), (101 * STEP, 4)] {
            ring.add(WINDOW, at, &sample(number));
        }
        assert_eq!(submitted(&ring), (100, vec![3]), "the open step is not shown");
        ring.add(WINDOW, 104 * STEP, &sample(8));
        assert_eq!(submitted(&ring), (100, vec![3, 4, 0, 0]));
        let most = ring.points(WINDOW).1[0].waiting;
        assert_eq!(most, 2, "of a state it has the largest value");
        let idle = |ring: &Ring| {
            ring.points(WINDOW).1.iter().map(|at| at.workers.idle).collect::<Vec<_>>()
        };
        assert_eq!(idle(&ring), [2, 4, 0, 0]);
        ring.add(WINDOW, 10_000 * STEP, &sample(0));
        assert_eq!(submitted(&ring), (10_000 - 90, vec![0; 90]));
        ring.add(WINDOW, u64::MAX, &sample(0));
        assert_eq!(submitted(&ring).1, vec![0; 90]);
    }

    #[test]
    fn the_steps_after_the_time_of_a_clock_that_is_set_back_are_dropped() {
        let mut ring = Ring::new(WINDOW, 100 * STEP);
        (100..110).for_each(|step| ring.add(WINDOW, step * STEP, &sample(1)));
        ring.add(WINDOW, 105 * STEP, &sample(1));
        assert_eq!(submitted(&ring), (100, vec![1; 5]));
        ring.add(WINDOW, 106 * STEP, &sample(0));
        assert_eq!(submitted(&ring).1.last(), Some(&2), "the open step goes on");
        ring.add(WINDOW, 0, &sample(1));
        assert_eq!(submitted(&ring), (0, vec![]));
    }

    #[test]
    fn quantiles_are_between_the_bounds_of_their_bucket() {
        let of = |durations: &[(usize, u32)]| {
            let mut buckets = [0; BUCKETS];
            durations.iter().for_each(|(bucket, count)| buckets[*bucket] = *count);
            let Quantiles { p50, p95, p99 } = Quantiles::of(&buckets);
            [p50, p95, p99]
        };
        assert_eq!(of(&[]), [0; 3]);
        assert_eq!(of(&[(0, 1)]), [250; 3]);
        assert_eq!(of(&[(0, 100)]), [125, 237, 247]);
        // 90 of at most 1 ms, 10 between 1 and 2.5 s.
        assert_eq!(of(&[(2, 90), (12, 10)]), [777, 1_750_000, 2_350_000]);
        // Longer than an hour.
        assert_eq!(of(&[(20, 3)]), [3_600_000_000; 3]);
        assert_eq!(of(&[(20, u32::MAX), (0, u32::MAX)]), [250, 3_600_000_000, 3_600_000_000]);
    }

    proptest! {
        #[test]
        fn no_sequence_of_times_breaks_the_bounds(
            times in proptest::collection::vec(0..2_000_000_u64, 0..100),
        ) {
            let mut ring = Ring::new(WINDOW, 1_000_000);
            for at in times {
                ring.add(WINDOW, at, &sample(1));
                prop_assert!(ring.is_sound(WINDOW));
                let (first, points) = ring.points(WINDOW);
                prop_assert_eq!(first + points.len() as u64, at / STEP);
            }
        }
    }
}
