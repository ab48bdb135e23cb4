//! Limits of starts under random operations and restarts: none is ever exceeded, the demand says
//! whether a job can be claimed, and no job waits for ever.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::support::{START, endpoint, job, low_priority, open_with, settings, worker};
use futures::FutureExt as _;
use gristmill_core::id::JobId;
use gristmill_core::job::record::{Lease, Outcome};
use gristmill_core::job::retry::{FailedAttempt, FailureKind, Retry};
use gristmill_core::job::starts::{Blocked, KeyLimits, KeyWeight, StartLimits, StartRate};
use gristmill_core::job::state::{JobStatus, ReleaseCause};
use gristmill_core::job::tags::{Tags, Turn};
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore;
use gristmill_core::time::{Clock as _, ManualClock, Timestamp};
use gristmill_store::{Settings, Store};
use gristmill_test_support::EndAttempt as _;
use proptest::prelude::*;

const KEYS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Op {
    Submit {
        key: usize,
        priority: u8,
        is_low: bool,
    },
    Claim,
    /// Ends the attempt of this lease: 0 to complete, 1 to release, 2 to fail and run again, 3 to
    /// cancel its job.
    End {
        lease: usize,
        how: u8,
    },
    CancelWaiting {
        job: usize,
    },
    Purge,
    Advance {
        ms: u64,
    },
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..=KEYS.len(), 0..10_u8, prop::bool::weighted(0.2))
            .prop_map(|(key, priority, is_low)| Op::Submit { key, priority, is_low }),
        8 => Just(Op::Claim),
        6 => (0..16_usize, 0..4_u8).prop_map(|(lease, how)| Op::End { lease, how }),
        1 => (0..64_usize).prop_map(|job| Op::CancelWaiting { job }),
        1 => prop::bool::weighted(0.3).prop_map(|is| if is { Op::Purge } else { Op::Claim }),
        4 => (0..900_u64).prop_map(|ms| Op::Advance { ms }),
        1 => Just(Op::Reopen),
    ]
}

fn limits() -> impl Strategy<Value = StartLimits> {
    let rate = || {
        prop::option::of((1..6_u32, 1..3_000_u64, 1..4_u32)).prop_map(|rate| match rate {
            Some((jobs, per_ms, burst)) => StartRate { jobs: Some(jobs), per_ms, burst },
            None => StartRate::default(),
        })
    };
    (rate(), rate(), prop::option::of(1..4_u32), 1..5_u32).prop_map(
        |(throttle, rate, concurrency, weight)| {
            let weights = BTreeMap::from([("a".to_owned(), KeyWeight(weight))]);
            StartLimits { throttle, keys: KeyLimits { concurrency, weights, rate } }
        },
    )
}

/// A store with its limits, and what has happened.
struct World {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    store: Option<Store>,
    limits: StartLimits,
    keys: BTreeMap<JobId, usize>,
    running: Vec<(Lease, usize)>,
    /// The starts of each key; the last list has those without a key.
    starts: [VecDeque<Timestamp>; 4],
}

impl World {
    fn new(limits: StartLimits) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let dir = tempfile::tempdir().unwrap();
        let (keys, running, starts) = (BTreeMap::new(), Vec::new(), Default::default());
        let mut world = Self { dir, clock, store: None, limits, keys, running, starts };
        world.reopen();
        world
    }

    /// The attempts end with the process, and their jobs wait again.
    fn reopen(&mut self) {
        self.store = None;
        self.running.clear();
        let settings = Settings { queue_jobs_max: 1_000, ..settings() };
        let signals = Arc::new(Signals::default());
        let (store, _) = open_with(settings, self.dir.path(), &self.clock, &signals);
        store.limit_starts(&endpoint("e"), &self.limits);
        self.store = Some(store);
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    async fn claim(&mut self) -> bool {
        let e = endpoint("e");
        let _ = self.store().fire_due().unwrap();
        let claimable = self.store().demand(&e).await.unwrap().claimable;
        let claimed = self.store().claim(&e, &worker("w")).await.unwrap();
        assert_eq!(claimed.is_some(), claimable > 0, "the demand is {claimable}");
        let Some(claimed) = claimed else { return false };
        let key = self.keys[&claimed.lease.job];
        self.running.push((claimed.lease, key));
        self.starts[key].push_back(self.clock.now());
        self.check(key);
        true
    }

    /// Checks the limits after a start of a job with this key.
    fn check(&self, key: usize) {
        let of_key = self.running.iter().filter(|(_, of)| *of == key).count();
        if key < KEYS.len() {
            let max = self.limits.keys.concurrency.unwrap_or(u32::MAX);
            assert!(of_key <= max as usize, "{of_key} jobs of a key run, {max} may");
            self.check_rate(self.limits.keys.rate, &self.starts[key]);
        }
        let mut all: Vec<_> = self.starts.iter().flatten().copied().collect();
        all.sort_unstable();
        self.check_rate(self.limits.throttle, &all.into());
    }

    fn check_rate(&self, rate: StartRate, starts: &VecDeque<Timestamp>) {
        let Some(jobs) = rate.jobs else { return };
        let now = self.clock.now();
        let window = starts.iter().rev().take_while(|at| now.millis_since(**at) < rate.per_ms);
        let count = window.count();
        assert!(count < (jobs + rate.burst) as usize, "{count} starts with {rate:?}");
    }

    async fn apply(&mut self, op: Op) {
        let e = endpoint("e");
        match op {
            Op::Submit { key, priority, is_low } => {
                let turn = Turn { key: KEYS.get(key).copied(), priority };
                let mut new = job("e");
                new.tags = Tags::with_turn(None, &turn).unwrap();
                new.policy.ttl_ms = u64::from(u32::MAX);
                let new = if is_low { low_priority(new) } else { new };
                self.keys.insert(new.id, key);
                let _ = self.store().submit(new).await.unwrap();
            }
            Op::Claim => drop(self.claim().await),
            Op::End { lease, how } => {
                if self.running.is_empty() {
                    return;
                }
                let (lease, _) = self.running.swap_remove(lease % self.running.len());
                self.end(lease, how).await;
            }
            Op::CancelWaiting { job } => {
                let waiting: Vec<_> = self.keys.keys().copied().collect();
                if let Some(id) = waiting.get(job % waiting.len().max(1))
                    && self.running.iter().all(|(lease, _)| lease.job != *id)
                {
                    let _ = self.store().cancel(&e, *id).await.unwrap();
                }
            }
            Op::Purge => drop(self.store().purge(&e).await.unwrap()),
            Op::Advance { ms } => self.clock.advance(ms),
            Op::Reopen => self.reopen(),
        }
    }

    async fn end(&self, lease: Lease, how: u8) {
        let store = self.store();
        match how {
            0 => {
                let outcome = Outcome::Completed(crate::support::json("1"));
                let _ = store.finish(lease, outcome).await.unwrap();
            }
            1 => drop(store.release(lease, ReleaseCause::Stopped).await.unwrap()),
            2 => {
                let rule = Retry { max_attempts: 9, initial_delay_ms: 50, ..Retry::default() };
                let failed = FailedAttempt {
                    kind: FailureKind::Error,
                    error: "no".to_owned(),
                    endpoint_rule: rule,
                    wish: None,
                    random: 0,
                };
                let metered = crate::support::metered("t");
                if store.try_again(lease, &failed, &metered).await.unwrap()
                    == gristmill_core::store::TriedAgain::Ends
                {
                    let _ = store.finish(lease, Outcome::Failed("no".to_owned())).await.unwrap();
                }
            }
            _ => drop(store.cancel(&endpoint("e"), lease.job).await.unwrap()),
        }
    }

    /// All jobs end in the end, and each that waits without a reason can be claimed.
    async fn drain(&mut self) {
        let e = endpoint("e");
        for _ in 0..10_000 {
            for (lease, _) in std::mem::take(&mut self.running) {
                self.end(lease, 0).await;
            }
            while self.claim().await {
                let (lease, _) = self.running.pop().unwrap();
                self.end(lease, 0).await;
            }
            if self.store().counts(&e).await.unwrap().in_queue == 0 {
                return;
            }
            let next = self.store().fire_due().unwrap();
            assert!(next < Timestamp::NEVER, "a job waits for nothing");
            self.clock.advance(next.millis_since(self.clock.now()).max(1));
        }
        panic!("jobs wait for ever");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn no_limit_is_exceeded_and_no_job_waits_for_ever(
        (first, later) in (limits(), limits()),
        ops in prop::collection::vec(op(), 1..160),
        (change_at, is_changed) in (0..160_usize, any::<bool>()),
    ) {
        let run = async move {
            let mut world = World::new(first);
            for (at, op) in ops.into_iter().enumerate() {
                if is_changed && at == change_at {
                    // Starts and running jobs from before may exceed the new limits.
                    while let Some((lease, _)) = world.running.pop() {
                        world.end(lease, 1).await;
                    }
                    world.starts = Default::default();
                    world.limits = later.clone();
                    world.reopen();
                }
                world.apply(op).await;
            }
            world.drain().await;
        };
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run);
    }
}

#[tokio::test]
async fn a_blocked_job_says_which_limit_it_waits_for() {
    let keys = KeyLimits { concurrency: Some(1), ..KeyLimits::default() };
    let mut world = World::new(StartLimits { keys, ..StartLimits::default() });
    for _ in 0..2 {
        world.apply(Op::Submit { key: 0, priority: 0, is_low: false }).await;
    }
    assert!(world.claim().await && !world.claim().await);
    let e = endpoint("e");
    let started = world.running[0].0.job;
    let waiting = *world.keys.keys().find(|id| **id != started).unwrap();
    let record = world.store().job(&e, waiting).await.unwrap().unwrap();
    assert_eq!((record.status, record.blocked), (JobStatus::InQueue, Some(Blocked::Running(1))));
    let record = world.store().job(&e, started).await.unwrap().unwrap();
    assert_eq!(record.blocked, None);
    // The limits of a deleted endpoint end with it.
    world.store().delete_endpoint(&e).now_or_never();
    world.store().await_deletion(&e).await.unwrap();
    (world.limits, world.running) = (StartLimits::default(), Vec::new());
    for _ in 0..2 {
        world.apply(Op::Submit { key: 0, priority: 0, is_low: false }).await;
    }
    assert!(world.claim().await && world.claim().await);
}
