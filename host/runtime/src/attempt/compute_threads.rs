//! The threads that attempts compute on.
//!
//! An executor such as tokio polls tasks in the order in which they were woken. A new job would
//! wait for a slice of each of a thousand handlers that compute. So as many tasks as there are
//! cores poll all attempts, by turns in a [line](crate::attempt::compute_line).
//!
//! An attempt that has computed for longer than [`SHORT_COMPUTE_MAX`] moves to threads of a lower
//! priority, if there are any. The operating system preempts these as soon as a brief job can run,
//! even inside the handler or a host function.
//!
//! **Promise.** Between two slices of attempts, a thread runs its other tasks and its timers.
//! **Cost.** A poll through the line takes some 2 µs, mostly for waking tasks. A brief job has no
//! such poll: its task polls it first while no attempt waits, and [`FirstPolls`] bounds the time
//! that is lost when a first poll is not brief.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_task::{Builder, Runnable};
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::sharing::cores::cores;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::{coop, yield_now};
use tokio_util::task::AbortOnDropHandle;

use crate::attempt::compute_line::Line;
use crate::engine::EPOCH_TICK;
use crate::sandbox::deadline::Watch;

/// Most handlers compute for less than this in total. A handler that never ends reaches it after
/// five ticks.
const SHORT_COMPUTE_MAX: Duration = Duration::from_millis(10);

/// Brief polls take less than this. Those of the line that take less together are done in one poll
/// of the executor.
const BRIEF_MAX: Duration = Duration::from_micros(50);

/// First polls outside the line that are not brief get at most this part of the time of one core.
/// On a busy machine the operating system interrupts some brief ones, which look like these.
const LONG_FIRST_PART: u32 = 3;

/// The time of such polls that may be ahead of that.
const LONG_FIRST_AHEAD: Duration = Duration::from_millis(4);

/// Polls attempts on the runtime of the caller, and on one of a lower priority.
#[derive(Debug)]
pub(crate) struct ComputeThreads {
    lines: Arc<Lines>,
    low_priority: Option<Handle>,
    /// The first attempt starts them.
    tasks: OnceLock<Vec<AbortOnDropHandle<()>>>,
    first_polls: FirstPolls,
}

#[derive(Debug)]
struct Lines {
    normal: Arc<SharedLine>,
    low_priority: Option<Arc<SharedLine>>,
}

/// The line of the threads of one priority.
#[derive(Debug, Default)]
struct SharedLine {
    line: Mutex<Line<Runnable<Seat>>>,
    /// The length of the line, which each job reads without the lock.
    waiting: AtomicUsize,
    is_longer: Notify,
}

/// What an attempt has in the lines.
#[derive(Debug)]
struct Seat {
    endpoint: Arc<Endpoint>,
    watch: Arc<Watch>,
}

impl ComputeThreads {
    pub(crate) fn new(low_priority: Option<Handle>) -> Self {
        let of_low_priority = low_priority.as_ref().map(|_| Arc::default());
        let lines = Arc::new(Lines { normal: Arc::default(), low_priority: of_low_priority });
        Self { lines, low_priority, tasks: OnceLock::new(), first_polls: FirstPolls::default() }
    }

    /// Runs an attempt. `None` when the threads have ended. Dropping this future stops the attempt
    /// at its next turn.
    pub(crate) async fn run<F>(
        &self,
        endpoint: Arc<Endpoint>,
        watch: Arc<Watch>,
        attempt: F,
    ) -> Option<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        self.tasks.get_or_init(|| self.start());
        let (lines, none_waits) = (self.lines.clone(), self.lines.normal.is_empty());
        let (runnable, task) = Builder::new()
            .propagate_panic(true)
            .metadata(Seat { endpoint, watch })
            .spawn(move |_| attempt, move |runnable| lines.push(runnable));
        let now = Instant::now();
        if none_waits && self.first_polls.may_begin(now) {
            runnable.run();
            self.first_polls.end(now, Instant::now());
        } else {
            runnable.schedule();
        }
        task.fallible().await
    }

    fn start(&self) -> Vec<AbortOnDropHandle<()>> {
        let lower = self.low_priority.iter().zip(&self.lines.low_priority);
        let both = lower.map(|(threads, line)| (threads.clone(), line.clone()));
        let all = both.chain([(Handle::current(), self.lines.normal.clone())]);
        let each = all.flat_map(|threads| vec![threads; cores()]);
        each.map(|(threads, line)| AbortOnDropHandle::new(threads.spawn(line.serve()))).collect()
    }
}

impl Drop for ComputeThreads {
    fn drop(&mut self) {
        for line in [&self.lines.normal].into_iter().chain(&self.lines.low_priority) {
            // Dropped without the lock, since attempts wake others.
            let attempts = std::mem::take(&mut *line.line.lock());
            drop(attempts);
        }
    }
}

impl Lines {
    fn push(&self, runnable: Runnable<Seat>) {
        let is_long = || runnable.metadata().watch.computed() > SHORT_COMPUTE_MAX;
        let line = self.low_priority.as_ref().filter(|_| is_long()).unwrap_or(&self.normal);
        line.push(runnable);
    }
}

impl SharedLine {
    fn is_empty(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) == 0
    }

    fn push(&self, runnable: Runnable<Seat>) {
        let Seat { endpoint, watch } = runnable.metadata();
        let (endpoint, deadline) = (endpoint.clone(), watch.deadline());
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.line.lock().push(endpoint, deadline, runnable);
        self.is_longer.notify_one();
    }

    fn pop(&self) -> Option<Runnable<Seat>> {
        let next = self.line.lock().pop()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(next)
    }

    /// Polls one attempt after the other, for ever.
    async fn serve(self: Arc<Self>) {
        let mut batch_began = None;
        loop {
            let Some(runnable) = self.pop() else {
                self.is_longer.notified().await;
                batch_began = None;
                continue;
            };
            let began = *batch_began.get_or_insert_with(Instant::now);
            runnable.run();
            // An attempt that finds no budget would be polled in vain again and again.
            if began.elapsed() >= BRIEF_MAX || !coop::has_budget_remaining() {
                yield_now().await;
                batch_began = None;
            }
        }
    }
}

/// The first polls of attempts outside the line. Whatever handlers do, those that are not brief
/// take a [part](LONG_FIRST_PART) of one core's time at most.
#[derive(Debug)]
struct FirstPolls {
    started: Instant,
    /// The time until which they have used their part, in µs.
    used_until: AtomicU64,
}

impl Default for FirstPolls {
    fn default() -> Self {
        Self { started: Instant::now(), used_until: AtomicU64::new(0) }
    }
}

impl FirstPolls {
    fn may_begin(&self, now: Instant) -> bool {
        let ahead = LONG_FIRST_AHEAD * LONG_FIRST_PART;
        self.used_until.load(Ordering::Relaxed) <= self.micros(now + ahead)
    }

    fn end(&self, began: Instant, now: Instant) {
        let took = now - began;
        if took > BRIEF_MAX {
            // A slice ends at the next tick: a longer poll was interrupted.
            let takes = took.min(EPOCH_TICK) * LONG_FIRST_PART;
            let until = |used: u64| Some(used.max(self.micros(began)) + takes.as_micros() as u64);
            let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = self.used_until.fetch_update(set, get, until);
        }
    }

    fn micros(&self, at: Instant) -> u64 {
        u64::try_from((at - self.started).as_micros()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
#[path = "compute_threads_tests.rs"]
mod tests;
