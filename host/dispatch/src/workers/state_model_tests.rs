//! The state against a small world with a queue, sandboxes and tasks, in which everything happens
//! in a random order: notifications come late, twice or overtake each other, tasks pause at each
//! step, jobs call further ones of the endpoint, and some tasks are lost.

use rand::rngs::StdRng;
use rand::seq::IteratorRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use super::*;

const SEEDS: u64 = 300;
const OPERATIONS: usize = 400;

/// Most jobs that a job calls, one after the other.
const DEPTH_MAX: u8 = 4;

/// More ticks than any pause needs.
const TICKS_MAX: usize = 1_000;

/// Where a task is, and what it does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Begins,
    Works {
        seen: u64,
    },
    Prepares {
        seen: u64,
    },
    WaitsForRoom {
        is_woken: bool,
    },
    HasRoom,
    /// The store has answered the claim, and the state does not know it yet.
    Claimed {
        left: Demand,
    },
    FoundNoJob {
        seen: u64,
    },
    Runs,
    /// It has called a job with this number, and the state knows it.
    Calls {
        called: u64,
    },
    /// The called job has ended, and the state may not know it yet.
    Returns {
        is_woken: bool,
    },
    Ends,
}

/// A job of the queue.
#[derive(Debug, Clone, Copy)]
struct Job {
    number: u64,
    is_normal: bool,
    /// How many jobs call each other above it; 0: no job has called it.
    depth: u8,
    /// Whether a job waits for it.
    is_awaited: bool,
}

#[derive(Debug, Clone, Copy)]
struct Task {
    at: At,
    has_sandbox: bool,
    /// What the state knows of it.
    phase: Phase,
    /// The job that it has claimed.
    job: Option<Job>,
}

struct World {
    rng: StdRng,
    state: State,
    view: View,
    names: u64,
    /// The waiting jobs.
    queue: Vec<Job>,
    jobs: u64,
    version: u64,
    notifications: Vec<Demand>,
    tasks: BTreeMap<u64, Task>,
    sandboxes: u32,
    sandboxes_max: u32,
    timer: Option<Times>,
    is_broken: bool,
    is_away: bool,
    is_full: bool,
    /// Whether it was full since the last time when all jobs had run.
    was_full: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let view = View {
            now: Instant::now(),
            wall: Timestamp::from_millis(1_000_000),
            elapsed: Duration::from_secs(1_000),
            scaling: Scaling::default(),
            version: 1,
        };
        // With many of them, no call may depend on the deadline of another one.
        let sandboxes_max = if seed.is_multiple_of(2) { 3 } else { 1_000 };
        Self {
            rng: StdRng::seed_from_u64(seed),
            state: State::default(),
            view,
            names: 0,
            queue: Vec::new(),
            jobs: 0,
            version: 0,
            notifications: Vec::new(),
            tasks: BTreeMap::new(),
            sandboxes: sandboxes_max,
            sandboxes_max,
            timer: None,
            is_broken: false,
            is_away: false,
            is_full: false,
            was_full: false,
        }
    }

    fn demand(&self) -> Demand {
        let called = self.queue.iter().filter(|job| job.is_awaited).count() as u64;
        let jobs = self.queue.iter().filter(|job| job.is_normal).count() as u64;
        let since = (jobs > 0).then_some(Timestamp::from_millis(1_000_000));
        let level = if called > 0 { Level::CALLED } else { Level::CLIENT };
        let claimable = self.queue.len() as u64;
        Demand { version: self.version, jobs, since, claimable, called, level }
    }

    fn queue_changed(&mut self) {
        self.version += 1;
        self.notifications.push(self.demand());
    }

    fn apply(&mut self, event: Event) -> Next {
        let is_rise = matches!(event, Event::Demand(_));
        let names = &mut self.names;
        let actions = self.state.decide(event, &self.view, || {
            *names += 1;
            Name { number: *names, random: 0, started_at: Timestamp::from_millis(0) }
        });
        for worker in &actions.start {
            let task = Task { at: At::Begins, has_sandbox: false, phase: Phase::Starts, job: None };
            assert!(self.tasks.insert(worker.number, task).is_none(), "one task for a worker");
        }
        if actions.wakes {
            self.wake();
        }
        if actions.timer != Timer::Unchanged {
            self.timer = self.state.arm(&self.view);
        }
        let gives_work = matches!(actions.next, Next::Work { .. });
        if gives_work || !actions.start.is_empty() {
            let workers_max = self.view.scaling.workers_max;
            assert!(self.state.places() <= workers_max, "no place is free, or a worker returns");
            let is_for_call = self.state.demand.called > 0;
            assert!(is_for_call || self.state.alive() <= workers_max, "workersMax");
        }
        if !actions.start.is_empty() {
            let starting = u64::from(self.state.starting());
            assert!(!is_rise || starting <= self.state.demand.claimable, "one for each job");
        }
        actions.next
    }

    fn wake(&mut self) {
        for task in self.tasks.values_mut() {
            if let At::WaitsForRoom { is_woken } | At::Returns { is_woken } = &mut task.at {
                *is_woken = true;
            }
        }
    }

    /// The state counts what the tasks are.
    fn check(&self) {
        let count = |phase| self.tasks.values().filter(|task| task.phase == phase).count();
        let counts = self.state.counts(self.view.scaling);
        let counted = [counts.running, counts.initializing, counts.throttled];
        let running = count(Phase::Runs) + count(Phase::Calls) + count(Phase::Returns);
        assert_eq!(
            counted,
            [running, count(Phase::Prepares), count(Phase::Waits)].map(|n| n as u64)
        );
        let lent = u32::try_from(count(Phase::Calls)).unwrap();
        assert_eq!(self.state.places(), self.state.alive() - lent);
        assert!(self.state.active.keys().eq(self.tasks.keys()));
        assert_eq!(self.state.active_count() as usize, self.tasks.len());
        assert!(counts.throttled <= WAITING_MAX.into());
        assert!(self.state.idle.iter().is_sorted_by_key(|idle| idle.since));
    }

    fn deliver(&mut self) -> bool {
        if self.notifications.is_empty() {
            return false;
        }
        let at = self.rng.random_range(0..self.notifications.len());
        let demand = match self.rng.random_ratio(1, 8) {
            true => self.notifications[at],
            false => self.notifications.swap_remove(at),
        };
        self.apply(Event::Demand(demand));
        true
    }

    fn move_a_task(&mut self) -> bool {
        let Some((&number, &task)) = self.tasks.iter().choose(&mut self.rng) else { return false };
        self.proceed(number, task)
    }

    /// Whether the task could do something.
    fn proceed(&mut self, number: u64, mut task: Task) -> bool {
        let step = match task.at {
            At::Begins => Step::Begins,
            At::HasRoom => Step::LeavesLine,
            At::Ends => Step::Ends,
            At::Claimed { left } => Step::Claims(left),
            At::FoundNoJob { seen } => {
                self.free(&mut task);
                Step::FindsNoJob { seen }
            }
            At::Works { seen } if task.phase == Phase::Starts && self.rng.random_ratio(1, 5) => {
                task.at = At::Prepares { seen };
                Step::Prepares
            }
            At::Prepares { seen } => {
                task.at = At::Works { seen };
                Step::Prepared
            }
            At::Works { .. } if self.is_broken => {
                self.free(&mut task);
                Step::Fails("it is broken".to_owned())
            }
            At::Works { seen } if task.has_sandbox || self.sandboxes > 0 => {
                self.sandboxes -= u32::from(!task.has_sandbox);
                task.has_sandbox = true;
                if self.is_away {
                    self.free(&mut task);
                    Step::FindsNoDatabase
                } else {
                    let awaited = self.queue.iter().position(|job| job.is_awaited);
                    let normal = || self.queue.iter().position(|job| job.is_normal);
                    let first = awaited.or_else(normal);
                    let first = first.or_else(|| (!self.queue.is_empty()).then_some(0));
                    task.job = first.filter(|_| !self.is_full).map(|at| self.queue.remove(at));
                    // The answer has the new demand, and there is no other notification of it.
                    self.version += u64::from(task.job.is_some());
                    task.at = match task.job {
                        Some(_) => At::Claimed { left: self.demand() },
                        None => At::FoundNoJob { seen },
                    };
                    self.tasks.insert(number, task);
                    return true;
                }
            }
            At::Works { .. } => Step::FindsNoRoom,
            At::WaitsForRoom { .. } if self.sandboxes > 0 => {
                self.sandboxes -= 1;
                task.has_sandbox = true;
                task.at = At::HasRoom;
                self.tasks.insert(number, task);
                return true;
            }
            At::WaitsForRoom { is_woken: true } => Step::Waits,
            At::WaitsForRoom { is_woken: false } => return false,
            At::Runs => {
                if let Some(Job { depth, .. }) = task.job
                    && depth < DEPTH_MAX
                    && self.rng.random_ratio(1, 3)
                {
                    let called = self.submit(true, depth + 1, true);
                    (task.at, task.phase) = (At::Calls { called }, Phase::Calls);
                    self.tasks.insert(number, task);
                    assert_eq!(self.apply(Event::Worker(number, Step::Calls)), Next::Proceed);
                    return true;
                }
                self.end(number, task);
                return true;
            }
            At::Calls { called } => {
                let runs = |task: &Task| task.job.is_some_and(|job| job.number == called);
                let waits = self.queue.iter().any(|job| job.number == called);
                if waits || self.tasks.values().any(runs) {
                    return false;
                }
                task.at = At::Returns { is_woken: true };
                self.tasks.insert(number, task);
                return true;
            }
            At::Returns { is_woken: false } => return false,
            At::Returns { is_woken: true } => {
                // A change between the decision and the wait wakes it.
                (task.at, task.phase) = (At::Returns { is_woken: false }, Phase::Returns);
                self.tasks.insert(number, task);
                if self.apply(Event::Worker(number, Step::Returns)) == Next::Proceed {
                    let taken = self.state.starting() + self.state.phases.runs;
                    assert!(taken <= self.view.scaling.workers_max.max(1), "no place was free");
                    (task.at, task.phase) = (At::Runs, Phase::Runs);
                    self.tasks.insert(number, task);
                }
                return true;
            }
        };
        let before = self.tasks.remove(&number);
        let next = self.apply(Event::Worker(number, step.clone()));
        let continues = match (next, step) {
            (Next::End, _) => {
                assert!(!task.has_sandbox || task.at == At::HasRoom || task.at == At::Ends);
                self.free(&mut task);
                false
            }
            (Next::Work { seen }, _) => {
                (task.at, task.phase) = (At::Works { seen }, Phase::Starts);
                true
            }
            (Next::Wait, _) => {
                (task.at, task.phase) = (At::WaitsForRoom { is_woken: true }, Phase::Waits);
                if let Some(Task { at: At::WaitsForRoom { .. }, .. }) = before {
                    task.at = At::WaitsForRoom { is_woken: false };
                }
                true
            }
            (Next::Proceed, Step::Claims(_)) => {
                (task.at, task.phase) = (At::Runs, Phase::Runs);
                true
            }
            (Next::Proceed, Step::Prepares) => {
                task.phase = Phase::Prepares;
                true
            }
            (Next::Proceed, _) => {
                task.phase = Phase::Starts;
                true
            }
        };
        if continues {
            self.tasks.insert(number, task);
        }
        true
    }

    /// The attempt ends, perhaps during a call.
    fn end(&mut self, number: u64, mut task: Task) {
        self.free(&mut task);
        self.forget_call(&task);
        (task.job, task.at) = (None, At::Ends);
        self.tasks.insert(number, task);
    }

    /// No job waits any more for the one that this task has called.
    fn forget_call(&mut self, task: &Task) {
        if let At::Calls { called } = task.at
            && let Some(job) = self.queue.iter_mut().find(|job| job.number == called)
        {
            job.is_awaited = false;
            self.queue_changed();
        }
    }

    fn submit(&mut self, is_normal: bool, depth: u8, is_awaited: bool) -> u64 {
        self.jobs += 1;
        self.queue.push(Job { number: self.jobs, is_normal, depth, is_awaited });
        self.queue_changed();
        self.jobs
    }

    /// An attempt is stopped while it waits.
    fn stop_a_call(&mut self) {
        let waits = |task: &Task| matches!(task.at, At::Calls { .. } | At::Returns { .. });
        let found = self.tasks.iter().find(|(_, task)| waits(task));
        if let Some((&number, &task)) = found {
            self.end(number, task);
        }
    }

    fn free(&mut self, task: &mut Task) {
        self.sandboxes += u32::from(std::mem::take(&mut task.has_sandbox));
    }

    /// A task ends at any point, as by a panic; a job that it has runs again.
    fn lose_a_task(&mut self) {
        let Some((&number, &task)) = self.tasks.iter().choose(&mut self.rng) else { return };
        let mut task = task;
        self.free(&mut task);
        self.forget_call(&task);
        if let Some(job) = task.job {
            let is_call =
                |task: &Task| matches!(task.at, At::Calls { called } if called == job.number);
            let is_awaited = self.tasks.values().any(is_call);
            self.queue.insert(0, Job { is_awaited, ..job });
            self.queue_changed();
        }
        self.tasks.remove(&number);
        assert_eq!(self.apply(Event::Worker(number, Step::IsLost)), Next::End);
    }

    fn change_the_endpoint(&mut self, workers_max: u32) {
        let workers_min = self.rng.random_range(0..=workers_max.min(2));
        let scaler = match self.rng.random_range(0..4) {
            0 => Scaler::QueueDelay(self.rng.random_range(1..9)),
            1 => Scaler::RequestCount(3),
            _ => Scaler::RequestCount(1),
        };
        let idle_timeout_s = self.rng.random_range(1..9);
        self.view.scaling =
            Scaling { workers_min, workers_max, paused: false, idle_timeout_s, scaler };
        self.view.version += 1;
        self.apply(Event::Changed);
    }

    fn pass(&mut self, time: Duration) {
        self.view.now += time;
        self.view.elapsed += time;
        self.view.wall = self.view.wall.plus_millis(time.as_millis() as u64);
    }

    /// The time of the timer comes, if there is one.
    fn tick(&mut self) -> bool {
        let Some(Times { at, look_at }) = self.timer else { return false };
        let to_at = at.map(|at| at.saturating_duration_since(self.view.now));
        let to_look = look_at.map(|look_at| look_at.saturating_sub(self.view.elapsed));
        self.pass(to_at.into_iter().chain(to_look).min().unwrap());
        self.apply(Event::Tick);
        self.timer = self.state.arm(&self.view);
        true
    }

    fn operate(&mut self) {
        match self.rng.random_range(0..100) {
            0..22 => {
                let is_normal = self.rng.random_ratio(4, 5);
                self.submit(is_normal, 0, false);
            }
            22..25 if !self.queue.is_empty() => {
                let at = self.rng.random_range(0..self.queue.len());
                self.queue.remove(at);
                self.queue_changed();
            }
            25..45 => drop(self.deliver()),
            45..88 => drop(self.move_a_task()),
            88..91 => drop(self.tick()),
            91 => self.pass(Duration::from_millis(700)),
            92 => self.lose_a_task(),
            93 => self.is_broken = !self.is_broken,
            94 => self.is_away = !self.is_away,
            95 => {
                self.is_full = !self.is_full;
                self.was_full = true;
            }
            96 => {
                let workers_max = self.rng.random_range(0..6);
                self.change_the_endpoint(workers_max);
            }
            97 => self.settle(),
            98 => self.stop_a_call(),
            _ => {}
        }
    }

    /// All that can happen without the timer happens.
    fn quiesce(&mut self) {
        loop {
            while self.deliver() {}
            let tasks: Vec<_> = self.tasks.keys().copied().collect();
            let mut has_moved = false;
            for number in tasks {
                if let Some(&task) = self.tasks.get(&number) {
                    has_moved |= self.proceed(number, task);
                    self.check();
                }
            }
            if !has_moved && self.notifications.is_empty() {
                let returns = |task: &Task| matches!(task.at, At::Returns { .. });
                assert!(!self.tasks.values().any(returns), "it waits for none that computes");
                if self.sandboxes > 0 || !self.time_out_a_call() {
                    return;
                }
            }
        }
    }

    /// Calls that have all sandboxes end at the deadline of an attempt.
    fn time_out_a_call(&mut self) -> bool {
        let waits = |task: &Task| matches!(task.at, At::Calls { .. });
        let found = self.tasks.iter().find(|(_, task)| waits(task));
        let Some((&number, &task)) = found else { return false };
        self.forget_call(&task);
        self.tasks.insert(number, Task { at: At::Returns { is_woken: true }, ..task });
        true
    }

    /// With a sound component, a database and a disk, each normal job runs: without the timer, if
    /// there was no fault before.
    fn settle(&mut self) {
        (self.is_broken, self.is_away, self.is_full) = (false, false, false);
        if self.view.scaling.workers_max == 0 {
            self.change_the_endpoint(1);
        }
        let State { unhealthy, settled, .. } = &self.state;
        let may_wait = unhealthy.is_some() || *settled == ANY_VERSION || self.was_full;
        self.quiesce();
        assert!(may_wait || self.demand().jobs == 0, "{:?} wait: {:?}", self.demand(), self.state);
        for _ in 0..TICKS_MAX {
            if !self.tick() {
                break;
            }
            self.quiesce();
        }
        assert_eq!(self.timer, None, "the timer never ends");
        assert_eq!(self.demand().jobs, 0, "{:?}", self.state);
        assert!(self.tasks.is_empty() && self.sandboxes == self.sandboxes_max);
        self.was_full = false;
        let idle = self.state.alive();
        assert!(idle <= self.view.scaling.workers_min.min(1), "{idle} are idle for ever");
    }
}

#[test]
fn no_job_is_forgotten_and_no_worker_miscounted_in_any_order_of_events() {
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        for _ in 0..OPERATIONS {
            world.operate();
            world.check();
        }
        world.settle();
        world.operate();
        world.state.close();
        world.wake();
        world.quiesce();
        assert_eq!((world.tasks.len(), world.state.alive()), (0, 0), "seed {seed}");
    }
}
