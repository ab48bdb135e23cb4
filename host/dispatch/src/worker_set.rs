//! Counts the workers of one endpoint. Pure bookkeeping: every call is quick, and none waits.
//!
//! No job is forgotten, because a worker *registers* for a wake-up before it checks the queue, and
//! `idle` counts exactly the workers that sleep and have not been woken. A wake-up removes its
//! worker from that count, so two wake-ups never reach the same sleeper. A job that arrives while
//! no worker sleeps is counted in `missed_wakeups`: a worker that found the queue empty checks it
//! again before it sleeps, if this count has grown meanwhile.
//!
//! Of the workers that `workersMin` keeps while there are no jobs, one is a task, which prepares
//! the component; the others are only a number. Each job starts one of them at once, whatever the
//! scaler says, so callers see no difference: a task starts in microseconds. An endpoint without
//! jobs costs one task at most.
//!
//! At most [`THROTTLED_MAX`] workers of an endpoint wait for a sandbox, however many jobs wait, and
//! no worker is started meanwhile: otherwise each waiting job of each endpoint would cost a task.
//! The set remembers that it is short of workers, and the next worker that begins a job starts
//! another one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gristmill_core::deploy::endpoint::{Scaler, Scaling};
use gristmill_core::workers::{self, WorkerCounts};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// Most workers of an endpoint that wait for a sandbox at one time. A single one would make a
/// worker end, and another one start, each time when two jobs end together.
const THROTTLED_MAX: u32 = 2;

/// Most workers that one look at the queue starts. Each of them may start another one when it
/// begins a job, so the number of workers still doubles with each round.
pub(crate) const STARTED_AT_ONCE_MAX: u32 = 16;

/// The workers of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct WorkerSet {
    state: Mutex<State>,
    wake: Notify,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    alive: u32,
    idle: u32,
    /// The workers that have read their endpoint, by their numbers.
    listed: BTreeMap<u64, workers::Worker>,
    /// Workers that were started and have not looked for a job yet: each will take one of those that
    /// wait.
    starting: u32,
    /// Workers that ended because enough others waited for a sandbox. They are started again once
    /// there are sandboxes, as far as jobs wait, whatever the scaler says.
    ended_for_room: u32,
    /// Jobs that arrived while no worker slept and no worker was started.
    missed_wakeups: u64,
    initializing: u32,
    running: u32,
    /// Workers that wait for a sandbox, because the host runs its maximum.
    throttled: u32,
    /// Fewer workers were started than `workersMax` allows for the jobs, since others waited for a
    /// sandbox, could not prepare the component, or were enough for a start.
    is_short: bool,
    /// A watcher will soon check whether the queue needs another worker.
    is_watched: bool,
    /// Workers that could not prepare the component and will try again. While there is one, no
    /// worker is started.
    unhealthy: u32,
    /// Why the last attempt to prepare the component failed.
    fault: Option<String>,
}

/// The action that a waiting job requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Demand {
    /// Start one worker, which is counted already.
    StartWorker,
    /// Start a watcher: only the queue shows whether another worker is needed.
    Watch,
    /// None: a worker was woken, or the maximum is running.
    Nothing,
}

/// Whether a worker that found no sandbox waits for one.
pub(crate) enum Throttle<'a> {
    /// It waits, and is counted.
    Waits(Throttled<'a>),
    /// It ends, and is no longer counted: enough workers wait already.
    Ends,
}

/// Whether a worker may end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Retire {
    /// It may end, and is no longer counted.
    Yes,
    /// It must stay.
    No,
}

/// The fate of a worker that slept for its idle timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idle {
    /// It ends, and is no longer counted.
    Retires,
    /// A wake-up for it is under way, or reached an awake worker, which then counts as idle in its
    /// place: it continues to sleep until its wake-up comes.
    Woken,
    /// It is the one task that `workers_min` keeps, and continues to sleep.
    Stays,
}

/// The count of missed wake-ups when a worker checked the queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MissedWakeups(u64);

/// Whether a worker that found no job may sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sleep {
    /// It may sleep, and is counted as idle.
    Yes,
    /// A job arrived: it must check again.
    No,
}

impl WorkerSet {
    /// A job waits: wakes an idle worker, or asks for another worker if there may be one.
    pub(crate) fn job_ready(&self, scaling: Scaling, may_start_worker: bool) -> Demand {
        let mut state = self.state.lock();
        if state.idle > 0 {
            state.idle -= 1;
            drop(state);
            self.wake.notify_one();
            return Demand::Nothing;
        }
        if state.alive >= scaling.workers_max {
            state.missed_wakeups += 1;
            return Demand::Nothing;
        }
        if state.alive < scaling.workers_min {
            return state.start_unless_held_up();
        }
        if !may_start_worker {
            state.missed_wakeups += 1;
            return Demand::Nothing;
        }
        // The job must wait for another reason than that there are enough workers.
        if state.alive > 0 && scaling.scaler != Scaler::default() {
            state.missed_wakeups += 1;
            let is_watched = std::mem::replace(&mut state.is_watched, true);
            return if is_watched { Demand::Nothing } else { Demand::Watch };
        }
        state.start_unless_held_up()
    }

    /// The watcher is about to check the queue; a job that arrives from now on starts another
    /// watcher.
    pub(crate) fn unwatch(&self) {
        self.state.lock().is_watched = false;
    }

    /// Marks the endpoint as watched. True if it was not watched before.
    pub(crate) fn watch(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_watched, true)
    }

    /// A job has waited too long: whether to start one more worker, which is counted already.
    pub(crate) fn grow(&self, scaling: Scaling) -> Demand {
        let mut state = self.state.lock();
        if state.is_held_up() || state.idle > 0 || state.alive >= scaling.workers_max {
            return Demand::Nothing;
        }
        state.start_worker()
    }

    /// A worker begins a job: whether it should look for jobs that need another worker, since the
    /// set was short of workers and no longer waits for a sandbox.
    pub(crate) fn take_shortage(&self) -> bool {
        let mut state = self.state.lock();
        !state.is_held_up() && std::mem::take(&mut state.is_short)
    }

    /// The endpoint is new or has changed: number of workers to start for `claimable` jobs;
    /// `demand` of these jobs may start a worker beyond `workersMin`. The workers are counted
    /// already.
    pub(crate) fn refresh(&self, scaling: Scaling, demand: u64, claimable: u64) -> u32 {
        self.state.lock().fault = None;
        let missing = self.missing(scaling, demand, claimable, STARTED_AT_ONCE_MAX);
        // The workers check the queue, and their new bounds, once.
        self.wake_all();
        missing
    }

    /// Number of workers to start for `claimable` jobs, at most `at_most`; `demand` of these jobs
    /// may start a worker beyond `workersMin`. The workers are counted already.
    pub(crate) fn missing(
        &self,
        scaling: Scaling,
        demand: u64,
        claimable: u64,
        at_most: u32,
    ) -> u32 {
        let mut state = self.state.lock();
        let [demand, claimable] =
            [demand, claimable].map(|jobs| u32::try_from(jobs).unwrap_or(u32::MAX));
        // An awake worker has a job, perhaps for a long time; a worker that was just started, or
        // waits for a sandbox, will take one of the waiting jobs.
        let busy = state.alive.saturating_sub(state.idle + state.throttled + state.starting);
        state.ended_for_room = state.ended_for_room.min(claimable);
        let wanted = match scaling.scaler {
            Scaler::RequestCount(jobs) => demand.saturating_add(busy).div_ceil(jobs.max(1)),
            // Further workers are started when the first jobs have waited too long.
            Scaler::QueueDelay(_) => state.alive.max(demand.min(1)),
        };
        let kept = scaling.workers_min.min(claimable.saturating_add(busy).max(1));
        let before = state.alive.saturating_add(state.ended_for_room);
        let wanted = wanted.max(kept).max(before).min(scaling.workers_max);
        let missing = wanted.saturating_sub(state.alive);
        let started = if state.is_held_up() { 0 } else { missing.min(at_most) };
        state.ended_for_room = state.ended_for_room.saturating_sub(started);
        state.is_short |= missing > started;
        for _ in 0..started {
            state.start_worker();
        }
        started
    }

    /// Wakes every worker, so that it notices a change of its endpoint, or a drain.
    pub(crate) fn wake_all(&self) {
        let mut state = self.state.lock();
        for _ in 0..std::mem::take(&mut state.idle) {
            self.wake.notify_one();
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// The next [`WorkerSet::wake_all`] after this call.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// A wake-up that counts from now on; call this before checking the queue.
    pub(crate) fn wake_up(&self) -> Notified<'_> {
        self.wake.notified()
    }

    /// A worker is about to check the queue.
    pub(crate) fn observe_queue(&self) -> MissedWakeups {
        MissedWakeups(self.state.lock().missed_wakeups)
    }

    /// A worker found no job and is about to sleep, unless a job arrived meanwhile.
    pub(crate) fn try_sleep(&self, observed: MissedWakeups) -> Sleep {
        let mut state = self.state.lock();
        if state.missed_wakeups != observed.0 {
            return Sleep::No;
        }
        state.idle += 1;
        Sleep::Yes
    }

    /// A worker slept for its idle timeout.
    pub(crate) fn after_idle_timeout(&self, scaling: Scaling) -> Idle {
        let mut state = self.state.lock();
        if state.idle == 0 {
            return Idle::Woken; // like all sleepers
        }
        if state.alive > scaling.workers_min.min(1) {
            state.idle -= 1;
            state.alive -= 1;
            return Idle::Retires;
        }
        Idle::Stays
    }

    /// An awake worker asks whether there are too many workers. It may have been woken for a job;
    /// then another worker is woken for that job instead.
    pub(crate) fn retire_surplus(&self, scaling: Scaling) -> Retire {
        let mut state = self.state.lock();
        if state.alive <= scaling.workers_max {
            return Retire::No;
        }
        state.alive -= 1;
        if state.idle > 0 {
            state.idle -= 1;
            self.wake.notify_one();
        } else {
            state.missed_wakeups += 1;
        }
        Retire::Yes
    }

    /// An awake worker that found no job ends, unless a job arrived meanwhile.
    pub(crate) fn try_retire(&self, observed: MissedWakeups) -> Retire {
        let mut state = self.state.lock();
        if state.missed_wakeups != observed.0 {
            return Retire::No;
        }
        state.alive -= 1;
        Retire::Yes
    }

    /// An awake worker has ended.
    pub(crate) fn remove_worker(&self) {
        self.state.lock().alive -= 1;
    }

    /// Counts a worker as preparing its component until the guard is dropped.
    pub(crate) fn initializing(&self) -> impl Drop + use<'_> {
        self.state.lock().initializing += 1;
        Guard(self, |state| state.initializing -= 1)
    }

    /// Counts a worker as running a job until the guard is dropped.
    pub(crate) fn running(&self) -> impl Drop + use<'_> {
        self.state.lock().running += 1;
        Guard(self, |state| state.running -= 1)
    }

    /// A worker found no sandbox. It is counted as waiting for one until the guard is dropped,
    /// unless enough workers wait already.
    pub(crate) fn throttle(&self) -> Throttle<'_> {
        let mut state = self.state.lock();
        if state.throttled >= THROTTLED_MAX {
            state.alive -= 1;
            state.ended_for_room += 1;
            state.is_short = true;
            return Throttle::Ends;
        }
        state.throttled += 1;
        Throttle::Waits(Throttled { set: self, has_left: AtomicBool::new(false) })
    }

    /// The component cannot be prepared: counts a worker as unhealthy until the guard is dropped.
    /// Also returns whether the reason is another one than before.
    pub(crate) fn unhealthy(&self, reason: String) -> (impl Drop + use<'_>, bool) {
        let mut state = self.state.lock();
        state.unhealthy += 1;
        let is_new = state.fault.as_ref() != Some(&reason);
        state.fault = Some(reason);
        (Guard(self, |state| state.unhealthy -= 1), is_new)
    }

    /// The component can be prepared.
    pub(crate) fn clear_fault(&self) {
        self.state.lock().fault = None;
    }

    /// Why the component cannot be prepared.
    pub(crate) fn fault(&self) -> Option<String> {
        self.state.lock().fault.clone()
    }

    /// Number of workers.
    pub(crate) fn alive(&self) -> u32 {
        self.state.lock().alive
    }

    /// Lists a worker, or changes its entry.
    pub(crate) fn show(&self, number: u64, worker: workers::Worker) {
        self.state.lock().listed.insert(number, worker);
    }

    /// Removes a worker from the list.
    pub(crate) fn hide(&self, number: u64) {
        self.state.lock().listed.remove(&number);
    }

    /// The listed workers, in the order in which they were started.
    pub(crate) fn list(&self) -> Vec<workers::Worker> {
        self.state.lock().listed.values().cloned().collect()
    }

    /// The workers by state.
    pub(crate) fn counts(&self, scaling: Scaling) -> WorkerCounts {
        let state = self.state.lock();
        let busy = state.running + state.initializing + state.throttled + state.unhealthy;
        let kept = match state.fault {
            Some(_) => 0,
            None => scaling.workers_min.min(scaling.workers_max),
        };
        WorkerCounts {
            // A worker that was woken and has not claimed a job yet is idle too, and so are the
            // kept workers that are only a number.
            idle: u64::from(state.alive.max(kept).saturating_sub(busy)),
            initializing: u64::from(state.initializing),
            running: u64::from(state.running),
            throttled: u64::from(state.throttled),
            unhealthy: u64::from(state.unhealthy),
        }
    }
}

impl State {
    /// Whether workers wait for a sandbox, or cannot prepare the component: then no worker is
    /// started.
    fn is_held_up(&self) -> bool {
        self.unhealthy > 0 || self.throttled > 0
    }

    fn start_unless_held_up(&mut self) -> Demand {
        if self.is_held_up() {
            self.missed_wakeups += 1;
            self.is_short = true;
            return Demand::Nothing;
        }
        self.start_worker()
    }

    fn start_worker(&mut self) -> Demand {
        self.alive += 1;
        self.starting += 1;
        Demand::StartWorker
    }
}

/// A worker that was started, until it looks for a job.
#[derive(Debug)]
pub(crate) struct Starting(pub(crate) Arc<WorkerSet>);

impl Drop for Starting {
    fn drop(&mut self) {
        self.0.state.lock().starting -= 1;
    }
}

/// A worker that waits for a sandbox.
pub(crate) struct Throttled<'a> {
    set: &'a WorkerSet,
    has_left: AtomicBool,
}

impl Throttled<'_> {
    /// Before a check of the queue.
    pub(crate) fn observe_queue(&self) -> MissedWakeups {
        self.set.observe_queue()
    }

    /// Ends the worker if more of them wait for a sandbox than jobs can be claimed, unless
    /// `workersMin` keeps it.
    /// `observed` is of a moment before `claimable`: a job that came since then may need this worker.
    pub(crate) fn leaves_surplus(
        &self,
        observed: MissedWakeups,
        claimable: u64,
        scaling: Scaling,
    ) -> Retire {
        let mut state = self.set.state.lock();
        if state.missed_wakeups != observed.0
            || u64::from(state.throttled) <= claimable
            || state.alive <= scaling.workers_min
        {
            return Retire::No;
        }
        state.throttled -= 1;
        state.alive -= 1;
        self.has_left.store(true, Ordering::Relaxed);
        Retire::Yes
    }
}

impl Drop for Throttled<'_> {
    fn drop(&mut self) {
        if !self.has_left.load(Ordering::Relaxed) {
            self.set.state.lock().throttled -= 1;
        }
    }
}

struct Guard<'a>(&'a WorkerSet, fn(&mut State));

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        (self.1)(&mut self.0.state.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALING: Scaling = Scaling {
        workers_min: 1,
        workers_max: 2,
        paused: false,
        idle_timeout_s: 5,
        scaler: Scaler::RequestCount(1),
    };

    #[test]
    fn the_set_grows_to_its_maximum_and_no_further() {
        let set = WorkerSet::default();
        let demands = [(); 3].map(|()| set.job_ready(SCALING, true));
        assert_eq!(demands, [Demand::StartWorker, Demand::StartWorker, Demand::Nothing]);
    }

    #[test]
    fn other_scalers_start_the_first_and_watch_for_more() {
        let set = WorkerSet::default();
        let slow = Scaling { scaler: Scaler::QueueDelay(4), ..SCALING };
        let demands = [(); 3].map(|()| set.job_ready(slow, true));
        assert_eq!(demands, [Demand::StartWorker, Demand::Watch, Demand::Nothing]);
        set.unwatch();
        assert_eq!(set.job_ready(slow, true), Demand::Watch);
        assert!(!set.watch(), "somebody does");
        assert_eq!(set.grow(slow), Demand::StartWorker);
        assert_eq!(set.grow(slow), Demand::Nothing, "workersMax");
    }

    #[test]
    fn a_refresh_follows_the_scaler() {
        let scaling = |scaler| Scaling { workers_min: 0, workers_max: 9, scaler, ..SCALING };
        let refreshed =
            |scaler, demand| WorkerSet::default().refresh(scaling(scaler), demand, demand);
        assert_eq!(
            [0, 1, 4, 5, 99].map(|n| refreshed(Scaler::RequestCount(4), n)),
            [0, 1, 1, 2, 9]
        );
        assert_eq!([0, 1, 99].map(|n| refreshed(Scaler::QueueDelay(4), n)), [0, 1, 1]);
    }

    #[test]
    fn low_priority_wakes_but_never_starts() {
        let set = WorkerSet::default();
        let none_kept = Scaling { workers_min: 0, ..SCALING };
        assert_eq!(set.job_ready(none_kept, false), Demand::Nothing);
        assert_eq!(set.job_ready(none_kept, true), Demand::StartWorker);
        assert_eq!(set.try_sleep(set.observe_queue()), Sleep::Yes);
        assert_eq!(set.job_ready(none_kept, false), Demand::Nothing);
        assert_eq!(set.after_idle_timeout(none_kept), Idle::Woken);
    }

    #[test]
    fn two_jobs_do_not_wake_the_same_sleeper() {
        let set = WorkerSet::default();
        assert_eq!(set.job_ready(SCALING, true), Demand::StartWorker);
        assert_eq!(set.try_sleep(set.observe_queue()), Sleep::Yes);
        assert_eq!(set.job_ready(SCALING, true), Demand::Nothing);
        assert_eq!(set.job_ready(SCALING, true), Demand::StartWorker);
    }

    #[test]
    fn a_job_that_arrives_between_check_and_sleep_is_not_forgotten() {
        let set = WorkerSet::default();
        let one = Scaling { workers_max: 1, ..SCALING };
        assert_eq!(set.job_ready(one, true), Demand::StartWorker);
        let observed = set.observe_queue();
        assert_eq!(set.job_ready(one, true), Demand::Nothing, "no worker sleeps yet");
        assert_eq!(set.try_sleep(observed), Sleep::No);
        assert_eq!(set.try_sleep(set.observe_queue()), Sleep::Yes);
    }

    #[test]
    fn idle_workers_end_down_to_the_minimum() {
        let set = WorkerSet::default();
        for _ in 0..2 {
            set.job_ready(SCALING, true);
        }
        assert_eq!(set.try_sleep(set.observe_queue()), Sleep::Yes);
        assert_eq!(set.try_sleep(set.observe_queue()), Sleep::Yes);
        assert_eq!(set.after_idle_timeout(SCALING), Idle::Retires);
        assert_eq!(set.after_idle_timeout(SCALING), Idle::Stays);
        assert_eq!(set.alive(), 1);
        assert_eq!(set.job_ready(SCALING, true), Demand::Nothing, "the sleeper is woken");
    }

    #[test]
    fn kept_workers_are_one_task_and_a_number_until_jobs_come() {
        let set = WorkerSet::default();
        let slow = Scaler::QueueDelay(4);
        let kept = Scaling { workers_min: 1_000, workers_max: 1_000, scaler: slow, ..SCALING };
        assert_eq!(set.refresh(kept, 0, 0), 1);
        assert_eq!(set.try_sleep(set.observe_queue()), Sleep::Yes);
        assert_eq!(set.after_idle_timeout(kept), Idle::Stays);
        assert_eq!((set.counts(kept).idle, set.alive()), (1_000, 1));
        // Each kept worker takes a job at once, of low priority too, whatever the scaler says.
        assert_eq!(set.job_ready(kept, false), Demand::Nothing, "the task is woken");
        for _ in 1..1_000 {
            assert_eq!(set.job_ready(kept, false), Demand::StartWorker);
        }
        assert_eq!(set.job_ready(kept, true), Demand::Nothing, "workersMax");
        assert_eq!(WorkerSet::default().refresh(kept, 0, 7), 7);
        let _unhealthy = set.unhealthy("no".into());
        assert_eq!(set.counts(kept).idle, 999);
    }

    #[test]
    fn a_refresh_starts_what_the_queue_needs() {
        let set = WorkerSet::default();
        assert_eq!(set.refresh(SCALING, 0, 0), 1, "workersMin");
        assert_eq!(set.refresh(SCALING, 100, 100), 1, "up to workersMax");
        let fewer = Scaling { workers_min: 0, workers_max: 1, ..SCALING };
        assert_eq!(set.refresh(fewer, 100, 100), 0);
        assert_eq!(set.retire_surplus(fewer), Retire::Yes);
        assert_eq!(set.retire_surplus(fewer), Retire::No);
        assert_eq!(set.refresh(SCALING, 1, 1), 0, "the one that is left will look for a job");
        set.look_for_jobs();
        assert_eq!(set.refresh(SCALING, 1, 1), 1, "the one that is left is busy");
        set.look_for_jobs();
        assert_eq!(set.try_sleep(set.observe_queue()), Sleep::Yes);
        assert_eq!(set.refresh(SCALING, 1, 1), 0, "a sleeper takes it");
    }

    impl WorkerSet {
        /// All workers that were started look for a job.
        fn look_for_jobs(&self) {
            self.state.lock().starting = 0;
        }
    }

    fn throttled(set: &WorkerSet) -> Throttled<'_> {
        match set.throttle() {
            Throttle::Waits(throttled) => throttled,
            Throttle::Ends => panic!("enough workers wait"),
        }
    }

    #[test]
    fn a_throttled_worker_takes_a_job_that_waits() {
        let set = WorkerSet::default();
        let scaling = Scaling { workers_max: 9, ..SCALING };
        assert_eq!(set.refresh(scaling, 2, 2), 2);
        set.look_for_jobs();
        let throttled = throttled(&set);
        let counts = set.counts(SCALING);
        assert_eq!((counts.throttled, counts.idle, counts.running), (1, 1, 0));
        assert_eq!(set.refresh(scaling, 1, 1), 0, "the two are one that works and one that will");
        drop(throttled);
        assert_eq!((set.counts(SCALING).throttled, set.counts(SCALING).idle), (0, 2));
        assert_eq!(set.refresh(scaling, 1, 1), 1);
    }

    #[test]
    fn no_more_workers_wait_for_a_sandbox_than_jobs_wait() {
        let set = WorkerSet::default();
        let scaling = Scaling { workers_min: 1, workers_max: 9, ..SCALING };
        assert_eq!(set.refresh(scaling, 2, 2), 2);
        let throttled = [throttled(&set), throttled(&set)];
        let ended = |claimable| {
            let waiting =
                throttled.iter().filter(|worker| !worker.has_left.load(Ordering::Relaxed));
            waiting
                .filter(|worker| {
                    worker.leaves_surplus(set.observe_queue(), claimable, scaling) == Retire::Yes
                })
                .count()
        };
        assert_eq!(ended(2), 0, "each has its job");
        assert_eq!((ended(1), set.alive()), (1, 1), "a job was cancelled");
        assert_eq!((ended(0), set.alive()), (0, 1), "`workersMin` keeps the last one");
        let scaling = Scaling { workers_min: 0, workers_max: 1, ..scaling };
        let last =
            throttled.iter().find(|worker| !worker.has_left.load(Ordering::Relaxed)).unwrap();
        let observed = set.observe_queue();
        assert_eq!(set.job_ready(scaling, true), Demand::Nothing, "there may be no other worker");
        assert_eq!(last.leaves_surplus(observed, 0, scaling), Retire::No, "it may be for this job");
        drop(throttled);
        assert_eq!(set.counts(scaling).throttled, 0);
    }

    #[test]
    fn few_workers_wait_for_a_sandbox_however_many_jobs_do() {
        let set = WorkerSet::default();
        let scaling = Scaling { workers_min: 0, workers_max: 1_000, ..SCALING };
        assert_eq!(set.refresh(scaling, 1_000, 1_000), STARTED_AT_ONCE_MAX);
        set.look_for_jobs();
        let waiting = [throttled(&set), throttled(&set)];
        assert!(matches!(set.throttle(), Throttle::Ends));
        assert_eq!(set.alive(), STARTED_AT_ONCE_MAX - 1);
        assert_eq!(set.job_ready(scaling, true), Demand::Nothing);
        assert_eq!(set.refresh(scaling, 1_000, 1_000), 0);
        assert_eq!(set.grow(scaling), Demand::Nothing);
        assert!(!set.take_shortage(), "workers wait for a sandbox");
        drop(waiting);
        assert!(set.take_shortage());
        assert!(!set.take_shortage(), "another worker looks already");
        assert_eq!(set.missing(scaling, 900, 900, 1), 1);
        assert!(set.take_shortage(), "one was not enough");
        assert_eq!(set.missing(scaling, 1, 1, 9), 0, "the worker that was started takes it");
        assert!(!set.take_shortage(), "every job has a worker");
    }

    #[test]
    fn workers_that_ended_for_lack_of_sandboxes_come_back_whatever_the_scaler_says() {
        for scaler in [Scaler::QueueDelay(60), Scaler::RequestCount(4)] {
            let set = WorkerSet::default();
            let scaling = Scaling { workers_min: 0, workers_max: 100, scaler, ..SCALING };
            for _ in 0..20 {
                set.state.lock().start_worker();
            }
            set.look_for_jobs();
            let waiting = [throttled(&set), throttled(&set)];
            for _ in 0..18 {
                assert!(matches!(set.throttle(), Throttle::Ends));
            }
            drop(waiting);
            // Jobs of low priority wait.
            let mut started = 0;
            while set.take_shortage() {
                started += set.missing(scaling, 0, 40 - u64::from(started), 1);
            }
            assert_eq!((started, set.alive()), (18, 20), "{scaler:?}");
        }
        let set = WorkerSet::default();
        let slow = Scaling { scaler: Scaler::QueueDelay(60), workers_max: 100, ..SCALING };
        set.state.lock().ended_for_room = 18;
        assert_eq!(set.missing(slow, 0, 0, 9), 1, "no job waits: only that of `workersMin`");
        assert_eq!(set.missing(slow, 9, 9, 9), 0, "and it was forgotten");
    }

    #[test]
    fn a_faulty_component_gets_no_further_worker() {
        for scaler in [Scaler::RequestCount(1), Scaler::RequestCount(4), Scaler::QueueDelay(4)] {
            let set = WorkerSet::default();
            let scaling = Scaling { workers_min: 0, workers_max: 100, scaler, ..SCALING };
            assert_eq!(set.job_ready(scaling, true), Demand::StartWorker);
            set.look_for_jobs();
            let _unhealthy = set.unhealthy("no".into());
            assert_ne!(set.job_ready(scaling, true), Demand::StartWorker, "{scaler:?}");
            assert_eq!(set.missing(scaling, 50, 50, 9), 0, "{scaler:?}");
            assert_eq!(set.grow(scaling), Demand::Nothing, "{scaler:?}");
        }
    }

    #[test]
    fn jobs_that_came_during_a_fault_get_workers_after_it() {
        let set = WorkerSet::default();
        assert_eq!(set.job_ready(SCALING, true), Demand::StartWorker);
        let unhealthy = set.unhealthy("no".into());
        assert_eq!(set.job_ready(SCALING, true), Demand::Nothing);
        assert!(!set.take_shortage());
        drop(unhealthy);
        assert!(set.take_shortage());
    }

    #[test]
    fn a_job_is_not_lost_when_the_worker_woken_for_it_ends() {
        let set = WorkerSet::default();
        assert_eq!(set.refresh(SCALING, 2, 2), 2);
        let observed = set.observe_queue();
        assert_eq!(set.try_sleep(set.observe_queue()), Sleep::Yes);
        assert_eq!(set.job_ready(SCALING, true), Demand::Nothing, "the sleeper is woken");
        let fewer = Scaling { workers_max: 1, ..SCALING };
        assert_eq!(set.retire_surplus(fewer), Retire::Yes);
        assert_eq!(set.try_sleep(observed), Sleep::No, "the other one had looked before");
    }

    #[test]
    fn an_unhealthy_worker_is_the_only_one_that_tries() {
        let set = WorkerSet::default();
        assert_eq!(set.job_ready(SCALING, true), Demand::StartWorker);
        let unhealthy = set.unhealthy("no".into());
        let observed = set.observe_queue();
        assert_eq!(set.job_ready(SCALING, true), Demand::Nothing);
        assert_eq!((set.counts(SCALING).unhealthy, set.counts(SCALING).idle), (1, 0));
        drop(unhealthy);
        assert_eq!(set.try_retire(observed), Retire::No, "a job came");
        assert_eq!(set.try_retire(set.observe_queue()), Retire::Yes);
        assert_eq!(set.fault().as_deref(), Some("no"));
        assert_eq!(set.job_ready(SCALING, true), Demand::StartWorker);
    }
}
