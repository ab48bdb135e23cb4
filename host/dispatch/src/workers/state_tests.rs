//! The rules for the workers of an endpoint, one event after the other: growth, idle times, pauses,
//! and what each event may change.

use super::*;

const NONE: [u64; 0] = [];

const SCALING: Scaling = Scaling {
    workers_min: 0,
    workers_max: 9,
    paused: false,
    idle_timeout_s: 5,
    scaler: Scaler::RequestCount(1),
};

/// A state, its queue, and the time.
struct Bench {
    state: State,
    view: View,
    demand: Demand,
    names: u64,
}

impl Bench {
    fn new(scaling: Scaling) -> Self {
        let view = View {
            now: Instant::now(),
            wall: Timestamp::from_millis(1_000_000),
            elapsed: Duration::from_secs(1),
            scaling,
            version: 7,
        };
        Self { state: State::default(), view, demand: Demand::default(), names: 0 }
    }

    fn apply(&mut self, event: Event) -> Actions {
        let names = &mut self.names;
        self.state.decide(event, &self.view, || {
            *names += 1;
            let started_at = Timestamp::from_millis(1_000_000);
            Name { number: *names, random: 0, started_at }
        })
    }

    /// The queue has so many normal jobs, and so many of low priority; the numbers of the workers
    /// that start.
    fn jobs(&mut self, normal: u64, low: u64) -> Vec<u64> {
        self.queue(normal, low);
        numbers(&self.apply(Event::Demand(self.demand)))
    }

    fn queue(&mut self, normal: u64, low: u64) {
        let since = (normal > 0).then(|| self.demand.since.unwrap_or(self.view.wall));
        let version = self.demand.version + 1;
        self.demand =
            Demand { version, jobs: normal, since, claimable: normal + low, ..Demand::default() };
    }

    /// The queue has so many jobs that calls wait for, and so many other normal ones.
    fn called(&mut self, called: u64, others: u64) -> Vec<u64> {
        self.queue(called + others, 0);
        self.demand.called = called;
        numbers(&self.apply(Event::Demand(self.demand)))
    }

    fn step(&mut self, worker: u64, step: Step) -> Actions {
        self.apply(Event::Worker(worker, step))
    }

    /// The worker claims a normal job, which leaves the queue, and others may start.
    fn claim(&mut self, worker: u64) -> Vec<u64> {
        assert!(matches!(self.step(worker, Step::Begins).next, Next::Work { .. }));
        self.queue(self.demand.jobs - 1, self.low());
        numbers(&self.step(worker, Step::Claims(self.demand)))
    }

    /// The worker finds the queue empty, and is idle.
    fn rest(&mut self, worker: u64) {
        assert!(matches!(self.step(worker, Step::Begins).next, Next::Work { .. }));
        let seen = self.demand.version;
        assert_eq!(self.step(worker, Step::FindsNoJob { seen }).next, Next::End);
    }

    fn low(&self) -> u64 {
        self.demand.claimable - self.demand.jobs
    }

    fn pass(&mut self, seconds: u64) -> Vec<u64> {
        self.view.now += Duration::from_secs(seconds);
        self.view.elapsed += Duration::from_secs(seconds);
        self.view.wall = self.view.wall.plus_millis(1_000 * seconds);
        self.state.arm(&self.view);
        numbers(&self.apply(Event::Tick))
    }

    /// Running, idle, initializing, throttled and unhealthy workers.
    fn counts(&self) -> [u64; 5] {
        let WorkerCounts { running, idle, initializing, throttled, unhealthy } =
            self.state.counts(self.view.scaling);
        [running, idle, initializing, throttled, unhealthy]
    }
}

fn numbers(actions: &Actions) -> Vec<u64> {
    actions.start.iter().map(|worker| worker.number).collect()
}

#[test]
fn each_job_starts_a_worker_up_to_the_maximum() {
    let mut bench = Bench::new(Scaling { workers_max: 2, ..SCALING });
    assert_eq!([bench.jobs(1, 0), bench.jobs(2, 0), bench.jobs(3, 0)], [vec![1], vec![2], vec![]]);
    assert!(bench.claim(1).is_empty());
    assert_eq!(bench.counts(), [1, 1, 0, 0, 0]);
}

#[test]
fn a_notification_that_is_late_or_repeated_changes_nothing() {
    let mut bench = Bench::new(SCALING);
    let old = Demand { version: 1, jobs: 5, claimable: 5, ..Demand::default() };
    assert_eq!(bench.jobs(2, 0).len(), 2);
    bench.jobs(0, 0);
    assert_eq!(bench.state.alive(), 2);
    for late in [old, Demand { version: 2, ..old }, bench.demand] {
        let before = format!("{:?}", bench.state);
        assert_eq!(bench.apply(Event::Demand(late)), Actions::default());
        assert_eq!(format!("{:?}", bench.state), before);
    }
}

#[test]
fn an_event_of_a_worker_that_has_ended_changes_nothing() {
    let mut bench = Bench::new(SCALING);
    bench.jobs(1, 0);
    bench.claim(1);
    assert_eq!(bench.step(1, Step::Ends).next, Next::End);
    let claims = Step::Claims(Demand { version: 9, ..bench.demand });
    for step in [Step::Ends, Step::IsLost, claims, Step::Waits, Step::Fails("no".into())] {
        assert_eq!(bench.step(1, step), Actions::default());
        assert_eq!(bench.counts(), [0, 1, 0, 0, 0]);
    }
}

#[test]
fn a_job_that_comes_between_a_claim_and_its_end_is_not_forgotten() {
    let mut bench = Bench::new(Scaling { workers_max: 1, ..SCALING });
    assert_eq!(bench.jobs(1, 0), [1]);
    let Next::Work { seen } = bench.step(1, Step::Begins).next else { panic!("it looks") };
    bench.jobs(0, 0);
    // The claim finds nothing, and the demand of the next job arrives before the step of the
    // worker.
    assert_eq!(bench.jobs(1, 0), NONE, "the worker will claim it");
    assert!(matches!(bench.step(1, Step::FindsNoJob { seen }).next, Next::Work { .. }));
    bench.jobs(0, 0);
    bench.rest(1);
    assert_eq!(bench.jobs(1, 0), [1]);
}

/// A full disk, for example: jobs wait, and cannot be claimed.
#[test]
fn a_claim_that_finds_nothing_is_repeated_when_the_queue_changes_or_after_seconds() {
    let mut bench = Bench::new(SCALING);
    bench.jobs(2, 0);
    bench.claim(1);
    bench.rest(2);
    assert_eq!(bench.pass(1), NONE);
    assert_eq!(bench.jobs(2, 0), [2], "one more job");
    bench.rest(2);
    assert_eq!(bench.step(1, Step::Ends).next, Next::End);
    assert_eq!((bench.pass(3), bench.pass(1).len()), (vec![], 2), "5 s after the first claim");
}

#[test]
fn other_scalers_start_the_first_worker_and_then_follow_their_rule() {
    let by = |scaler| Bench::new(Scaling { scaler, ..SCALING });
    for (jobs, workers) in [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (99, 9)] {
        let started = by(Scaler::RequestCount(4)).jobs(jobs, 0).len();
        assert_eq!(started, workers, "{jobs} jobs");
    }
    let mut bench = by(Scaler::QueueDelay(4));
    assert_eq!(bench.jobs(5, 0), [1]);
    assert!(bench.claim(1).is_empty());
    let times = [1, 2, 1, 3, 1, 9, 0].map(|seconds| bench.pass(seconds).len());
    assert_eq!(times, [0, 0, 1, 0, 1, 1, 0], "one more for each 4 s");
    bench.jobs(0, 0);
    assert_eq!(bench.pass(9), NONE);
}

#[test]
fn low_priority_wakes_but_never_starts() {
    let mut bench = Bench::new(SCALING);
    assert_eq!(bench.jobs(0, 1), NONE);
    assert_eq!(bench.jobs(1, 1), [1]);
    bench.claim(1);
    bench.jobs(0, 0);
    assert_eq!(bench.step(1, Step::Ends).next, Next::End);
    assert_eq!(bench.jobs(0, 1), [1], "it is idle");
}

#[test]
fn two_jobs_do_not_wake_the_same_idle_worker() {
    let mut bench = Bench::new(SCALING);
    bench.jobs(1, 0);
    bench.jobs(0, 0);
    bench.rest(1);
    assert_eq!((bench.jobs(1, 0), bench.jobs(2, 0)), (vec![1], vec![2]));
}

#[test]
fn idle_workers_end_down_to_the_minimum() {
    let mut bench = Bench::new(Scaling { workers_min: 1, ..SCALING });
    bench.jobs(2, 0);
    bench.jobs(0, 0);
    bench.rest(1);
    bench.rest(2);
    bench.pass(4);
    assert_eq!(bench.state.alive(), 2);
    bench.pass(1);
    assert_eq!((bench.state.alive(), bench.state.arm(&bench.view)), (1, None), "no timer");
    bench.pass(1_000);
    assert_eq!(bench.jobs(1, 0), [2], "the worker that began to wait last is the one that stays");
}

#[test]
fn the_worker_that_waits_for_the_shortest_time_is_woken_first() {
    let mut bench = Bench::new(SCALING);
    bench.jobs(2, 0);
    bench.jobs(0, 0);
    bench.rest(1);
    bench.pass(3);
    bench.rest(2);
    for _ in 0..3 {
        assert_eq!(bench.jobs(1, 0), [2]);
        bench.claim(2);
        assert_eq!(bench.step(2, Step::Ends).next, Next::End);
        bench.pass(1);
    }
    assert_eq!(bench.state.alive(), 1, "the other one has ended");
}

#[test]
fn kept_workers_are_one_and_a_number_until_jobs_come() {
    let scaler = Scaler::QueueDelay(4);
    let kept = Scaling { workers_min: 1_000, workers_max: 1_000, scaler, ..SCALING };
    let mut bench = Bench::new(kept);
    assert_eq!(numbers(&bench.apply(Event::Changed)), [1]);
    bench.rest(1);
    assert_eq!((bench.counts(), bench.state.alive()), ([0, 1_000, 0, 0, 0], 1));
    // Each kept worker takes a job at once, of low priority too, whatever the scaler says.
    for job in 1..=1_000 {
        assert_eq!(bench.jobs(0, job), [job]);
    }
    assert_eq!(bench.jobs(1, 1_000), NONE, "workersMax");
    let mut bench = Bench::new(kept);
    assert_eq!(bench.jobs(0, 7).len(), 7);
    assert_eq!(bench.step(1, Step::Begins).next, Next::Work { seen: 1 });
    assert!(bench.step(1, Step::Fails("no".into())).is_news);
    assert_eq!(bench.counts(), [0, 6, 0, 0, 1], "those that are a number do not count then");
}

#[test]
fn a_changed_endpoint_gets_a_worker_that_prepares_it_and_what_its_queue_needs() {
    let mut bench = Bench::new(SCALING);
    assert_eq!(numbers(&bench.apply(Event::Changed)), NONE, "nothing waits");
    bench.jobs(1, 0);
    bench.jobs(0, 0);
    bench.rest(1);
    bench.view.version += 1;
    let changed = bench.apply(Event::Changed);
    assert!(changed.wakes, "also those that wait for a sandbox");
    assert_eq!(numbers(&changed), [1]);
    assert_eq!(bench.state.list()[0].version, 8);
    bench.rest(1);
    bench.view.scaling.workers_max = 0;
    bench.jobs(30, 0);
    assert_eq!((numbers(&bench.apply(Event::Changed)), bench.state.alive()), (vec![], 0));
    bench.view.scaling.workers_max = 99;
    assert_eq!(bench.apply(Event::Changed).start.len(), 16, "not all at once");
    assert_eq!(bench.apply(Event::Changed).start.len(), 14);
}

#[test]
fn a_worker_that_has_ended_its_job_shows_the_newest_version() {
    let mut bench = Bench::new(SCALING);
    bench.jobs(2, 0);
    bench.claim(1);
    assert!(matches!(bench.step(2, Step::Begins).next, Next::Work { .. }));
    bench.view.version = 8;
    let _ = bench.apply(Event::Changed);
    assert_eq!(bench.step(1, Step::Ends).next, Next::End);
    // The other one has read the endpoint before the change.
    bench.jobs(0, 0);
    bench.view.version = 7;
    assert_eq!(bench.step(2, Step::FindsNoJob { seen: 1 }).next, Next::End);
    assert_eq!(bench.state.list().iter().map(|it| it.version).collect::<Vec<_>>(), [8, 8]);
}

#[test]
fn workers_beyond_a_lower_maximum_end_with_their_jobs() {
    let mut bench = Bench::new(SCALING);
    bench.jobs(3, 0);
    for worker in 1..=3 {
        bench.claim(worker);
    }
    bench.jobs(5, 0);
    bench.view.scaling.workers_max = 1;
    let ended = [4, 5, 6, 7, 8].map(|starting| bench.step(starting, Step::Begins).next);
    assert_eq!(ended, [Next::End; 5]);
    assert_eq!([1, 2].map(|worker| bench.step(worker, Step::Ends).next), [Next::End; 2]);
    assert_eq!(bench.counts(), [1, 0, 0, 0, 0]);
    assert!(matches!(bench.step(3, Step::Ends).next, Next::Work { .. }));
}

/// Workers `from` to `to` find no sandbox; the next steps of them.
fn find_no_room(bench: &mut Bench, workers: std::ops::RangeInclusive<u64>) -> Vec<Next> {
    let next = |worker| {
        let _ = bench.step(worker, Step::Begins);
        bench.step(worker, Step::FindsNoRoom).next
    };
    workers.map(next).collect()
}

#[test]
fn few_workers_wait_for_a_sandbox_however_many_jobs_do() {
    let mut bench = Bench::new(Scaling { workers_max: 1_000, ..SCALING });
    assert_eq!(bench.jobs(900, 0).len(), 16);
    let next = find_no_room(&mut bench, 1..=16);
    assert_eq!(next.iter().filter(|next| **next == Next::Wait).count(), 2);
    assert_eq!(bench.counts(), [0, 0, 0, 2, 0]);
    assert_eq!(bench.jobs(1_000, 0), NONE, "no other one starts");
    // Both get a sandbox, and each of them starts the next one when it has a job.
    for worker in [1, 2] {
        let _ = bench.step(worker, Step::LeavesLine);
    }
    assert_eq!(bench.claim(1).len(), 2, "one by the notification, and one by the worker");
}

#[test]
fn no_more_workers_wait_for_a_sandbox_than_jobs_wait() {
    let mut bench = Bench::new(Scaling { workers_min: 1, ..SCALING });
    bench.jobs(2, 0);
    assert_eq!(find_no_room(&mut bench, 1..=2), [Next::Wait; 2]);
    assert_eq!([1, 2].map(|worker| bench.step(worker, Step::Waits).next), [Next::Wait; 2]);
    let version = bench.demand.version + 1;
    let cancelled = Demand { version, jobs: 1, claimable: 1, ..bench.demand };
    assert!(bench.apply(Event::Demand(cancelled)).wakes, "the fall is told");
    let next = [1, 2].map(|worker| bench.step(worker, Step::Waits).next);
    assert_eq!((next, bench.state.alive()), ([Next::End, Next::Wait], 1));
    bench.demand = cancelled;
    bench.jobs(0, 0);
    assert_eq!(bench.step(2, Step::Waits).next, Next::End);
    assert_eq!(bench.counts(), [0, 1, 0, 0, 0], "it is idle, as `workersMin` says");
    assert_eq!(bench.jobs(1, 0), [2]);
}

#[test]
fn workers_that_ended_for_lack_of_sandboxes_come_back_whatever_the_scaler_says() {
    for scaler in [Scaler::QueueDelay(60), Scaler::RequestCount(4)] {
        let mut bench = Bench::new(SCALING);
        bench.jobs(7, 0);
        assert_eq!(find_no_room(&mut bench, 1..=7).len(), 7);
        assert_eq!(bench.state.alive(), 2);
        bench.view.scaling.scaler = scaler;
        // Only jobs of low priority wait.
        bench.jobs(0, 9);
        for worker in [1, 2] {
            let _ = bench.step(worker, Step::LeavesLine);
            let _ = bench.step(worker, Step::Claims(bench.demand));
        }
        for worker in 8..=12 {
            assert!(matches!(bench.step(worker, Step::Begins).next, Next::Work { .. }));
            let _ = bench.step(worker, Step::Claims(bench.demand));
        }
        assert_eq!(bench.counts(), [7, 0, 0, 0, 0], "{scaler:?}");
    }
    let mut bench = Bench::new(Scaling { scaler: Scaler::QueueDelay(60), ..SCALING });
    bench.state.ended_for_room = 5;
    bench.jobs(0, 0);
    assert_eq!(bench.jobs(0, 9), NONE, "it was forgotten with the queue");
}

/// A state with so many workers that each have a job; no other job waits.
fn busy(scaling: Scaling, workers: u32) -> Bench {
    let mut bench = Bench::new(scaling);
    for worker in 1..=workers.into() {
        assert_eq!(bench.jobs(1, 0), [worker]);
        bench.claim(worker);
    }
    bench
}

#[test]
fn a_lent_place_goes_to_a_called_job_and_to_no_other() {
    for scaler in [Scaler::RequestCount(1), Scaler::RequestCount(4), Scaler::QueueDelay(4)] {
        let mut bench = busy(Scaling { workers_max: 1, scaler, ..SCALING }, 1);
        assert_eq!(bench.jobs(9, 0), NONE);
        assert_eq!(numbers(&bench.step(1, Step::Calls)), NONE);
        assert_eq!(bench.called(1, 9), [2], "{scaler:?}");
        assert!(bench.claim(2).is_empty());
        assert_eq!(bench.counts(), [2, 0, 0, 0, 0], "a lent place is beyond `workersMax`");
        assert_eq!(bench.called(1, 9), NONE, "its place is taken");
        assert_eq!(numbers(&bench.step(2, Step::Calls)), [3]);
        bench.claim(3);
        assert_eq!(bench.step(3, Step::Ends).next, Next::End, "a place is lent to no caller");
        assert_eq!(bench.step(2, Step::Returns).next, Next::Proceed);
        assert_eq!(bench.step(2, Step::Ends).next, Next::End);
        assert_eq!(bench.step(1, Step::Returns).next, Next::Proceed);
        assert!(matches!(bench.step(1, Step::Ends).next, Next::Work { .. }));
    }
}

#[test]
fn a_worker_whose_call_is_over_gets_the_next_place() {
    let mut bench = busy(Scaling { workers_max: 2, ..SCALING }, 2);
    let _ = bench.step(1, Step::Calls);
    assert_eq!(bench.called(3, 5), [3]);
    bench.queue(7, 0);
    bench.demand.called = 2;
    let _ = bench.step(3, Step::Begins);
    assert_eq!(numbers(&bench.step(3, Step::Claims(bench.demand))), NONE);
    assert_eq!(bench.step(1, Step::Returns).next, Next::Wait, "2 and 3 compute");
    assert!(!bench.step(1, Step::Returns).wakes);
    let ended = bench.step(2, Step::Ends);
    assert_eq!((ended.next, ended.wakes, numbers(&ended)), (Next::End, true, vec![]));
    assert_eq!(bench.step(1, Step::Returns).next, Next::Proceed);
    // A worker that lends its place frees it as well.
    let _ = bench.step(3, Step::Calls);
    assert_eq!(bench.counts()[0], 2);
    assert_eq!(bench.state.places(), 2, "a worker has started for a called job");
}

#[test]
fn workers_without_a_job_give_way_to_one_whose_call_is_over() {
    let mut bench = busy(Scaling { workers_max: 1, ..SCALING }, 1);
    let _ = bench.step(1, Step::Calls);
    assert_eq!(bench.called(1, 0), [2]);
    assert_eq!(find_no_room(&mut bench, 2..=2), [Next::Wait]);
    let returns = bench.step(1, Step::Returns);
    assert_eq!((returns.next, returns.wakes), (Next::Wait, true));
    let waits = bench.step(2, Step::Waits);
    assert_eq!((waits.next, waits.wakes, numbers(&waits)), (Next::End, true, vec![]));
    assert_eq!(bench.step(1, Step::Returns).next, Next::Proceed);
    assert_eq!(numbers(&bench.step(1, Step::Calls)), [3], "the called job still waits");
    let _ = bench.step(3, Step::Begins);
    assert_eq!(bench.step(3, Step::Prepares).next, Next::Proceed);
    assert!(bench.step(1, Step::Returns).wakes);
    assert_eq!(bench.step(3, Step::Prepares).next, Next::End, "it may take minutes");
    assert_eq!(bench.step(1, Step::Returns).next, Next::Proceed);
}

#[test]
fn an_attempt_that_ends_during_its_call_leaves_nothing() {
    for steps in [vec![Step::Calls], vec![Step::Calls, Step::Returns]] {
        for end in [Step::Ends, Step::IsLost] {
            let mut bench = busy(Scaling { workers_max: 1, ..SCALING }, 1);
            let _ = bench.step(1, Step::Calls);
            assert_eq!(bench.called(1, 0), [2]);
            bench.claim(2);
            for step in &steps {
                let _ = bench.step(1, step.clone());
            }
            assert_eq!(bench.step(1, end).next, Next::End);
            assert_eq!((bench.state.places(), bench.state.alive()), (1, 1));
            assert_eq!(bench.step(1, Step::Returns), Actions::default());
            assert_eq!(bench.step(2, Step::Ends).next, Next::End);
        }
    }
}

#[test]
fn workers_of_a_paused_endpoint_return_one_after_the_other() {
    let mut bench = busy(Scaling { workers_max: 2, ..SCALING }, 2);
    let _ = [1, 2].map(|worker| bench.step(worker, Step::Calls));
    bench.view.scaling.workers_max = 0;
    let _ = bench.apply(Event::Changed);
    let next = [1, 2].map(|worker| bench.step(worker, Step::Returns).next);
    assert_eq!(next, [Next::Proceed, Next::Wait]);
    assert!(bench.step(1, Step::Ends).wakes);
    assert_eq!(bench.step(2, Step::Returns).next, Next::Proceed);
    assert_eq!(bench.step(2, Step::Ends).next, Next::End);
    assert_eq!(bench.state.alive(), 0);
}

#[test]
fn a_faulty_component_is_tried_by_one_worker_every_few_seconds() {
    for scaler in [Scaler::RequestCount(1), Scaler::RequestCount(4), Scaler::QueueDelay(4)] {
        let mut bench = Bench::new(Scaling { scaler, ..SCALING });
        assert_eq!(bench.jobs(1, 0), [1]);
        let _ = bench.step(1, Step::Begins);
        let failed = bench.step(1, Step::Fails("no".into()));
        assert_eq!((failed.next, failed.is_news), (Next::End, true));
        assert_eq!(bench.counts(), [0, 0, 0, 0, 1]);
        assert_eq!((bench.jobs(50, 0), bench.pass(4)), (vec![], vec![]), "{scaler:?}");
        assert_eq!(bench.pass(1), [1], "{scaler:?}");
        let _ = bench.step(1, Step::Begins);
        assert_eq!(bench.jobs(60, 0), NONE, "one is enough");
        assert!(!bench.step(1, Step::Fails("no".into())).is_news);
        // A deploy ends the pause.
        assert!(!numbers(&bench.apply(Event::Changed)).is_empty());
        assert_eq!(bench.counts()[4], 0);
    }
}

#[test]
fn a_fault_without_jobs_keeps_no_worker_and_its_reason() {
    let mut bench = Bench::new(SCALING);
    bench.jobs(1, 0);
    let _ = bench.step(1, Step::Begins);
    let _ = bench.step(1, Step::Fails("no".into()));
    bench.jobs(0, 1);
    assert_eq!((bench.pass(5), bench.state.alive()), (vec![], 0), "low priority starts none");
    assert_eq!(bench.state.fault(), Some("no"));
    assert_eq!(bench.jobs(1, 1), [1 + 1]);
    let _ = bench.step(2, Step::Begins);
    let _ = bench.step(2, Step::Claims(bench.demand));
    assert_eq!(bench.state.fault(), None);
}

#[test]
fn a_database_that_is_away_is_tried_again_after_a_moment() {
    let mut bench = Bench::new(SCALING);
    bench.jobs(2, 0);
    let _ = bench.step(1, Step::Begins);
    let away = bench.step(1, Step::FindsNoDatabase);
    assert_eq!((away.next, away.timer), (Next::End, Timer::Start));
    let _ = bench.step(2, Step::Begins);
    let _ = bench.step(2, Step::FindsNoDatabase);
    assert_eq!(bench.jobs(3, 0), NONE);
    assert_eq!(bench.counts(), [0, 2, 0, 0, 0]);
    assert_eq!(bench.pass(1).len(), 3);
}

#[test]
fn a_worker_whose_task_is_lost_counts_no_more_and_its_job_gets_another_one() {
    let mut bench = Bench::new(SCALING);
    bench.jobs(1, 0);
    let lost = bench.step(1, Step::IsLost);
    assert_eq!(
        (numbers(&lost), bench.counts()),
        (vec![], [0; 5]),
        "none starts in a runtime that ends"
    );
    assert_eq!(bench.pass(1), [2]);
}

#[test]
fn a_drain_ends_all_and_starts_none() {
    let mut bench = Bench::new(Scaling { workers_min: 3, ..SCALING });
    bench.jobs(4, 0);
    bench.claim(1);
    let _ = bench.step(2, Step::Begins);
    assert_eq!(bench.step(2, Step::FindsNoRoom).next, Next::Wait);
    bench.state.close();
    assert_eq!(bench.step(2, Step::Waits).next, Next::End);
    assert_eq!(bench.step(3, Step::Begins).next, Next::End);
    assert_eq!(bench.step(4, Step::FindsNoJob { seen: 0 }).next, Next::End);
    assert_eq!(bench.step(1, Step::Ends).next, Next::End);
    assert_eq!((bench.jobs(9, 9), numbers(&bench.apply(Event::Changed))), (vec![], vec![]));
    assert_eq!(bench.state.alive(), 0);
}

#[test]
fn the_timer_is_woken_only_for_an_earlier_time() {
    let mut bench = Bench::new(SCALING);
    bench.jobs(2, 0);
    bench.jobs(0, 0);
    let _ = bench.step(1, Step::Begins);
    let idle = |bench: &mut Bench, worker| {
        let seen = bench.demand.version;
        bench.step(worker, Step::FindsNoJob { seen }).timer
    };
    assert_eq!(idle(&mut bench, 1), Timer::Start);
    bench.view.now += Duration::from_secs(1);
    assert_eq!(idle(&mut bench, 2), Timer::Unchanged, "it ends later");
    bench.view.scaling.idle_timeout_s = 1;
    assert_eq!(bench.apply(Event::Changed).timer, Timer::Wake);
}
