//! One run of a seed: a host is started several times on one store. Each start ends by a crash or a
//! drain, and the last one when all work is done.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use gristmill_core::billing::usage::{UsageFilter, UsageStore as _};
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry};
use gristmill_core::deploy::endpoint::{Endpoint, EndpointSettings};
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{EndpointId, JobId, OwnerId, ShardId, TemplateId};
use gristmill_core::job::payload::Json;
use gristmill_core::job::policy::{Policy, Start, Strictness};
use gristmill_core::job::record::{Lease, NewJob};
use gristmill_core::job::retention::Retention;
use gristmill_core::job::retry::Retry;
use gristmill_core::job::state::JobStatus;
use gristmill_core::jobs::operations::Jobs;
use gristmill_core::signals::Signals;
use gristmill_core::store::{JobStore as _, RetryAnswer, StoreError, SubmitAnswer};
use gristmill_core::time::{Clock, Timestamp};
use gristmill_core::trace::Tracer;
use gristmill_core::workers::Workers as _;
use gristmill_dispatch::{Dispatcher, Parts};
use gristmill_test_support::ModelStore;
use gristmill_test_support::new_job;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::seq::{IndexedMutRandom as _, IndexedRandom as _};
use rand::{RngExt as _, SeedableRng as _};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

use crate::delayed_store::DelayedStore;
use crate::simulated_runtime::{SANDBOXES, Script, SimulatedRuntime};

pub(crate) const WORKERS_MAX: u32 = 4;
const HOST_RUNS: usize = 4;
const OPERATIONS: usize = 60;
const IDLE_S: u32 = 2;

/// The time in which all automatic actions are completed: several late answers.
pub(crate) const BRIEF_DELAY: Duration = Duration::from_millis(200);
const TIMEOUT_MS: u64 = 400;

/// Time after which a worker tries a component again.
const FAULT_PAUSE: Duration = Duration::from_secs(5);

/// Events that a failure shows.
const SHOWN: usize = 80;

/// An event with its time.
#[derive(Debug, Clone)]
pub(crate) struct Trace {
    clock: Arc<ScenarioClock>,
    events: Arc<Mutex<Vec<String>>>,
    results: Arc<Mutex<BTreeSet<(JobId, u32)>>>,
    /// Attempts that were billed although they have no result.
    unwanted: Arc<AtomicU64>,
    /// The times before which jobs may not start.
    due: Arc<Mutex<BTreeMap<JobId, Timestamp>>>,
}

impl Trace {
    pub(crate) fn record(&self, what: impl AsRef<str>) {
        self.events.lock().push(format!("{} {}", self.clock.now().as_millis(), what.as_ref()));
    }

    /// Ids carry the number of their job.
    pub(crate) fn name(job: JobId) -> String {
        let [.., a, b, _, _, _] = job.to_bytes();
        format!("job {}", u16::from_be_bytes([a, b]))
    }

    /// Notes the start of an attempt.
    pub(crate) fn starts(&self, job: JobId) {
        let (due, now) = (self.due.lock().get(&job).copied(), self.clock.now());
        assert!(due.is_none_or(|due| due <= now), "{} starts too early", Self::name(job));
    }

    pub(crate) fn billed_without_result(&self) {
        self.unwanted.fetch_add(1, Ordering::Relaxed);
    }

    /// Attempts that must be billed.
    fn billed(&self) -> u64 {
        self.results.lock().len() as u64 + self.unwanted.load(Ordering::Relaxed)
    }

    /// Notes the end of an attempt that failed, and the time of the next one.
    pub(crate) fn tried_again(&self, lease: Lease, due: Option<Timestamp>) {
        if let Some(due) = due {
            self.due.lock().insert(lease.job, due);
        }
        self.finished(lease, "to run again", true);
    }

    pub(crate) fn finished(&self, lease: Lease, verdict: &str, is_applied: bool) {
        self.record(format!("{} is {verdict}, {is_applied}", Self::name(lease.job)));
        if is_applied {
            let is_first = self.results.lock().insert((lease.job, lease.claim.0));
            assert!(is_first, "two results of one claim: {lease:?}");
        }
    }
}

/// The time, which continues from start to start.
#[derive(Debug, Default)]
struct ScenarioClock {
    before: AtomicU64,
    run_began: Mutex<Option<Instant>>,
}

impl Clock for ScenarioClock {
    fn now(&self) -> Timestamp {
        let before = self.before.load(Ordering::Relaxed);
        let began = *self.run_began.lock();
        let in_run = began.map_or(0, |began| began.elapsed().as_millis());
        Timestamp::from_millis(before + u64::try_from(in_run).unwrap())
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.now().as_millis())
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let ms = at.millis_since(self.now()).min(86_400_000);
        Box::pin(sleep(Duration::from_millis(ms)))
    }
}

/// A job that was acknowledged.
#[derive(Debug)]
struct Acknowledged {
    id: JobId,
    script: Script,
    may_be_deleted: bool,
}

pub(crate) struct Scenario {
    rng: StdRng,
    trace: Trace,
    store: Arc<ModelStore>,
    signals: Arc<Signals>,
    attempts: Arc<Mutex<BTreeMap<JobId, u32>>>,
    jobs: Vec<Acknowledged>,
    made: u16,
    /// The component can break.
    is_fragile: bool,
}

/// The host between a start and its end.
struct HostRun {
    jobs: Arc<Jobs>,
    late: Arc<DelayedStore>,
    catalog: Arc<Catalog>,
    dispatcher: Arc<Dispatcher>,
    runtime: Arc<SimulatedRuntime>,
    waiters: JoinSet<()>,
    watch: JoinHandle<()>,
}

impl Scenario {
    /// Runs a seed and returns all of its events.
    pub(crate) fn run_all(seed: u64) -> Vec<String> {
        let (trace, scenario) = Self::new(seed);
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| scenario.run_hosts()));
        let events = std::mem::take(&mut *trace.events.lock());
        if let Err(panic) = outcome {
            println!("seed {seed}, the last of {} events:", events.len());
            events.iter().rev().take(SHOWN).rev().for_each(|event| println!("  {event}"));
            std::panic::resume_unwind(panic);
        }
        events
    }

    fn new(seed: u64) -> (Trace, Self) {
        let clock = Arc::new(ScenarioClock::default());
        clock.before.store(1_700_000_000_000, Ordering::Relaxed);
        let signals = Arc::new(Signals::default());
        let trace = Trace {
            clock: clock.clone(),
            events: Arc::default(),
            results: Arc::default(),
            unwanted: Arc::default(),
            due: Arc::default(),
        };
        let scenario = Self {
            rng: StdRng::seed_from_u64(seed),
            trace: trace.clone(),
            store: Arc::new(ModelStore::new(ShardId(1), clock, signals.clone())),
            signals,
            attempts: Arc::default(),
            jobs: Vec::new(),
            made: 0,
            is_fragile: seed.is_multiple_of(4),
        };
        (trace, scenario)
    }

    fn run_hosts(mut self) {
        let clock = self.trace.clock.clone();
        for host in 0..HOST_RUNS {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                *clock.run_began.lock() = Some(Instant::now());
                self.trace.record("a life begins");
                self.run_host(host + 1 == HOST_RUNS).await;
                let now = clock.now();
                *clock.run_began.lock() = None;
                clock.before.store(now.as_millis() + 5, Ordering::Relaxed);
            });
            // All tasks of this life end; changes that were not acknowledged may or may not have
            // happened.
            drop(runtime);
            self.signals = Arc::new(Signals::default());
            self.store = Arc::new(self.store.reopen(self.signals.clone()));
        }
    }

    async fn run_host(&mut self, is_last: bool) {
        let mut host = self.begin().await;
        for _ in 0..OPERATIONS {
            assert!(!host.watch.is_finished(), "see above");
            sleep(self.pause()).await;
            self.perform_operation(&mut host).await;
        }
        if is_last {
            self.finish_all(host).await;
        } else if self.rng.random() {
            let patience = Duration::from_millis(self.rng.random_range(0..600));
            host.watch.abort();
            let drained = host.dispatcher.drain(patience).await;
            self.trace.record(format!("drained: {drained:?}"));
            host.jobs.stop_waiting();
            while host.waiters.join_next().await.is_some() {}
            assert!(host.runtime.running.lock().is_empty());
            assert_eq!(self.store.counts(&endpoint()).await.unwrap().in_progress, 0);
        } else {
            self.trace.record("the host dies");
        }
    }

    async fn begin(&mut self) -> HostRun {
        let rng = Mutex::new(StdRng::seed_from_u64(self.rng.random()));
        let (store, trace) = (self.store.clone(), self.trace.clone());
        let late = Arc::new(DelayedStore { store, rng, trace });
        let catalog =
            Arc::new(Catalog::open(self.store.clone(), self.trace.clock.clone()).await.unwrap());
        let workers_max = self.rng.random_range(1..=WORKERS_MAX);
        deploy(&catalog, workers_max).await;
        let runtime = Arc::new(SimulatedRuntime::new(self.trace.clone(), self.attempts.clone()));
        let dispatcher = Dispatcher::start(Parts {
            store: late.clone(),
            catalog: catalog.clone(),
            runtime: runtime.clone(),
            signals: self.signals.clone(),
            clock: self.trace.clock.clone(),
            logs: Arc::default(),
            tracer: Tracer::default(),
            guests: tokio::runtime::Handle::current(),
        });
        runtime.allowed.lock().set(workers_max);
        let (signals, workers) = (self.signals.clone(), dispatcher.clone());
        let jobs =
            Arc::new(Jobs::new(late.clone(), signals, workers, Strictness::Refuse, Arc::default()));
        let watch = tokio::spawn(watch(self.store.clone(), runtime.clone()));
        HostRun { jobs, late, catalog, dispatcher, runtime, waiters: JoinSet::new(), watch }
    }

    /// The pause between two actions: short, so that actions overlap; sometimes long, so that no
    /// later action hides a forgotten one.
    fn pause(&mut self) -> Duration {
        let is_long = self.rng.random_ratio(1, 8);
        let ms_max = if is_long { 2 * BRIEF_DELAY.as_millis() as u64 } else { 40 };
        Duration::from_millis(self.rng.random_range(0..ms_max))
    }

    async fn perform_operation(&mut self, host: &mut HostRun) {
        match self.rng.random_range(0..100) {
            0..60 => self.submit(host).await,
            60..72 => self.cancel(host).await,
            72..84 => self.retry(host).await,
            84..87 => {
                let purged = host.jobs.purge(&endpoint()).await.unwrap();
                self.trace.record(format!("{purged} jobs are purged"));
                if purged > 0 {
                    self.jobs.iter_mut().for_each(|job| job.may_be_deleted = true);
                }
            }
            87..92 => {
                let Some(job) = self.jobs.choose_mut(&mut self.rng) else { return };
                job.may_be_deleted = true;
                host.jobs.shorten_ttl(&endpoint(), job.id, 300).await.unwrap();
                self.trace.record(format!("{} has 300 ms", Trace::name(job.id)));
            }
            92 if self.is_fragile => {
                let broken = Duration::from_millis(self.rng.random_range(0..3_000));
                *host.runtime.broken_until.lock() = Some(Instant::now() + broken);
                self.trace.record(format!("the component is broken for {} ms", broken.as_millis()));
            }
            _ => {
                let workers_max = self.rng.random_range(0..=WORKERS_MAX);
                // Workers may see the change before the deploy returns.
                host.runtime.allowed.lock().set(workers_max);
                deploy(&host.catalog, workers_max).await;
                host.dispatcher.refresh(&endpoint());
                self.trace.record(format!("workersMax is {workers_max}"));
            }
        }
    }

    async fn submit(&mut self, host: &mut HostRun) {
        let script = match self.rng.random_range(0..10) {
            0..5 => Script::Return { after_ms: self.rng.random_range(0..60) },
            5..6 => Script::Return { after_ms: 0 },
            6..7 => Script::Fail { after_ms: self.rng.random_range(0..60) },
            7..9 => Script::Stream {
                chunks: self.rng.random_range(0..5),
                pause_ms: self.rng.random_range(0..30),
            },
            _ => Script::Hang { grace_ms: self.rng.random_range(0..50) },
        };
        self.made += 1;
        let mut bytes = [0; 19];
        bytes[14..16].copy_from_slice(&self.made.to_be_bytes());
        let id = JobId::from_bytes(&bytes).unwrap();
        let low_priority = self.rng.random_range(0..8) == 0;
        let delay_ms =
            if self.rng.random_ratio(1, 4) { self.rng.random_range(0..2_000) } else { 0 };
        let due = self.trace.clock.now().plus_millis(delay_ms);
        self.trace.due.lock().insert(id, due);
        let policy = Policy {
            execution_timeout_ms: Some(TIMEOUT_MS),
            ttl_ms: 86_400_000,
            low_priority,
            start: Start::After(delay_ms),
            retry: self.rng.random_ratio(1, 3).then(|| self.retry_rule()),
        };
        let job = NewJob {
            id,
            input: Json::from_value(&script),
            policy,
            retention: Retention::by_default(86_400_000),
            ..new_job(ShardId(0), OwnerId::new("o").unwrap(), endpoint())
        };
        let late = host.late.clone();
        assert_eq!(late.submit(job).await, Ok(SubmitAnswer::Queued));
        let name = Trace::name(id);
        self.trace.record(format!("{name} is submitted, for {delay_ms} ms later: {script:?}"));
        self.jobs.push(Acknowledged { id, script, may_be_deleted: false });
        if self.rng.random() {
            let wait = Duration::from_millis(self.rng.random_range(0..1_500));
            let (jobs, trace) = (host.jobs.clone(), self.trace.clone());
            host.waiters.spawn(async move {
                let found = jobs.wait_for_end(&endpoint(), id, wait).await.unwrap();
                let status = found.map(|record| record.status);
                trace.record(format!("who waits for {} sees {status:?}", Trace::name(id)));
            });
        }
    }

    fn retry_rule(&mut self) -> Retry {
        Retry {
            max_attempts: self.rng.random_range(1..4),
            initial_delay_ms: self.rng.random_range(0..300),
            timeouts: self.rng.random(),
            // A seed repeats its delays.
            jitter: 0,
            ..Retry::default()
        }
    }

    async fn cancel(&mut self, host: &HostRun) {
        let Some(job) = self.jobs.choose(&mut self.rng) else { return };
        let answer = host.late.cancel(&endpoint(), job.id).await.unwrap();
        self.trace.record(format!("{} is cancelled: {answer:?}", Trace::name(job.id)));
        assert!(answer.is_some_and(JobStatus::is_final) || job.may_be_deleted);
    }

    async fn retry(&mut self, host: &HostRun) {
        let Some(job) = self.jobs.choose(&mut self.rng) else { return };
        let answer = host.jobs.retry(&endpoint(), job.id, None).await.unwrap();
        self.trace.record(format!("{} is retried: {answer:?}", Trace::name(job.id)));
        assert!(answer != RetryAnswer::NotFound || job.may_be_deleted);
    }

    /// With enough time every job reaches its expected end, every call is answered, and no worker
    /// runs.
    async fn finish_all(&mut self, mut host: HostRun) {
        host.runtime.allowed.lock().set(2);
        deploy(&host.catalog, 2).await;
        host.dispatcher.refresh(&endpoint());
        for _ in 0..1_200 {
            assert!(!host.watch.is_finished(), "see above");
            sleep(Duration::from_millis(100)).await;
        }
        while let Some(answered) = host.waiters.try_join_next() {
            answered.unwrap();
        }
        assert!(host.waiters.is_empty(), "a caller still waits");
        for job in &self.jobs {
            let record = self.store.job(&endpoint(), job.id).await.unwrap();
            let status = record.map(|record| record.status);
            self.trace.record(format!("{} is {status:?} at last", Trace::name(job.id)));
            let Some(status) = status else {
                assert!(job.may_be_deleted, "{} is lost", job.id);
                continue;
            };
            let is_expected = match (job.script, status) {
                // The host crashed three times, or a client cancelled the job.
                (_, JobStatus::Failed | JobStatus::Cancelled) => true,
                (Script::Hang { .. }, status) => status == JobStatus::TimedOut,
                (Script::Fail { .. }, _) => false,
                (_, status) => status == JobStatus::Completed,
            };
            // A low-priority job waits for a worker that other jobs start.
            let waits = status == JobStatus::InQueue;
            assert!(is_expected || waits, "{} {:?} is {status:?}", Trace::name(job.id), job.script);
        }
        let billed = billed(&self.store).await;
        assert_eq!(billed, self.trace.billed(), "another number of attempts is billed than ended");
        assert_eq!(self.store.demand(&endpoint()).await.unwrap().jobs, 0, "jobs wait for ever");
        assert_eq!(self.store.fire_due(), Ok(Timestamp::NEVER), "a job is not started in time");
        let counts = host.dispatcher.counts(&endpoint());
        assert_eq!((counts.idle, counts.running, counts.initializing), (0, 0, 0));
        assert!(host.runtime.running.lock().is_empty());
        assert!(!host.watch.is_finished());
        host.watch.abort();
        assert_eq!(self.signals.watched_jobs(), 0, "a watcher is still registered");
    }
}

pub(crate) fn endpoint() -> EndpointId {
    EndpointId::new("e").unwrap()
}

/// The attempts that were billed, over all starts of the host.
async fn billed(store: &ModelStore) -> u64 {
    let filter = UsageFilter {
        endpoint: Some(endpoint()),
        template: Some(TemplateId::new("t").unwrap()),
        owner: Some(OwnerId::new("o").unwrap()),
    };
    let query = gristmill_test_support::usage_of_all_hours(filter, usize::MAX);
    let rows = store.usage(&query).await.unwrap();
    rows.iter().map(|row| row.sum.jobs).sum()
}

async fn deploy(catalog: &Catalog, workers_max: u32) {
    let owner = || OwnerId::new("o").unwrap();
    let template = Template::new(TemplateId::new("t").unwrap(), owner(), "i:latest");
    let began = Timestamp::from_millis(0);
    let endpoint = Endpoint {
        settings: EndpointSettings {
            workers_max,
            idle_timeout: IDLE_S,
            ..EndpointSettings::default()
        },
        ..Endpoint::new(endpoint(), owner(), template.id.clone(), began)
    };
    let changes = [CatalogEntry::Template(template), CatalogEntry::Endpoint(endpoint)];
    catalog
        .change(|_| Ok::<_, StoreError>((changes.map(CatalogChange::Put).into(), ())))
        .await
        .unwrap();
}

/// Checks that no job waits while a worker could run it, and that no attempt continues after its
/// job has ended.
async fn watch(store: Arc<ModelStore>, runtime: Arc<SimulatedRuntime>) {
    let mut waits_since = None;
    let mut unwanted = BTreeMap::new();
    loop {
        sleep(Duration::from_millis(10)).await;
        let demand = store.demand(&endpoint()).await.unwrap().jobs;
        let running = runtime.running.lock().clone();
        let broken_until = *runtime.broken_until.lock();
        let is_broken = broken_until.is_some_and(|until| Instant::now() < until + FAULT_PAUSE);
        let running_max = SANDBOXES.min(runtime.allowed.lock().now as usize);
        let could_run = demand > 0 && running.len() < running_max;
        let could_run = could_run && !is_broken;
        waits_since = could_run.then(|| waits_since.unwrap_or_else(Instant::now));
        assert!(
            waits_since.is_none_or(|since| since.elapsed() < BRIEF_DELAY),
            "{demand} jobs wait, {} run",
            running.len()
        );
        for job in &running {
            let record = store.job(&endpoint(), *job).await.unwrap();
            let is_wanted = record.is_some_and(|record| record.status == JobStatus::InProgress);
            if is_wanted {
                unwanted.remove(job);
            } else {
                let since: &mut Instant = unwanted.entry(*job).or_insert_with(Instant::now);
                assert!(since.elapsed() < BRIEF_DELAY, "{job} runs though it is not wanted");
            }
        }
        unwanted.retain(|job, _| running.contains(job));
    }
}
