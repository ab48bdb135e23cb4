//! The dispatcher with the in-memory store, and a runtime whose behaviour is in the job's input.
//! Time is a manual clock for the store and tokio's paused clock for the workers: no test sleeps.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry, CatalogKey};
use gristmill_core::deploy::endpoint::{
    Deployment, Endpoint, EndpointSettings, Scaler, ScalerType, Scaling,
};
use gristmill_core::deploy::template::Template;
use gristmill_core::http_call::HttpCall;
use gristmill_core::id::{EndpointId, JobId, OwnerId, ShardId, SubmissionKind, TemplateId};
use gristmill_core::job::handler_call::HandlerCall;
use gristmill_core::job::payload::Json;
use gristmill_core::job::policy::{Policy, Start};
use gristmill_core::job::record::{Chunk, JobRecord, NewJob, RequeueCause};
use gristmill_core::job::retry::{Retry, RetryWish};
use gristmill_core::job::state::JobStatus;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptReport, AttemptSink, CannotRun, FailureReason, Reservation,
    Runtime, RuntimeLoad,
};
use gristmill_core::sharing::shares::Level;
use gristmill_core::signals::Signals;
use gristmill_core::store::{JobStore, StoreError, SubmitAnswer};
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_core::trace::Tracer;
use gristmill_core::workers::Workers;
use gristmill_dispatch::{Dispatcher, Drained, Parts};
use gristmill_test_support::ModelStore;
use gristmill_test_support::new_job;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Behaves as the input's `do` says.
#[derive(Debug)]
struct ScriptedRuntime {
    sandboxes: Arc<Semaphore>,
    /// Further ones, for jobs that calls wait for.
    kept: Arc<Semaphore>,
    /// Jobs of clients that ran in one of these.
    misused: AtomicU64,
    /// Calls of `prepare`: one in each round of a worker.
    rounds: AtomicU64,
    /// The version and the identity of the deployment that ran last.
    ran: Mutex<Option<Arc<Deployment>>>,
    /// Calls of `retire`: the endpoint, and the version whose instances remain.
    retired: Mutex<Vec<(EndpointId, Option<u32>)>>,
    running: AtomicU64,
    running_max: AtomicU64,
    is_broken: AtomicBool,
    /// Whether `prepare` never ends.
    prepares_forever: AtomicBool,
}

#[async_trait]
impl Runtime for ScriptedRuntime {
    async fn prepare(&self, _: &Deployment) -> Result<(), CannotRun> {
        self.rounds.fetch_add(1, Ordering::SeqCst);
        if self.prepares_forever.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.is_broken.load(Ordering::SeqCst) {
            Err(CannotRun("it is broken".to_owned()))
        } else {
            Ok(())
        }
    }

    fn try_reserve(&self, _: &Arc<Deployment>, level: Level) -> Option<Reservation> {
        let kept = || self.kept.clone().try_acquire_owned().ok().filter(|_| level > Level::CLIENT);
        let permit = self.sandboxes.clone().try_acquire_owned().ok();
        Some(match permit {
            Some(permit) => Reservation::new((permit, false)),
            None => Reservation::new((kept()?, true)),
        })
    }

    async fn reserve(&self, _: &Arc<Deployment>, level: Level) -> Reservation {
        tokio::select! {
            permit = self.sandboxes.clone().acquire_owned() => {
                Reservation::new((permit.unwrap(), false))
            }
            permit = self.kept.clone().acquire_owned(), if level > Level::CLIENT => {
                Reservation::new((permit.unwrap(), true))
            }
        }
    }

    fn retire(&self, endpoint: &EndpointId, current: Option<&Arc<Deployment>>) {
        let version = current.map(|current| current.endpoint.version);
        self.retired.lock().push((endpoint.clone(), version));
    }

    fn load(&self) -> RuntimeLoad {
        RuntimeLoad { running: self.running.load(Ordering::SeqCst), idle: 0, waiting: 0 }
    }

    async fn perform(
        &self,
        reservation: Reservation,
        attempt: Attempt,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport {
        let room = reservation.downcast::<(OwnedSemaphorePermit, bool)>().unwrap();
        let is_of_client = !matches!(attempt.key.job.submission(), SubmissionKind::Handler(_));
        self.misused.fetch_add((room.1 && is_of_client).into(), Ordering::SeqCst);
        *self.ran.lock() = Some(attempt.deployment.clone());
        let running = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.running_max.fetch_max(running, Ordering::SeqCst);
        let script: serde_json::Value = attempt.input.read().unwrap();
        let end = match script["do"].as_str().unwrap() {
            "return" => AttemptEnd::Returned(Json::from_value(&attempt.number)),
            "fail" => AttemptEnd::Failed { reason: FailureReason::Handler, error: "no".into() },
            "time out" => AttemptEnd::DeadlineReached,
            "find no memory" if attempt.number == 1 => AttemptEnd::NoMemory,
            "find no memory" => AttemptEnd::Returned(Json::from_value(&attempt.number)),
            "work" => {
                tokio::time::sleep(Duration::from_millis(100)).await;
                AttemptEnd::Returned(Json::null())
            }
            "wait" => {
                attempt.stop.cancelled().await;
                AttemptEnd::Stopped
            }
            "stream" => {
                for i in 0..3 {
                    let chunk = Chunk { output: Json::from_value(&i), metrics: None, part: None };
                    sink.emit(vec![chunk]).await.unwrap();
                }
                sink.progress(Json::from_value(&"almost"));
                attempt.stop.cancelled().await;
                AttemptEnd::Stopped
            }
            call => {
                let call = match call.strip_prefix("later ") {
                    Some(call) => {
                        tokio::time::sleep(Duration::from_millis(100)).await;
                        call
                    }
                    None => call,
                };
                let Some(depth) = call.strip_prefix("call ") else { panic!("{call}?") };
                let next = match depth.parse::<u8>().unwrap() {
                    1 => "work".to_owned(),
                    depth => format!("call {}", depth - 1),
                };
                let input = Json::from_value(&serde_json::json!({ "do": next }));
                let call =
                    HandlerCall { endpoint: "e".into(), input, idempotency_key: None, job: None };
                tokio::select! {
                    output = sink.host().unwrap().call(call) => match output {
                        Ok(output) => AttemptEnd::Returned(output),
                        Err(error) => AttemptEnd::Failed {
                            reason: FailureReason::Handler,
                            error: format!("{error:?}"),
                        },
                    },
                    () = attempt.stop.cancelled() => AttemptEnd::Stopped,
                }
            }
        };
        self.running.fetch_sub(1, Ordering::SeqCst);
        let wish = match &script["wish"] {
            serde_json::Value::Null => None,
            serde_json::Value::Number(ms) => Some(RetryWish::After(ms.as_u64().unwrap())),
            _ => Some(RetryWish::Never),
        };
        AttemptReport { wish, ..end.into() }
    }

    /// No test sends requests.
    async fn serve(
        &self,
        _: Reservation,
        _: Attempt<HttpCall>,
        _: Arc<dyn AttemptSink>,
    ) -> AttemptReport<()> {
        AttemptEnd::Stopped.into()
    }
}

struct Bench {
    store: Arc<ModelStore>,
    clock: Arc<ManualClock>,
    runtime: Arc<ScriptedRuntime>,
    dispatcher: Arc<Dispatcher>,
    catalog: Arc<Catalog>,
    endpoint: EndpointId,
}

impl Bench {
    async fn new(workers_min: u32, workers_max: u32) -> Self {
        Self::with_sandboxes(workers_min, workers_max, 1_000).await
    }

    async fn with_sandboxes(workers_min: u32, workers_max: u32, sandboxes: usize) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000_000)));
        let signals = Arc::new(Signals::default());
        let store = Arc::new(ModelStore::new(ShardId(1), clock.clone(), signals.clone()));
        let catalog = Arc::new(Catalog::open(store.clone(), clock.clone()).await.unwrap());
        let scaling = Scaling { workers_min, workers_max, ..Scaling::default() };
        deploy(&catalog, scaling).await;
        let runtime = Arc::new(ScriptedRuntime {
            sandboxes: Arc::new(Semaphore::new(sandboxes)),
            kept: Arc::new(Semaphore::new(0)),
            misused: AtomicU64::default(),
            rounds: AtomicU64::new(0),
            ran: Mutex::default(),
            retired: Mutex::default(),
            running: AtomicU64::default(),
            running_max: AtomicU64::default(),
            is_broken: AtomicBool::default(),
            prepares_forever: AtomicBool::default(),
        });
        let dispatcher = Dispatcher::start(Parts {
            store: store.clone(),
            catalog: catalog.clone(),
            runtime: runtime.clone(),
            signals,
            clock: clock.clone(),
            logs: Arc::default(),
            tracer: Tracer::default(),
            guests: tokio::runtime::Handle::current(),
        });
        // The calls at the start.
        runtime.retired.lock().clear();
        let endpoint = EndpointId::new("e").unwrap();
        Self { store, clock, runtime, dispatcher, catalog, endpoint }
    }

    async fn submit(&self, script: &str, low_priority: bool) -> JobId {
        let policy = Policy {
            execution_timeout_ms: Some(60_000),
            ttl_ms: 3_600_000,
            low_priority,
            start: Start::Now,
            retry: None,
        };
        self.submit_with(script, policy).await
    }

    async fn submit_with(&self, script: &str, policy: Policy) -> JobId {
        self.submit_input(&serde_json::json!({ "do": script }), policy).await
    }

    async fn submit_input(&self, input: &serde_json::Value, policy: Policy) -> JobId {
        let id = JobId::generate(SubmissionKind::Async, self.store.shard());
        let input = Json::from_value(input);
        let job = NewJob {
            id,
            input,
            policy,
            ..new_job(self.store.shard(), OwnerId::new("o").unwrap(), self.endpoint.clone())
        };
        assert_eq!(self.store.submit(job).await, Ok(SubmitAnswer::Queued));
        id
    }

    async fn record(&self, id: JobId) -> Option<JobRecord> {
        self.store.job(&self.endpoint, id).await.unwrap().map(|record| *record)
    }

    async fn status(&self, id: JobId) -> Option<JobStatus> {
        self.record(id).await.map(|record| record.status)
    }

    /// Lets the time pass, for the store and for tasks.
    async fn pass(&self, ms: u64) {
        for _ in 0..ms.div_ceil(100) {
            self.clock.advance(ms.min(100));
            tokio::time::sleep(Duration::from_millis(ms.min(100))).await;
        }
    }

    /// Runs tasks until the job has this status; fails after a second of paused time.
    async fn until(&self, id: JobId, status: Option<JobStatus>) {
        for _ in 0..10_000 {
            if self.status(id).await == status {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("job is {:?}, not {status:?}", self.status(id).await);
    }
}

async fn deploy(catalog: &Catalog, scaling: Scaling) {
    let template =
        Template::new(TemplateId::new("t").unwrap(), OwnerId::new("o").unwrap(), "i:latest");
    let mut endpoint = Endpoint::new(
        EndpointId::new("e").unwrap(),
        OwnerId::new("o").unwrap(),
        template.id.clone(),
        Timestamp::from_millis(0),
    );
    let (scaler_type, scaler_value) = match scaling.scaler {
        Scaler::QueueDelay(seconds) => (ScalerType::QueueDelay, seconds),
        Scaler::RequestCount(jobs) => (ScalerType::RequestCount, jobs),
    };
    endpoint.settings = EndpointSettings {
        workers_min: scaling.workers_min,
        workers_max: scaling.workers_max,
        paused: scaling.paused,
        idle_timeout: scaling.idle_timeout_s,
        scaler_type,
        scaler_value,
        call_endpoints: vec![endpoint.id.clone()],
        ..EndpointSettings::default()
    };
    let changes = [CatalogEntry::Template(template), CatalogEntry::Endpoint(endpoint)];
    catalog
        .change(|_| Ok::<_, StoreError>((changes.map(CatalogChange::Put).into(), ())))
        .await
        .unwrap();
}

const COMPLETED: Option<JobStatus> = Some(JobStatus::Completed);

#[tokio::test(start_paused = true)]
async fn each_end_of_an_attempt_becomes_the_jobs_status() {
    let bench = Bench::new(0, 4).await;
    let ends = [
        ("return", JobStatus::Completed, None),
        ("fail", JobStatus::Failed, Some("no")),
        ("time out", JobStatus::TimedOut, Some("executionTimeout exceeded")),
    ];
    for (script, status, error) in ends {
        let id = bench.submit(script, false).await;
        bench.until(id, Some(status)).await;
        assert_eq!(bench.record(id).await.unwrap().error.as_deref(), error);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_without_memory_waits_again_and_loses_no_try() {
    let bench = Bench::new(0, 4).await;
    let id = bench.submit("find no memory", false).await;
    bench.until(id, Some(JobStatus::Completed)).await;
    let record = bench.record(id).await.unwrap();
    let ends: Vec<_> = record.past_attempts.iter().map(|past| past.end).collect();
    assert_eq!((ends, record.retries), (vec![RequeueCause::NoMemory], 0));
}

#[tokio::test(start_paused = true)]
async fn the_workers_grow_with_the_queue_and_shrink_when_idle() {
    let bench = Bench::new(1, 4).await;
    let mut jobs = vec![];
    for _ in 0..20 {
        jobs.push(bench.submit("work", false).await);
    }
    for id in jobs {
        bench.until(id, COMPLETED).await;
    }
    assert_eq!(bench.runtime.running_max.load(Ordering::SeqCst), 4, "workersMax");
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).idle, 4);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).idle, 1, "workersMin");
}

#[tokio::test(start_paused = true)]
async fn a_worker_may_have_several_jobs_before_another_is_started() {
    let bench = Bench::new(0, 9).await;
    let scaler = Scaler::RequestCount(4);
    deploy(&bench.catalog, Scaling { workers_max: 9, scaler, ..Scaling::default() }).await;
    // One running job and six waiting ones: two workers for seven jobs, three from the ninth on.
    for (jobs, workers) in [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3), (40, 9)] {
        while bench.store.counts(&bench.endpoint).await.unwrap().in_progress
            + bench.store.demand(&bench.endpoint).await.unwrap().jobs
            < jobs
        {
            bench.submit("wait", false).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let counts = bench.dispatcher.counts(&bench.endpoint);
        assert_eq!((counts.running, counts.idle), (workers, 0), "{jobs} jobs");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_waited_for_too_long_gets_another_worker() {
    let bench = Bench::new(0, 3).await;
    let scaler = Scaler::QueueDelay(4);
    deploy(&bench.catalog, Scaling { workers_max: 3, scaler, ..Scaling::default() }).await;
    let mut jobs = vec![];
    for _ in 0..5 {
        jobs.push(bench.submit("wait", false).await);
    }
    let mut running = vec![];
    for _ in 0..8 {
        bench.pass(2_000).await;
        running.push(bench.dispatcher.counts(&bench.endpoint).running);
    }
    assert_eq!(running, [1, 2, 2, 3, 3, 3, 3, 3], "one more for each 4 s, up to workersMax");
    let reason = bench.dispatcher.waiting_reason(&bench.endpoint).unwrap();
    assert!(reason.contains("all 3 workers are busy"), "{reason}");
    for job in jobs {
        bench.store.cancel(&bench.endpoint, job).await.unwrap();
    }
    bench.pass(10_000).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).running, 0);
    // The next jobs start another watcher.
    bench.submit("wait", false).await;
    bench.pass(1).await;
    let second = bench.submit("wait", false).await;
    bench.pass(1_000).await;
    let reason = bench.dispatcher.waiting_reason(&bench.endpoint).unwrap();
    assert!(reason.contains("4 s"), "{reason}");
    bench.pass(3_500).await;
    assert_eq!(bench.status(second).await, Some(JobStatus::InProgress));
}

#[tokio::test(start_paused = true)]
async fn a_shorter_delay_of_the_scaler_counts_at_once() {
    let bench = Bench::new(0, 3).await;
    let delay = async |seconds| {
        let scaler = Scaler::QueueDelay(seconds);
        deploy(&bench.catalog, Scaling { workers_max: 3, scaler, ..Scaling::default() }).await;
        bench.dispatcher.refresh(&bench.endpoint);
    };
    delay(3_600).await;
    for _ in 0..2 {
        bench.submit("wait", false).await;
    }
    bench.pass(2_000).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).running, 1);
    delay(4).await;
    bench.pass(3_000).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).running, 2);
}

#[tokio::test(start_paused = true)]
async fn a_single_waiting_job_gets_a_worker_once_there_may_be_more() {
    let bench = Bench::new(0, 1).await;
    let scaling =
        |workers_max| Scaling { workers_max, scaler: Scaler::QueueDelay(4), ..Scaling::default() };
    deploy(&bench.catalog, scaling(1)).await;
    for _ in 0..2 {
        bench.submit("wait", false).await;
    }
    bench.pass(10_000).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).running, 1);
    deploy(&bench.catalog, scaling(5)).await;
    bench.dispatcher.refresh(&bench.endpoint);
    bench.pass(1_000).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).running, 2);
}

#[tokio::test(start_paused = true)]
async fn a_paused_endpoint_has_no_workers_and_goes_on_with_its_own_number() {
    let bench = Bench::new(2, 3).await;
    let set = async |paused| {
        let scaling = Scaling { workers_min: 2, workers_max: 3, paused, ..Scaling::default() };
        deploy(&bench.catalog, scaling).await;
        bench.dispatcher.refresh(&bench.endpoint);
        bench.pass(2_000).await;
    };
    set(true).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).idle, 0, "kept workers end too");
    for _ in 0..5 {
        bench.submit("wait", false).await;
    }
    bench.pass(10_000).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).running, 0);
    let reason = bench.dispatcher.waiting_reason(&bench.endpoint);
    assert_eq!(reason.as_deref(), Some("the endpoint is paused"));
    set(false).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).running, 3);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_keeps_no_worker_from_starting() {
    let bench = Bench::new(0, 3).await;
    let scaler = Scaler::QueueDelay(4);
    deploy(&bench.catalog, Scaling { workers_max: 3, scaler, ..Scaling::default() }).await;
    for _ in 0..5 {
        bench.submit("wait", false).await;
    }
    bench.pass(1_000).await;
    bench.clock.jump(-600_000);
    let mut running = vec![];
    for _ in 0..6 {
        bench.pass(2_000).await;
        running.push(bench.dispatcher.counts(&bench.endpoint).running);
    }
    assert_eq!(running, [1, 2, 2, 3, 3, 3], "one more for each 4 s");
}

/// A wake-up must not reach a worker that runs a long job and registered before it claimed: the new
/// job would wait for this worker although another one sleeps.
#[tokio::test(start_paused = true)]
async fn a_sleeping_worker_is_woken_while_another_runs_a_long_job() {
    let bench = Bench::new(0, 2).await;
    let long = bench.submit("wait", false).await;
    bench.until(long, Some(JobStatus::InProgress)).await;
    for _ in 0..3 {
        let short = bench.submit("return", false).await;
        bench.until(short, COMPLETED).await;
    }
    assert_eq!(bench.status(long).await, Some(JobStatus::InProgress));
}

#[tokio::test(start_paused = true)]
async fn low_priority_runs_only_on_workers_that_exist_already() {
    let bench = Bench::new(0, 4).await;
    let low = bench.submit("return", true).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.status(low).await, Some(JobStatus::InQueue));
    let reason = bench.dispatcher.waiting_reason(&bench.endpoint).unwrap();
    assert!(reason.contains("worker"), "{reason}");
    let normal = bench.submit("return", false).await;
    bench.until(normal, COMPLETED).await;
    bench.until(low, COMPLETED).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_job_runs_again_as_its_handler_wishes() {
    let bench = Bench::new(0, 1).await;
    let rule = Retry { max_attempts: 2, initial_delay_ms: 60_000, jitter: 0, ..Retry::default() };
    let wishes = [
        (serde_json::json!(null), Some(60_000)),
        (serde_json::json!(2_000), Some(2_000)),
        (serde_json::json!("never"), None),
    ];
    for (wish, delay_ms) in wishes {
        let policy = Policy {
            execution_timeout_ms: Some(60_000),
            ttl_ms: 3_600_000,
            low_priority: false,
            start: Start::Now,
            retry: Some(rule),
        };
        let input = serde_json::json!({ "do": "fail", "wish": wish });
        let id = bench.submit_input(&input, policy).await;
        let began = bench.store.now();
        if let Some(ms) = delay_ms {
            while bench.record(id).await.unwrap().retries == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            let record = bench.record(id).await.unwrap();
            assert_eq!(record.status, JobStatus::InQueue, "{wish}");
            assert_eq!(record.queued_at, began.plus_millis(ms), "{wish}");
            bench.pass(ms).await;
        }
        bench.until(id, Some(JobStatus::Failed)).await;
        assert_eq!(
            bench.record(id).await.unwrap().retries,
            u32::from(delay_ms.is_some()),
            "{wish}"
        );
    }
}

/// The ttl deletes a job whose time is over. It does so only much later if the clock is set back
/// meanwhile, and the job must not seem to run until then.
#[tokio::test(start_paused = true)]
async fn a_job_that_outlives_its_ttl_on_a_clock_that_is_set_back_times_out() {
    let bench = Bench::new(0, 1).await;
    let policy = Policy {
        execution_timeout_ms: Some(60_000),
        ttl_ms: 10_000,
        low_priority: false,
        start: Start::Now,
        retry: None,
    };
    // Its handler ends at the deadline although the store's clock has not reached the ttl.
    let id = bench.submit_with("time out", policy).await;
    bench.until(id, Some(JobStatus::TimedOut)).await;
}

/// `workersMin` keeps a worker for it, also after a fault that passes by itself.
#[tokio::test(start_paused = true)]
async fn low_priority_runs_after_a_fault_that_has_passed() {
    let bench = Bench::new(1, 4).await;
    bench.runtime.is_broken.store(true, Ordering::SeqCst);
    bench.dispatcher.refresh(&bench.endpoint);
    tokio::time::sleep(Duration::from_millis(10)).await;
    let low = bench.submit("return", true).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.status(low).await, Some(JobStatus::InQueue));
    bench.runtime.is_broken.store(false, Ordering::SeqCst);
    bench.until(low, COMPLETED).await;
}

#[tokio::test(start_paused = true)]
async fn a_cancel_and_the_ttl_stop_the_running_attempt() {
    let bench = Bench::new(0, 4).await;
    let cancelled = bench.submit("wait", false).await;
    let expired = bench.submit("wait", false).await;
    bench.until(cancelled, Some(JobStatus::InProgress)).await;
    bench.until(expired, Some(JobStatus::InProgress)).await;
    bench.store.cancel(&bench.endpoint, cancelled).await.unwrap();
    bench.until(cancelled, Some(JobStatus::Cancelled)).await;
    bench.clock.advance(3_600_001);
    bench.until(expired, None).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(bench.runtime.running.load(Ordering::SeqCst), 0, "both attempts have ended");
}

#[tokio::test(start_paused = true)]
async fn chunks_and_progress_reach_the_store_while_the_job_runs() {
    let bench = Bench::new(0, 1).await;
    let id = bench.submit("stream", false).await;
    bench.until(id, Some(JobStatus::InProgress)).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let record = bench.record(id).await.unwrap();
    assert_eq!(record.chunk_count, 3);
    assert_eq!(record.progress.unwrap().as_str(), "\"almost\"");
    bench.store.cancel(&bench.endpoint, id).await.unwrap();
    bench.until(id, Some(JobStatus::Cancelled)).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_cannot_be_run_says_why_and_runs_once_it_can() {
    let bench = Bench::new(0, 2).await;
    bench.runtime.is_broken.store(true, Ordering::SeqCst);
    let id = bench.submit("return", false).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(bench.status(id).await, Some(JobStatus::InQueue));
    let reason = bench.dispatcher.waiting_reason(&bench.endpoint).unwrap();
    assert!(reason.contains("it is broken"), "{reason}");
    assert!(bench.dispatcher.counts(&bench.endpoint).unhealthy > 0);
    bench.runtime.is_broken.store(false, Ordering::SeqCst);
    bench.dispatcher.refresh(&bench.endpoint);
    bench.until(id, COMPLETED).await;
    assert_eq!(bench.dispatcher.waiting_reason(&bench.endpoint), None);

    bench.runtime.is_broken.store(true, Ordering::SeqCst);
    let by_itself = bench.submit("return", false).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.status(by_itself).await, Some(JobStatus::InQueue));
    bench.runtime.is_broken.store(false, Ordering::SeqCst);
    bench.until(by_itself, COMPLETED).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_waits_for_a_sandbox_is_still_in_the_queue() {
    let bench = Bench::with_sandboxes(0, 4, 1).await;
    bench.pass(1).await;
    let running = bench.submit("wait", false).await;
    bench.until(running, Some(JobStatus::InProgress)).await;
    let low = bench.submit("wait", true).await;
    let normal = bench.submit("wait", false).await;
    let purged = bench.submit("wait", false).await;
    // Longer than the executionTimeout.
    bench.pass(61_000).await;
    for job in [low, normal, purged] {
        assert_eq!(bench.status(job).await, Some(JobStatus::InQueue));
    }
    let counts = bench.dispatcher.counts(&bench.endpoint);
    assert_eq!((counts.running, counts.throttled, counts.idle), (1, 2, 0));
    let reason = bench.dispatcher.waiting_reason(&bench.endpoint).unwrap();
    assert!(reason.contains("waits for a sandbox"), "{reason}");
    bench.store.cancel(&bench.endpoint, purged).await.unwrap();
    bench.store.cancel(&bench.endpoint, running).await.unwrap();
    bench.until(normal, Some(JobStatus::InProgress)).await;
    assert_eq!(bench.status(low).await, Some(JobStatus::InQueue), "it came first, and yields");
    let record = bench.record(normal).await.unwrap();
    assert!(record.delay_ms(bench.store.now()) >= 61_000);
    assert_eq!(record.execution_ms(bench.store.now()), 0);
    assert_eq!(bench.store.purge(&bench.endpoint).await, Ok(1));
    bench.store.cancel(&bench.endpoint, normal).await.unwrap();
    bench.pass(10_000).await;
    let counts = bench.dispatcher.counts(&bench.endpoint);
    assert_eq!((counts.running, counts.throttled), (0, 0));
    assert_eq!(
        bench.runtime.sandboxes.available_permits(),
        1,
        "no worker keeps a permit without a job"
    );
}

#[tokio::test(start_paused = true)]
async fn a_long_queue_costs_few_workers_until_there_are_sandboxes() {
    let bench = Bench::with_sandboxes(0, 1_000, 3).await;
    bench.pass(1).await;
    for _ in 0..100 {
        bench.submit("wait", false).await;
    }
    for _ in 0..3 {
        bench.pass(1_000).await;
        let counts = bench.dispatcher.counts(&bench.endpoint);
        assert_eq!((counts.running, counts.idle), (3, 0));
        assert!((1..=2).contains(&counts.throttled), "{counts:?}");
        bench.dispatcher.refresh(&bench.endpoint);
    }
    bench.runtime.sandboxes.add_permits(50);
    bench.pass(1_000).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).running, 53);
    bench.runtime.sandboxes.add_permits(1_000);
    bench.pass(1_000).await;
    let counts = bench.dispatcher.counts(&bench.endpoint);
    assert_eq!((counts.running, counts.throttled), (100, 0));
}

#[tokio::test(start_paused = true)]
async fn a_long_queue_gets_a_worker_for_each_job_and_no_more() {
    let bench = Bench::new(0, 1).await;
    for _ in 0..40 {
        bench.submit("wait", false).await;
    }
    deploy(&bench.catalog, Scaling { workers_max: 1_000, ..Scaling::default() }).await;
    bench.dispatcher.refresh(&bench.endpoint);
    bench.pass(1_000).await;
    let counts = bench.dispatcher.counts(&bench.endpoint);
    assert_eq!((counts.running, counts.idle), (40, 0));
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_job_was_deleted_stops_waiting_for_a_sandbox() {
    let bench = Bench::with_sandboxes(0, 4, 0).await;
    bench.pass(1).await;
    let job = bench.submit("return", false).await;
    bench.pass(100).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).throttled, 1);
    bench.store.cancel(&bench.endpoint, job).await.unwrap();
    bench.pass(2_000).await;
    let counts = bench.dispatcher.counts(&bench.endpoint);
    assert_eq!((counts.throttled, counts.idle), (0, 1));
    // The next job is not forgotten.
    bench.runtime.sandboxes.add_permits(1);
    let next = bench.submit("return", false).await;
    bench.until(next, COMPLETED).await;
}

#[tokio::test(start_paused = true)]
async fn jobs_that_call_each_other_in_chains_end_on_one_worker() {
    let bench = Bench::with_sandboxes(0, 1, 5).await;
    let mut jobs = Vec::new();
    for _ in 0..6 {
        jobs.push(bench.submit("call 4", false).await);
    }
    for job in jobs {
        bench.until(job, COMPLETED).await;
    }
    assert_eq!(bench.runtime.running_max.load(Ordering::SeqCst), 5, "one chain at a time");
    bench.pass(10_000).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).running, 0);
    assert_eq!(bench.runtime.sandboxes.available_permits(), 5);
}

/// The workers that wait for the sandbox of a client's job ask for that of the called job.
#[tokio::test(start_paused = true)]
async fn a_called_job_is_served_although_workers_wait_for_clients_jobs() {
    for (depth, kept) in [(1, 1), (2, 2), (1, 3)] {
        let bench = Bench::with_sandboxes(0, 20, 3).await;
        bench.runtime.kept.add_permits(kept);
        let mut jobs = vec![];
        for _ in 0..12 {
            jobs.push(bench.submit(&format!("later call {depth}"), false).await);
        }
        for job in jobs {
            bench.until(job, COMPLETED).await;
        }
        assert_eq!(bench.runtime.misused.load(Ordering::SeqCst), 0);
        bench.pass(10_000).await;
        let free = [&bench.runtime.sandboxes, &bench.runtime.kept].map(|of| of.available_permits());
        assert_eq!(free, [3, kept]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_caller_leaves_its_place_and_its_job_to_others() {
    let bench = Bench::new(0, 1).await;
    let caller = bench.submit("call 1", false).await;
    bench.until(caller, Some(JobStatus::InProgress)).await;
    let other = bench.submit("wait", false).await;
    bench.store.cancel(&bench.endpoint, caller).await.unwrap();
    bench.until(other, Some(JobStatus::InProgress)).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).running, 1);
    assert_eq!(bench.store.demand(&bench.endpoint).await.unwrap().called, 0);
    bench.store.cancel(&bench.endpoint, other).await.unwrap();
    bench.pass(10_000).await;
    assert_eq!(bench.store.counts(&bench.endpoint).await.unwrap().in_queue, 0);
}

#[tokio::test(start_paused = true)]
async fn workers_that_workers_min_keeps_sleep_until_there_is_work() {
    let bench = Bench::new(3, 4).await;
    bench.pass(10_000).await;
    let rounds = || bench.runtime.rounds.load(Ordering::SeqCst);
    let before = rounds();
    bench.pass(100_000).await;
    assert_eq!(rounds(), before, "no worker does anything");
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).idle, 3);
    for _ in 0..5 {
        let job = bench.submit("return", false).await;
        bench.until(job, COMPLETED).await;
    }
    deploy(&bench.catalog, Scaling::default()).await;
    bench.dispatcher.refresh(&bench.endpoint);
    bench.pass(10_000).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).idle, 0, "workersMin is 0 now");
}

#[tokio::test(start_paused = true)]
async fn workers_that_wait_for_a_sandbox_do_not_delay_a_drain() {
    let bench = Bench::with_sandboxes(0, 4, 0).await;
    bench.pass(1).await;
    let job = bench.submit("return", false).await;
    bench.pass(100).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).throttled, 1);
    let patience = Duration::from_secs(10);
    assert_eq!(bench.dispatcher.drain(patience).await, Drained::Finished);
    assert_eq!(bench.status(job).await, Some(JobStatus::InQueue));
    assert_eq!(bench.record(job).await.unwrap().started_at, None);
}

/// The preparation counts the files of a volume, which may take minutes.
#[tokio::test(start_paused = true)]
async fn a_job_waits_in_the_queue_while_its_deployment_is_prepared_and_delays_no_drain() {
    let bench = Bench::new(0, 1).await;
    bench.runtime.prepares_forever.store(true, Ordering::SeqCst);
    let job = bench.submit("return", false).await;
    bench.pass(100_000).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).initializing, 1);
    // A change of the endpoint does not end the preparation.
    bench.dispatcher.refresh(&bench.endpoint);
    bench.pass(100).await;
    assert_eq!(bench.runtime.rounds.load(Ordering::SeqCst), 1);
    assert_eq!(bench.dispatcher.drain(Duration::from_secs(10)).await, Drained::Finished);
    let record = bench.record(job).await.unwrap();
    assert_eq!((record.status, record.started_at), (JobStatus::InQueue, None));
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_what_is_deployed_when_it_starts() {
    let bench = Bench::with_sandboxes(0, 1, 0).await;
    let job = bench.submit("return", false).await;
    bench.pass(100).await;
    assert_eq!(bench.dispatcher.counts(&bench.endpoint).throttled, 1);
    // Changed while its worker waits, without a notification.
    let idle_timeout_s = 6;
    deploy(&bench.catalog, Scaling { workers_max: 1, idle_timeout_s, ..Scaling::default() }).await;
    bench.runtime.sandboxes.add_permits(1);
    bench.until(job, COMPLETED).await;
    let current = bench.catalog.deployment(&bench.endpoint).unwrap();
    assert!(Arc::ptr_eq(bench.runtime.ran.lock().as_ref().unwrap(), &current));
    let retired = (bench.endpoint.clone(), Some(current.endpoint.version));
    assert_eq!(*bench.runtime.retired.lock(), [retired], "what the worker ran before");
}

#[tokio::test(start_paused = true)]
async fn the_instance_of_a_deleted_endpoints_job_is_retired() {
    let bench = Bench::new(0, 1).await;
    let job = bench.submit("work", false).await;
    bench.until(job, Some(JobStatus::InProgress)).await;
    let delete = CatalogChange::Delete(CatalogKey::Endpoint(bench.endpoint.clone()));
    bench.catalog.change(|_| Ok::<_, StoreError>((vec![delete], ()))).await.unwrap();
    bench.dispatcher.refresh(&bench.endpoint);
    assert_eq!(bench.runtime.retired.lock().len(), 1);
    bench.pass(1_000).await;
    let retired = (bench.endpoint.clone(), None);
    assert_eq!(*bench.runtime.retired.lock(), [retired.clone(), retired], "again, after the job");
}

#[tokio::test(start_paused = true)]
async fn a_paused_endpoint_keeps_its_jobs_until_it_is_resumed() {
    let bench = Bench::new(0, 0).await;
    let id = bench.submit("return", false).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reason = bench.dispatcher.waiting_reason(&bench.endpoint).unwrap();
    assert!(reason.contains("paused"), "{reason}");
    deploy(&bench.catalog, Scaling { workers_max: 1, ..Scaling::default() }).await;
    bench.dispatcher.refresh(&bench.endpoint);
    bench.until(id, COMPLETED).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_jobs_that_end_and_requeues_those_that_do_not() {
    let bench = Bench::new(0, 4).await;
    let quick = bench.submit("work", false).await;
    bench.until(quick, Some(JobStatus::InProgress)).await;
    assert_eq!(bench.dispatcher.drain(Duration::from_secs(10)).await, Drained::Finished);
    assert_eq!(bench.status(quick).await, COMPLETED);

    let bench = Bench::new(0, 4).await;
    let endless = bench.submit("wait", false).await;
    bench.until(endless, Some(JobStatus::InProgress)).await;
    assert_eq!(bench.dispatcher.drain(Duration::from_secs(10)).await, Drained::Requeued);
    let record = bench.record(endless).await.unwrap();
    assert_eq!((record.status, record.retries), (JobStatus::InQueue, 0));
    let late = bench.submit("return", false).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.status(late).await, Some(JobStatus::InQueue), "nothing starts in a drain");
}
