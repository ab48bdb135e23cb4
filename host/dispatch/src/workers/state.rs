//! The workers of one endpoint as numbers, and the rules for them: a pure function from an event to
//! actions.
//!
//! [`State::decide`] is called under one lock, by whatever thread brings an event, and that thread
//! carries out the actions. Nothing sleeps here that could be woken wrongly: a worker is active,
//! with a [task](super::task), or idle, which is a time in a list.
//!
//! **No job is forgotten.** The store passes the whole [`Demand`] with a version, so a notification
//! that is late, doubled or overtaken does no harm. Each active worker that has no job yet is
//! *starting* and takes one of the jobs that wait, so the other ones are
//! [unserved](State::unserved). Every event ends with [`State::fill`], which starts a worker if
//! there is an unserved job and the rules permit a worker. A claim that finds nothing settles the
//! version that it has seen, and only a newer one starts the next.
//!
//! **Calls make progress.** A worker whose job waits for a job that it has called lends its place:
//! it does not count for `workersMax`. A lent place goes to a job that a call waits for, and to
//! others only by a race, so that callers do not multiply. When the call is over, the worker takes
//! the next place, before any other worker claims a job. So it waits only for workers that compute,
//! never for one that waits for a sandbox, a component or a job.
//!
//! **No worker is miscounted.** The phase of each active worker is stored, and the numbers change
//! only with a phase. An event of a worker that is not active changes nothing.
//!
//! **Bounds.** At most `workersMax` places; fewer only wait for running jobs to end, and with 0 the
//! workers whose calls are over go on one after the other. At most
//! [`WAITING_MAX`] of them wait for a sandbox, however many jobs wait. Of the workers that
//! `workersMin` keeps without jobs, one is in the list, since it has prepared the component, and
//! the others are only a number. **Cost.** Some searches in an ordered map of the active workers
//! for each event; 40 bytes for an idle worker.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use gristmill_core::deploy::endpoint::{Scaler, Scaling};
use gristmill_core::job::record::Demand;
use gristmill_core::sharing::shares::Level;
use gristmill_core::time::Timestamp;
use gristmill_core::workers::WorkerCounts;
use tokio::time::Instant;

/// Time after which a component that could not be prepared is tried again, if jobs wait for it. A
/// deploy ends the pause.
const FAULT_PAUSE: Duration = Duration::from_secs(5);

/// Time after which claims are tried again that found nothing although jobs wait.
const FULL_PAUSE: Duration = Duration::from_secs(5);

/// Later than each version of a demand.
const ANY_VERSION: u64 = u64::MAX;

/// Pause after a claim that the database of the jobs has not answered, or after a worker that was
/// lost.
const AWAY_PAUSE: Duration = Duration::from_millis(500);

/// Most workers of an endpoint that wait for a sandbox at one time. A single one would make a
/// worker end, and another one start, each time when two jobs end together.
const WAITING_MAX: u32 = 2;

/// Most workers that one event starts. Each of them may start another one when it begins a job, so
/// the number of workers still doubles with each round.
const STARTED_AT_ONCE_MAX: u64 = 16;

/// The workers of one endpoint.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// The endpoint was deleted, or the host drains: no worker is started, and active ones end.
    is_closed: bool,
    /// The version of the endpoint at its last change.
    version: u32,
    demand: Demand,
    /// Claims have found nothing at this version of the demand; [`ANY_VERSION`] while no claim is
    /// made at all.
    settled: u64,
    /// When that is forgotten: no event shows that a full disk has room, or that the database
    /// answers again.
    forgets_at: Option<Instant>,
    active: BTreeMap<u64, Active>,
    /// The number of active workers in each phase.
    phases: Phases,
    /// The one that began to wait last is at the end, and is taken first.
    idle: VecDeque<Idle>,
    /// Workers that ended because enough others waited for a sandbox. They are started again once
    /// there are sandboxes, as far as jobs wait, whatever the scaler says.
    ended_for_room: u32,
    /// Why the last attempt to prepare the component failed.
    fault: Option<String>,
    /// The worker that tries again then. Meanwhile no other worker is started.
    unhealthy: Option<(Worker, Instant)>,
    growth: Growth,
    /// When the timer is to bring the next [`Event::Tick`]; `None`: there is no timer.
    timer: Option<Times>,
}

/// A worker, and the version of the endpoint that it runs, or has run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Worker {
    /// Unique in this process.
    pub(crate) number: u64,
    /// Makes its name unique among processes, almost surely.
    pub(crate) random: u32,
    pub(crate) version: u32,
    pub(crate) started_at: Timestamp,
}

/// The part of a [`Worker`] that no rule decides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name {
    pub(crate) number: u64,
    pub(crate) random: u32,
    pub(crate) started_at: Timestamp,
}

#[derive(Debug)]
struct Active {
    worker: Worker,
    phase: Phase,
}

/// The present occupation of an active worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It will claim a job.
    Starts,
    /// It waits for the component, and will claim a job.
    Prepares,
    /// It waits for a sandbox, and will claim a job.
    Waits,
    /// It has a job.
    Runs,
    /// Its job waits for a job that it has called. The worker has lent its place.
    Calls,
    /// The call is over, and the worker waits for a place.
    Returns,
}

#[derive(Debug, Default)]
struct Phases {
    starts: u32,
    prepares: u32,
    waits: u32,
    runs: u32,
    calls: u32,
    returns: u32,
}

#[derive(Debug)]
struct Idle {
    worker: Worker,
    since: Instant,
}

/// When the rule of [`Scaler::QueueDelay`] starts another worker.
#[derive(Debug, Default)]
struct Growth {
    /// When the next job to claim was queued, and since when it is known to wait.
    watched: Option<(Timestamp, Duration)>,
    grown_at: Option<Duration>,
    look_at: Option<Duration>,
}

/// The times that the rules need, and the endpoint as it is deployed now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    /// The time for pauses and idle workers.
    pub(crate) now: Instant,
    /// The time of the clock that the jobs have, for a scaler whose rule needs it.
    pub(crate) wall: Timestamp,
    /// The time of that clock without jumps, likewise.
    pub(crate) elapsed: Duration,
    /// The scaling in effect.
    pub(crate) scaling: Scaling,
    /// The version of the endpoint.
    pub(crate) version: u32,
}

/// Something that has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// The queue has changed, or was read.
    Demand(Demand),
    /// The endpoint is new or has changed.
    Changed,
    /// The time that [`State::arm`] has returned has come.
    Tick,
    /// The active worker with this number is at a step of its work.
    Worker(u64, Step),
}

/// A step in the work of an active worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// It begins to look for a job.
    Begins,
    /// The component is being loaded or compiled.
    Prepares,
    /// The component is ready.
    Prepared,
    /// The component cannot be prepared; the reason.
    Fails(String),
    /// There is no sandbox.
    FindsNoRoom,
    /// It waits for a sandbox, and was woken by a change.
    Waits,
    /// It has a sandbox, or looks for a sandbox of a changed deployment.
    LeavesLine,
    /// It has claimed a job, which leaves this demand.
    Claims(Demand),
    /// There was no job to claim, when the demand had at least the version `seen`.
    FindsNoJob { seen: u64 },
    /// The database of the jobs has not answered.
    FindsNoDatabase,
    /// Its job begins to wait for a job that it has called.
    Calls,
    /// The call is over, or the worker was woken while it waits for a place.
    Returns,
    /// Its attempt has ended.
    Ends,
    /// Its task has ended without another step.
    IsLost,
}

/// What an event requires. The caller carries it out after the lock is released.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Actions {
    /// The next step of the worker that has brought the event.
    pub(crate) next: Next,
    /// The workers whose tasks to start. They are active already.
    pub(crate) start: Vec<Worker>,
    /// Whether workers that wait must look again.
    pub(crate) wakes: bool,
    /// Whether the reason of a fault is another one than before.
    pub(crate) is_news: bool,
    pub(crate) timer: Timer,
}

/// The next step of a worker.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Its task ends: it is idle, or no worker any more.
    #[default]
    End,
    /// It prepares the component, takes a sandbox and claims a job. The demand has the version
    /// `seen`.
    Work { seen: u64 },
    /// It waits for a sandbox, or for a place.
    Wait,
    /// It runs its job, or continues to prepare.
    Proceed,
}

/// What becomes of the timer of the endpoint.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timer {
    #[default]
    Unchanged,
    /// There is none: start one.
    Start,
    /// It sleeps for too long.
    Wake,
}

/// When the next tick is due: by the time of pauses, or by the clock of the jobs.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    pub(crate) at: Option<Instant>,
    pub(crate) look_at: Option<Duration>,
}

impl State {
    /// Changes the state by an event. Workers get their names from `name`, which is called once for
    /// each new worker; otherwise the result depends on nothing but the arguments.
    pub(crate) fn decide(
        &mut self,
        event: Event,
        view: &View,
        mut name: impl FnMut() -> Name,
    ) -> Actions {
        let mut actions = Actions::default();
        let is_change = event == Event::Changed;
        let had_place = self.has_place_to_return_to(view);
        let at_most = match event {
            Event::Demand(demand) => self.demand_changed(demand, &mut actions),
            Event::Changed => self.endpoint_changed(view, &mut actions),
            Event::Tick => self.tick(view, &mut actions),
            Event::Worker(number, step) => self.step(number, step, view, &mut actions),
        };
        while self.alive() > view.scaling.workers_max && self.idle.pop_front().is_some() {}
        if is_change {
            self.prepare(view, &mut actions, &mut name);
        }
        self.fill(at_most, view, &mut actions, name);
        actions.wakes |= !had_place && self.has_place_to_return_to(view);
        actions.timer = self.set_timer(view);
        actions
    }

    /// A worker begins with a job, which another host runs. There may be more of them than
    /// `workersMax`.
    pub(crate) fn go_on(&mut self, name: Name, view: &View) -> Worker {
        let worker = Worker::new(name, view);
        self.enter(worker, Phase::Runs);
        worker
    }

    /// The endpoint was deleted, or the host drains. Active workers end with their jobs, and those
    /// that wait must be woken.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.idle.clear();
        self.unhealthy = None;
        self.ended_for_room = 0;
    }

    /// The time of the next tick, for the timer, which ends if there is none.
    pub(crate) fn arm(&mut self, view: &View) -> Option<Times> {
        self.timer = self.times(view);
        self.timer
    }

    /// Number of workers.
    pub(crate) fn alive(&self) -> u32 {
        let idle = u32::try_from(self.idle.len()).unwrap_or(u32::MAX);
        self.active_count() + idle + u32::from(self.unhealthy.is_some())
    }

    /// The level at which a sandbox is to be asked for: that of the next job to claim.
    pub(crate) fn level(&self) -> Level {
        self.demand.level
    }

    /// Why the component cannot be prepared.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// The workers, in the order in which they were started.
    pub(crate) fn list(&self) -> Vec<Worker> {
        let active = self.active.values().map(|active| active.worker);
        let idle = self.idle.iter().map(|idle| idle.worker);
        let unhealthy = self.unhealthy.iter().map(|(worker, _)| *worker);
        let mut workers: Vec<_> = active.chain(idle).chain(unhealthy).collect();
        workers.sort_unstable_by_key(|worker| worker.number);
        workers
    }

    /// The workers by state.
    pub(crate) fn counts(&self, scaling: Scaling) -> WorkerCounts {
        let unhealthy = u32::from(self.unhealthy.is_some());
        let Phases { prepares, waits, .. } = self.phases;
        let running = self.running();
        let kept = match self.fault {
            Some(_) => 0,
            None => scaling.workers_min.min(scaling.workers_max),
        };
        let busy = running + prepares + waits + unhealthy;
        WorkerCounts {
            // A worker that has not claimed a job yet is idle too, and so are the kept workers that
            // are only a number.
            idle: u64::from(self.alive().max(kept).saturating_sub(busy)),
            initializing: u64::from(prepares),
            running: u64::from(running),
            throttled: u64::from(waits),
            unhealthy: u64::from(unhealthy),
        }
    }

    fn active_count(&self) -> u32 {
        self.starting() + self.running()
    }

    /// Active workers that have a job.
    fn running(&self) -> u32 {
        let Phases { runs, calls, returns, .. } = self.phases;
        runs + calls + returns
    }

    /// Number of workers that have a place, or get the next one.
    fn places(&self) -> u32 {
        self.alive() - self.phases.calls
    }

    /// Whether a worker whose call is over waits, and there is a place for it.
    fn has_place_to_return_to(&self, view: &View) -> bool {
        let taken = self.starting() + self.phases.runs;
        // Running jobs of a paused endpoint end.
        self.phases.returns > 0 && taken < view.scaling.workers_max.max(1)
    }

    /// Active workers that will claim a job.
    fn starting(&self) -> u32 {
        let Phases { starts, prepares, waits, .. } = self.phases;
        starts + prepares + waits
    }

    /// Jobs that wait and that no active worker will claim, as far as is known.
    fn unserved(&self) -> u64 {
        match self.demand.version > self.settled {
            true => self.demand.claimable.saturating_sub(self.starting().into()),
            false => 0,
        }
    }

    // The most workers that an event starts: one is enough for progress, since that worker starts
    // the next one when it begins its job; more of them are quicker.

    fn demand_changed(&mut self, demand: Demand, actions: &mut Actions) -> u64 {
        if demand.version <= self.demand.version {
            return 0;
        }
        let new_jobs = demand.claimable.saturating_sub(self.demand.claimable);
        let is_other_level = demand.level != self.demand.level;
        self.demand = demand;
        if demand.since.is_none() {
            self.growth = Growth::default();
        }
        let waits = u64::from(self.phases.waits);
        actions.wakes = waits > demand.claimable || waits > 0 && is_other_level;
        new_jobs.clamp(1, STARTED_AT_ONCE_MAX)
    }

    fn endpoint_changed(&mut self, view: &View, actions: &mut Actions) -> u64 {
        self.version = view.version;
        self.fault = None;
        self.settled = 0;
        if let Some((worker, _)) = self.unhealthy.take() {
            self.rest(worker, view);
        }
        for idle in &mut self.idle {
            idle.since = view.now;
            idle.worker.version = view.version;
        }
        actions.wakes = true;
        STARTED_AT_ONCE_MAX
    }

    fn tick(&mut self, view: &View, actions: &mut Actions) -> u64 {
        let Scaling { workers_min, workers_max, .. } = view.scaling;
        while self.idle_ends_at(view).is_some_and(|end| end <= view.now) {
            self.idle.pop_front();
        }
        if self.forgets_at.is_some_and(|at| at <= view.now) {
            (self.settled, self.forgets_at) = (0, None);
        }
        if let Some((worker, at)) = self.unhealthy
            && at <= view.now
        {
            let alive = self.alive();
            self.unhealthy = None;
            // A job of low priority starts no worker, so it keeps only those of `workersMin`.
            let has_job = self.demand.jobs > 0 || alive <= workers_min && self.demand.claimable > 0;
            if has_job && alive <= workers_max {
                self.start(worker, actions);
            }
        }
        STARTED_AT_ONCE_MAX
    }

    fn step(&mut self, number: u64, step: Step, view: &View, actions: &mut Actions) -> u64 {
        let Some(active) = self.active.get(&number) else { return 1 };
        let worker = active.worker;
        // The component was prepared before each of these.
        if let Step::FindsNoRoom
        | Step::Claims(_)
        | Step::FindsNoJob { .. }
        | Step::FindsNoDatabase = step
        {
            self.fault = None;
        }
        match step {
            Step::Begins | Step::LeavesLine => actions.next = self.next_round(number, view),
            Step::Ends => {
                self.set_phase(number, Phase::Starts);
                actions.next = self.next_round_or_rest(number, view);
            }
            // A component may take minutes.
            Step::Prepares if self.phases.returns > 0 && self.is_surplus(view) => {
                self.leave(number);
            }
            Step::Prepares => {
                self.set_phase(number, Phase::Prepares);
                actions.next = Next::Proceed;
            }
            Step::Prepared => {
                self.set_phase(number, Phase::Starts);
                actions.next = Next::Proceed;
            }
            Step::Fails(reason) => {
                self.leave(number);
                actions.is_news = self.fault.as_ref() != Some(&reason);
                self.fault = Some(reason);
                if self.unhealthy.is_none() && !self.is_closed {
                    self.unhealthy = Some((worker, view.now + FAULT_PAUSE));
                }
            }
            Step::FindsNoRoom if self.demand.claimable > 0 && !self.is_surplus(view) => {
                if self.phases.waits < WAITING_MAX {
                    self.set_phase(number, Phase::Waits);
                    actions.next = Next::Wait;
                } else {
                    self.leave(number);
                    self.ended_for_room += 1;
                }
            }
            Step::FindsNoRoom => self.leave_or_rest(number, view),
            Step::Waits => {
                let is_too_many = u64::from(self.phases.waits) > self.demand.claimable;
                if self.is_surplus(view) || self.demand.claimable == 0 {
                    self.leave_or_rest(number, view);
                } else if is_too_many && self.alive() > view.scaling.workers_min {
                    self.leave(number);
                } else {
                    actions.next = Next::Wait;
                }
            }
            Step::Claims(left) => {
                self.set_phase(number, Phase::Runs);
                actions.next = Next::Proceed;
                return self.demand_changed(left, actions) + 1;
            }
            Step::Calls => {
                if active.phase == Phase::Runs {
                    self.set_phase(number, Phase::Calls);
                }
                actions.next = Next::Proceed;
                return 1;
            }
            Step::Returns => {
                actions.next = Next::Proceed;
                if let Phase::Calls | Phase::Returns = active.phase {
                    // Workers without a job give way.
                    actions.wakes = active.phase == Phase::Calls;
                    self.set_phase(number, Phase::Returns);
                    match self.has_place_to_return_to(view) {
                        true => self.set_phase(number, Phase::Runs),
                        false => actions.next = Next::Wait,
                    }
                }
            }
            Step::FindsNoJob { seen } => {
                self.settle(seen, FULL_PAUSE, view);
                actions.next = self.next_round_or_rest(number, view);
            }
            Step::FindsNoDatabase => {
                self.leave_or_rest(number, view);
                self.settle(ANY_VERSION, AWAY_PAUSE, view);
            }
            Step::IsLost => {
                self.leave(number);
                // A task that is dropped with its runtime cannot start another one; the timer does
                // if it lives.
                self.settle(ANY_VERSION, AWAY_PAUSE, view);
            }
        }
        u64::from(actions.next == Next::End)
    }

    /// Makes no claim before the demand has a later version than this, or the pause is over.
    fn settle(&mut self, version: u64, pause: Duration, view: &View) {
        self.settled = self.settled.max(version);
        let forgets_at = view.now + pause;
        let earlier = self.forgets_at.filter(|at| view.now < *at && *at < forgets_at);
        self.forgets_at = Some(earlier.unwrap_or(forgets_at));
    }

    /// Whether an active worker must end, since it has no right to a job any more.
    fn is_surplus(&self, view: &View) -> bool {
        let workers_max = view.scaling.workers_max;
        let is_needed = self.demand.called >= self.starting().into();
        let has_right = self.alive() <= workers_max || is_needed && self.places() <= workers_max;
        self.is_closed || !has_right
    }

    fn next_round(&mut self, number: u64, view: &View) -> Next {
        if self.is_surplus(view) {
            self.leave(number);
            return Next::End;
        }
        self.set_phase(number, Phase::Starts);
        if let Some(active) = self.active.get_mut(&number) {
            active.worker.version = view.version;
        }
        Next::Work { seen: self.demand.version }
    }

    /// The next step of a worker that has no job, and counts as starting.
    fn next_round_or_rest(&mut self, number: u64, view: &View) -> Next {
        let has_job = self.demand.claimable >= u64::from(self.starting());
        if has_job && self.demand.version > self.settled && self.unhealthy.is_none() {
            return self.next_round(number, view);
        }
        self.leave_or_rest(number, view);
        Next::End
    }

    fn leave_or_rest(&mut self, number: u64, view: &View) {
        let is_surplus = self.is_surplus(view);
        if let Some(worker) = self.leave(number)
            && !is_surplus
        {
            self.rest(worker, view);
        }
    }

    /// A worker becomes idle. It has no deployment any more, and shows the newest version.
    fn rest(&mut self, mut worker: Worker, view: &View) {
        if !self.is_closed {
            worker.version = view.version.max(self.version);
            self.idle.push_back(Idle { worker, since: view.now });
        }
    }

    /// A worker becomes active.
    fn start(&mut self, worker: Worker, actions: &mut Actions) {
        self.enter(worker, Phase::Starts);
        actions.start.push(worker);
    }

    fn enter(&mut self, worker: Worker, phase: Phase) {
        *self.phases.of(phase) += 1;
        self.active.insert(worker.number, Active { worker, phase });
    }

    /// A worker is active no more.
    fn leave(&mut self, number: u64) -> Option<Worker> {
        let Active { worker, phase } = self.active.remove(&number)?;
        *self.phases.of(phase) -= 1;
        Some(worker)
    }

    fn set_phase(&mut self, number: u64, phase: Phase) {
        if let Some(active) = self.active.get_mut(&number) {
            *self.phases.of(active.phase) -= 1;
            *self.phases.of(phase) += 1;
            active.phase = phase;
        }
    }

    /// After a change of the endpoint one worker prepares its component, if there are idle workers
    /// or `workersMin` keeps some.
    fn prepare(&mut self, view: &View, actions: &mut Actions, name: &mut impl FnMut() -> Name) {
        let Scaling { workers_min, workers_max, .. } = view.scaling;
        if self.is_closed || self.starting() > 0 {
            return;
        }
        if let Some(Idle { worker, .. }) = self.idle.pop_back() {
            self.start(worker, actions);
        } else if self.alive() == 0 && workers_min.min(workers_max) > 0 {
            self.start(Worker::new(name(), view), actions);
        }
    }

    /// Starts workers for the unserved jobs: idle ones, then as many new ones as the rules permit.
    fn fill(
        &mut self,
        at_most: u64,
        view: &View,
        actions: &mut Actions,
        mut name: impl FnMut() -> Name,
    ) {
        let claimable = u32::try_from(self.demand.claimable).unwrap_or(u32::MAX);
        self.ended_for_room = self.ended_for_room.min(claimable);
        if at_most == 0 {
            return;
        }
        self.growth.look_at = None;
        if self.is_closed || self.unhealthy.is_some() {
            return;
        }
        // After a fault one worker tries the component for all.
        let is_tried = self.fault.is_some();
        if is_tried && self.starting() > 0 {
            return;
        }
        let mut left = if is_tried { 1 } else { at_most };
        while left > 0
            && self.unserved() > 0
            && let Some(Idle { worker, .. }) = self.idle.pop_back()
        {
            self.start(worker, actions);
            left -= 1;
        }
        if self.phases.waits > 0 || self.unserved() == 0 || !self.idle.is_empty() {
            return;
        }
        let room = self.room(view);
        if room == 0 {
            return;
        }
        let started = self.missing(view).min(self.unserved()).min(left).min(room);
        for _ in 0..started {
            self.start(Worker::new(name(), view), actions);
            self.ended_for_room = self.ended_for_room.saturating_sub(1);
        }
    }

    /// The most workers that may start: in the lent places only for jobs that calls wait for.
    fn room(&self, view: &View) -> u64 {
        let workers_max = view.scaling.workers_max;
        let of_any_job = u64::from(workers_max.saturating_sub(self.alive()));
        let called = self.demand.called.saturating_sub(self.starting().into());
        of_any_job.max(called).min(workers_max.saturating_sub(self.places()).into())
    }

    /// The workers that the rules permit beside those that are alive, as if each of them had an
    /// unserved job. Workers that have lent their places take no job, so the rules do not count
    /// them.
    fn missing(&mut self, view: &View) -> u64 {
        let Scaling { workers_min, scaler, .. } = view.scaling;
        let kept = workers_min.saturating_sub(self.alive()).max(self.ended_for_room);
        let alive = self.places();
        let by_scaler = match scaler {
            Scaler::RequestCount(jobs) => {
                let Phases { runs, returns, .. } = self.phases;
                let all = self.demand.jobs.saturating_add((runs + returns).into());
                all.div_ceil(jobs.max(1).into()).saturating_sub(alive.into())
            }
            Scaler::QueueDelay(_) if alive == 0 => self.demand.jobs.min(1),
            Scaler::QueueDelay(seconds) => {
                u64::from(self.growth.is_due(self.demand.since, seconds, view))
            }
        };
        by_scaler.max(kept.into())
    }

    fn idle_ends_at(&self, view: &View) -> Option<Instant> {
        let Scaling { workers_min, idle_timeout_s, .. } = view.scaling;
        let first = self.idle.front().filter(|_| self.alive() > workers_min.min(1))?;
        Some(first.since + Duration::from_secs(idle_timeout_s.into()))
    }

    fn times(&self, view: &View) -> Option<Times> {
        let tries_at = self.unhealthy.map(|(_, at)| at);
        let is_settled = self.demand.version <= self.settled && self.demand.claimable > 0;
        let forgets_at = self.forgets_at.filter(|_| is_settled);
        let all = [self.idle_ends_at(view), tries_at, forgets_at];
        let at = all.into_iter().flatten().min();
        let look_at = self.growth.look_at;
        (at.is_some() || look_at.is_some()).then_some(Times { at, look_at })
    }

    fn set_timer(&mut self, view: &View) -> Timer {
        let Some(times) = self.times(view) else { return Timer::Unchanged };
        match self.timer.replace(times) {
            None => Timer::Start,
            Some(armed)
                if is_earlier(times.at, armed.at) || is_earlier(times.look_at, armed.look_at) =>
            {
                Timer::Wake
            }
            // It looks again by itself.
            Some(armed) => {
                self.timer = Some(armed);
                Timer::Unchanged
            }
        }
    }
}

fn is_earlier<T: Ord>(time: Option<T>, than: Option<T>) -> bool {
    time.is_some_and(|time| than.is_none_or(|than| time < than))
}

impl Worker {
    fn new(Name { number, random, started_at }: Name, view: &View) -> Self {
        Self { number, random, version: view.version, started_at }
    }
}

impl Phases {
    fn of(&mut self, phase: Phase) -> &mut u32 {
        match phase {
            Phase::Starts => &mut self.starts,
            Phase::Prepares => &mut self.prepares,
            Phase::Waits => &mut self.waits,
            Phase::Runs => &mut self.runs,
            Phase::Calls => &mut self.calls,
            Phase::Returns => &mut self.returns,
        }
    }
}

impl Growth {
    /// Whether the job that is claimed next has waited for `seconds`, and no worker was started for
    /// that reason meanwhile. Its wait is measured by the wall clock, but is at least the time
    /// since it is known: a clock that is set back keeps no worker from starting.
    fn is_due(&mut self, since: Option<Timestamp>, seconds: u32, view: &View) -> bool {
        let Some(since) = since else {
            *self = Self::default();
            return false;
        };
        let elapsed = view.elapsed;
        let (_, known_since) = match self.watched {
            Some(oldest) if oldest.0 == since => oldest,
            _ => *self.watched.insert((since, elapsed)),
        };
        let waited = Duration::from_millis(view.wall.millis_since(since));
        let waited = waited.max(elapsed.saturating_sub(known_since));
        let delay = Duration::from_secs(seconds.into());
        let waits_until = elapsed + delay.saturating_sub(waited);
        let due_at = waits_until.max(self.grown_at.map_or(elapsed, |grown_at| grown_at + delay));
        let is_due = due_at <= elapsed;
        if is_due {
            self.grown_at = Some(elapsed);
        }
        self.look_at = Some(if is_due { elapsed + delay } else { due_at });
        is_due
    }
}

#[cfg(test)]
#[path = "state_model_tests.rs"]
mod model;
#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
