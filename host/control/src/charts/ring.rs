//! The values of one endpoint over one window: closed steps, and the step that is filled now.
//!
//! Beside the steps a ring has the run times of longer parts of the window, for percentiles over
//! all of it.
//!
//! **Bounds.** As many closed steps and parts as the window has. A closed step takes 88 bytes; a
//! closed part has one [`Spread`], and what is open has three.

use std::collections::VecDeque;

use gristmill_core::metrics::spread::Spread;
use gristmill_core::workers::WorkerCounts;
use minicbor::{Decode, Encode};

use super::window::Window;

/// The events between two samples, and the state at the second one.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Numbers of jobs: all but their delays and run times.
    pub(super) numbers: Point,
    pub(super) delay: Spread,
    pub(super) run: Spread,
}

/// The values of one step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct Point {
    /// Submitted jobs.
    #[n(0)]
    pub submitted: u32,
    /// Attempts that returned.
    #[n(1)]
    pub completed: u32,
    /// Attempts that failed.
    #[n(2)]
    pub failed: u32,
    /// Jobs that were cancelled or purged.
    #[n(3)]
    pub cancelled: u32,
    /// Attempts that reached their time limit.
    #[n(4)]
    pub timed_out: u32,
    /// Most jobs that waited at one time.
    #[n(5)]
    pub waiting: u32,
    /// Most jobs that ran at one time.
    #[n(6)]
    pub running: u32,
    /// Most workers of each state at one time.
    #[n(7)]
    pub workers: MostWorkers,
    /// The times that jobs waited.
    #[n(8)]
    pub delay: Quantiles,
    /// The times that attempts ran.
    #[n(9)]
    pub run: Quantiles,
}

/// Most workers of each state at one time. The states of one step can have different times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct MostWorkers {
    /// They wait for a job.
    #[n(0)]
    pub idle: u16,
    /// They load the component.
    #[n(1)]
    pub initializing: u16,
    /// They run a job.
    #[n(2)]
    pub running: u16,
    /// They wait for a sandbox.
    #[n(3)]
    pub throttled: u16,
    /// They cannot run the component.
    #[n(4)]
    pub unhealthy: u16,
}

impl From<WorkerCounts> for MostWorkers {
    /// An endpoint has at most as many as the bound of its setting `workersMax`.
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

/// Durations that half, 95 and 99 of 100 did not exceed, in microseconds, with an error of 6 % at
/// most; zeros without any.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
pub struct Quantiles {
    /// Of half.
    #[n(0)]
    pub p50: u64,
    /// Of 95 in 100.
    #[n(1)]
    pub p95: u64,
    /// Of 99 in 100.
    #[n(2)]
    pub p99: u64,
}

impl Quantiles {
    fn of(durations: &Spread) -> Self {
        let [p50, p95, p99] = [50, 95, 99].map(|percent| durations.percentile(percent));
        Self { p50, p95, p99 }
    }
}

/// The step that is filled now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub(super) struct Step {
    #[n(0)]
    pub(super) numbers: Point,
    #[n(1)]
    pub(super) delay: Spread,
    #[n(2)]
    pub(super) run: Spread,
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
        self.delay.add(delay);
        self.run.add(run);
    }

    fn point(&self) -> Point {
        Point { delay: Quantiles::of(&self.delay), run: Quantiles::of(&self.run), ..self.numbers }
    }
}

/// The rings of an endpoint, in the order of [`Window::ALL`].
pub(super) type Rings = [Ring; Window::ALL.len()];

/// The steps of one window. A step's number is its time divided by the length of a step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
pub(super) struct Ring {
    /// The number of the open step.
    #[n(0)]
    pub(super) now: u64,
    #[n(1)]
    pub(super) open: Step,
    /// The closed steps before it, the oldest first.
    #[n(2)]
    pub(super) closed: VecDeque<Point>,
    /// The run times of the part that the open step belongs to, with those of this step.
    #[n(3)]
    pub(super) open_part: Spread,
    /// Those of the closed parts before it, the oldest first.
    #[n(4)]
    pub(super) closed_parts: VecDeque<Spread>,
}

/// Moves the end of closed values from one number to another one. Values after an earlier end are
/// forgotten, so that each number is there once; a gap gets default values.
fn advance<T: Clone + Default>(
    closed: &mut VecDeque<T>,
    (from, to): (u64, u64),
    closed_max: usize,
    close: impl FnOnce() -> T,
) {
    if to < from {
        let forgotten = usize::try_from(from - to).unwrap_or(usize::MAX);
        closed.truncate(closed.len().saturating_sub(forgotten));
    } else if to > from {
        closed.push_back(close());
        let empty = usize::try_from(to - from - 1).unwrap_or(usize::MAX).min(closed_max);
        closed.extend(std::iter::repeat_n(T::default(), empty));
        let surplus = closed.len().saturating_sub(closed_max);
        closed.drain(..surplus);
    }
}

impl Ring {
    pub(super) fn new(window: Window, now_ms: u64) -> Self {
        Self { now: window.step_of(now_ms), ..Self::default() }
    }

    /// Adds a sample, at a time that may be before the last one if the clock was set back.
    pub(super) fn add(&mut self, window: Window, now_ms: u64, sample: &Sample) {
        self.advance(window, now_ms);
        self.open.add(sample);
        self.open_part.add(&sample.run);
    }

    fn advance(&mut self, window: Window, now_ms: u64) {
        let to = window.step_of(now_ms);
        let Self { now, open, closed, open_part, closed_parts } = self;
        let parts = (*now / window.part_steps(), to / window.part_steps());
        advance(closed, (*now, to), window.steps(), || std::mem::take(open).point());
        advance(closed_parts, parts, window.parts(), || std::mem::take(open_part));
        *now = to;
    }

    /// The closed steps and, in the coarse windows, the open one; the oldest first, with the number
    /// of the first one.
    pub(super) fn points(&self, window: Window) -> (u64, Vec<Point>) {
        let first = self.now.saturating_sub(self.closed.len() as u64);
        let open = (window != Window::Minutes15).then(|| self.open.point());
        (first, self.closed.iter().copied().chain(open).collect())
    }

    /// The run times of the whole window, and of up to one part more before it.
    pub(super) fn run(&self) -> Quantiles {
        let mut all = self.open_part.clone();
        self.closed_parts.iter().for_each(|part| all.add(part));
        Quantiles::of(&all)
    }

    /// Whether a ring that was read from a file keeps the bounds.
    pub(super) fn is_sound(&self, window: Window) -> bool {
        let Self { now, open, closed, open_part, closed_parts } = self;
        let mut spreads = [&open.delay, &open.run, open_part].into_iter().chain(closed_parts);
        closed.len() <= window.steps()
            && *now >= closed.len() as u64
            && closed_parts.len() <= window.parts()
            && spreads.all(Spread::is_sound)
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
