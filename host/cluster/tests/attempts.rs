//! An active host and its runners in one process, over the real protocol. Their runtimes do what the input of an
//! attempt says.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gristmill_cluster::{
    ClusterRuntime, Runner, RunnerSettings, Runners, RunnersSettings, SandboxSource,
};
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry, CatalogKey, Component, Image};
use gristmill_core::deploy::endpoint::{Deployment, Endpoint};
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{EndpointId, JobId, OwnerId, ShardId, Submission, TemplateId, VolumeId};
use gristmill_core::job::handler_call::{CallError, HandlerCall};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, Part, S3Config};
use gristmill_core::job::signals::Signals;
use gristmill_core::job::state::JobStatus;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptReport, AttemptSink, CannotRun, FailureReason, LogLevel,
    Reservation, Runtime, RuntimeLoad, SinkClosed, Usage,
};
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::store::StoreError;
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_core::trace::TraceContext;
use gristmill_store::ModelStore;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Longest time of anything that a test waits for.
const PATIENCE: Duration = Duration::from_secs(20);

const MIB: u64 = 1 << 20;

/// Does what the input's `do` says.
#[derive(Debug)]
struct Scripted {
    name: &'static str,
    sandboxes: Arc<Semaphore>,
    running: AtomicUsize,
    dropped: AtomicUsize,
    retired: Mutex<Vec<EndpointId>>,
    cannot_run: AtomicBool,
}

/// An attempt that is in progress.
struct Running<'a>(&'a Scripted, bool);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Scripted {
    fn new(name: &'static str, sandboxes: usize) -> Arc<Self> {
        Arc::new(Self {
            name,
            sandboxes: Arc::new(Semaphore::new(sandboxes)),
            running: AtomicUsize::new(0),
            dropped: AtomicUsize::new(0),
            retired: Mutex::default(),
            cannot_run: AtomicBool::new(false),
        })
    }

    fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }
}

fn text(value: &str) -> Json {
    Json::from_value(&value)
}

#[async_trait]
impl Runtime for Scripted {
    async fn prepare(&self, _: &Deployment) -> Result<(), CannotRun> {
        match self.cannot_run.load(Ordering::SeqCst) {
            true => Err(CannotRun("the mill stands still".to_owned())),
            false => Ok(()),
        }
    }

    fn try_reserve(&self, _: &Arc<Deployment>) -> Option<Reservation> {
        self.sandboxes.clone().try_acquire_owned().ok().map(Reservation::new)
    }

    async fn reserve(&self, _: &Arc<Deployment>) -> Reservation {
        Reservation::new(self.sandboxes.clone().acquire_owned().await.unwrap())
    }

    fn retire(&self, endpoint: &EndpointId, _: Option<&Arc<Deployment>>) {
        self.retired.lock().push(endpoint.clone());
    }

    fn load(&self) -> RuntimeLoad {
        RuntimeLoad { running: self.running() as u64, idle: 0, waiting: 0 }
    }

    async fn perform(
        &self,
        reservation: Reservation,
        attempt: Attempt,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport {
        let _permit = reservation.downcast::<OwnedSemaphorePermit>().unwrap();
        self.running.fetch_add(1, Ordering::SeqCst);
        let mut running = Running(self, false);
        let script: Value = attempt.input.read().unwrap();
        let end = match script["do"].as_str().unwrap() {
            "host" => AttemptEnd::Returned(text(self.name)),
            "show" => AttemptEnd::Returned(Json::from_value(&json!({
                "job": attempt.job.to_string(),
                "number": attempt.number,
                "image": attempt.deployment.template.image,
                "env": attempt.deployment.environment().collect::<Vec<_>>(),
                "component": attempt.deployment.component.unwrap().to_string(),
                "bucket": attempt.s3_config.map(|s3| s3.bucket_name.clone()),
                "trace": attempt.trace.map(|trace| (trace.to_string(), trace.state.as_str().map(str::to_owned))),
                "timeout": attempt.timeout_ms,
                "soon": attempt.deadline <= Instant::now() + Duration::from_secs(61),
            }))),
            "echo" => AttemptEnd::Returned(Json::from_value(&script["value"])),
            "fail" => {
                AttemptEnd::Failed { reason: FailureReason::Trap, error: "ground down".into() }
            }
            "wait" => {
                attempt.stop.cancelled().await;
                AttemptEnd::Stopped
            }
            "hang" => std::future::pending().await,
            "emit" => {
                let bytes = usize::try_from(script["bytes"].as_u64().unwrap_or(1)).unwrap();
                let mut end = AttemptEnd::Returned(Json::null());
                for n in 0..script["count"].as_u64().unwrap() {
                    let output = Json::from_value(&json!([n, "x".repeat(bytes)]));
                    let part = (n == 1).then_some(Part { index: 0, count: 2 });
                    let metrics = (n == 0).then(|| text("first"));
                    if sink.emit(vec![Chunk { output, metrics, part }]).await.is_err() {
                        end = AttemptEnd::Stopped;
                        break;
                    }
                    sink.progress(Json::from_value(&n));
                    sink.log(LogLevel::Warn, &format!("line {n}"));
                }
                end
            }
            "call" => {
                let call = |endpoint: &str| HandlerCall {
                    endpoint: endpoint.to_owned(),
                    input: text("grain"),
                    idempotency_key: Some("once".to_owned()),
                };
                let names = ["answers", "denied", "invalid", "full", "failed", "late", "other"];
                let calls = names.map(|name| sink.call(call(name)));
                let (answers, job) =
                    tokio::join!(futures::future::join_all(calls), sink.submit(call("answers")));
                let shown: Vec<_> = answers.iter().map(|answer| format!("{answer:?}")).collect();
                AttemptEnd::Returned(Json::from_value(&(shown, job.unwrap().to_string())))
            }
            other => panic!("no such script: {other}"),
        };
        running.1 = true;
        AttemptReport { end, usage: Usage { run_us: 7, fuel: Some(9), ..Usage::default() } }
    }
}

/// The sandboxes of a runner.
#[derive(Debug)]
struct Source {
    runtime: Arc<Scripted>,
    components: Mutex<Vec<Component>>,
}

impl SandboxSource for Source {
    fn open(&self, components: Vec<Component>) -> Result<Arc<dyn Runtime>, String> {
        *self.components.lock() = components;
        Ok(self.runtime.clone())
    }

    fn add(&self, component: Component) {
        self.components.lock().push(component);
    }
}

/// Receives what an attempt sends.
#[derive(Debug, Default)]
struct Sink {
    chunks: Mutex<Vec<Chunk>>,
    progress: Mutex<Vec<String>>,
    lines: Mutex<Vec<String>>,
    calls: Mutex<Vec<HandlerCall>>,
    /// Whether it takes no chunks.
    is_full: AtomicBool,
}

#[async_trait]
impl AttemptSink for Sink {
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed> {
        if self.is_full.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        self.chunks.lock().extend(chunks);
        Ok(())
    }

    fn progress(&self, value: Json) {
        self.progress.lock().push(value.as_str().to_owned());
    }

    fn log(&self, level: LogLevel, line: &str) {
        self.lines.lock().push(format!("{} {line}", level.as_str()));
    }

    async fn submit(&self, call: HandlerCall) -> Result<JobId, CallError> {
        self.calls.lock().push(call);
        Ok(job_id())
    }

    async fn call(&self, call: HandlerCall) -> Result<Json, CallError> {
        let sentence = || "why".to_owned();
        Err(match &*call.endpoint {
            "denied" => CallError::Denied(sentence()),
            "invalid" => CallError::InvalidRequest(sentence()),
            "full" => CallError::LimitReached(sentence()),
            "failed" => {
                CallError::Failed { id: job_id(), status: JobStatus::TimedOut, error: sentence() }
            }
            "late" => CallError::Timeout(sentence()),
            "other" => CallError::Other(sentence()),
            // The answer that is ready last.
            _ => {
                tokio::time::sleep(Duration::from_millis(50)).await;
                return Ok(call.input);
            }
        })
    }
}

fn job_id() -> JobId {
    static ID: std::sync::OnceLock<JobId> = std::sync::OnceLock::new();
    *ID.get_or_init(|| JobId::generate(Submission::Async, ShardId(1)))
}

/// An active host with one sandbox.
struct Active {
    local: Arc<Scripted>,
    runtime: Arc<ClusterRuntime>,
    runners: Arc<Runners>,
    catalog: Arc<Catalog>,
}

/// A runner that is connected to it.
struct Connected {
    runtime: Arc<Scripted>,
    source: Arc<Source>,
    runner: Arc<Runner>,
    drain: CancellationToken,
    serving: JoinHandle<()>,
}

const COMPONENT: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn endpoint(id: &str) -> Endpoint {
    let template = TemplateId::new("t").unwrap();
    let mut endpoint = Endpoint::new(
        EndpointId::new(id).unwrap(),
        OwnerId::new("o").unwrap(),
        template,
        Timestamp::from_millis(0),
    );
    endpoint.limits.memory_bytes_max = 64 * MIB;
    endpoint.env.insert("STONE".to_owned(), "granite".to_owned());
    endpoint
}

impl Active {
    /// With endpoints `e` and `f`.
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000)));
        let store = ModelStore::new(ShardId(1), clock.clone(), Arc::new(Signals::default()));
        let catalog = Arc::new(Catalog::open(Arc::new(store), clock.clone()).await.unwrap());
        let owner = OwnerId::new("o").unwrap();
        let component = json!({
            "digest": COMPONENT, "bytes": 4, "imports": [], "exports": [], "uploaded_at": 1,
            "compile_ms": 1, "artifacts": {}, "owners": ["o"],
        });
        let image = Image {
            name: "mill".to_owned(),
            tag: "latest".to_owned(),
            digest: COMPONENT.parse().unwrap(),
            owner: owner.clone(),
            updated_at: Timestamp::from_millis(1),
            manifest: None,
        };
        let entries = [
            CatalogEntry::Component(serde_json::from_value(component).unwrap()),
            CatalogEntry::Image(image),
            CatalogEntry::Template(Template::new(TemplateId::new("t").unwrap(), owner, "mill")),
            CatalogEntry::Endpoint(endpoint("e")),
            CatalogEntry::Endpoint(endpoint("f")),
        ];
        let changes = entries.map(CatalogChange::Put).into();
        catalog.change(|_| Ok::<_, StoreError>((changes, ()))).await.unwrap();
        let runners = Runners::new(RunnersSettings { catalog: catalog.clone(), clock });
        let local = Scripted::new("active", 1);
        let runtime = Arc::new(ClusterRuntime::new(local.clone(), runners.clone()));
        Self { local, runtime, runners, catalog }
    }

    fn deployment(&self, id: &str) -> Arc<Deployment> {
        self.catalog.deployment(&EndpointId::new(id).unwrap()).unwrap()
    }

    async fn change(&self, endpoint: Endpoint) {
        let changes = vec![CatalogChange::Put(CatalogEntry::Endpoint(endpoint))];
        self.catalog.change(|_| Ok::<_, StoreError>((changes, ()))).await.unwrap();
    }

    /// Connects a runner, which is ready for `e`.
    async fn connect(&self, name: &'static str, sandboxes: usize) -> Connected {
        let connected = self.connect_unprepared(name, sandboxes, 1 << 30).await;
        self.until_ready("e").await;
        connected
    }

    async fn connect_unprepared(
        &self,
        name: &'static str,
        sandboxes: usize,
        memory_bytes: u64,
    ) -> Connected {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let before = self.runners.hosts().len();
        let connected = Connected::over(theirs, name, sandboxes, memory_bytes);
        let runners = self.runners.clone();
        let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
        tokio::spawn(async move { runners.serve(ours, peer).await });
        eventually(|| self.runners.hosts().len() > before).await;
        connected
    }

    /// Waits until all runners are ready for an endpoint: then so many sandboxes are free.
    async fn until_ready(&self, id: &str) {
        let deployment = self.deployment(id);
        let free: usize = self.runners.hosts().iter().map(|host| host.sandboxes as usize).sum();
        let all = free + self.local.sandboxes.available_permits();
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut taken = Vec::new();
            while let Some(reservation) = self.runtime.try_reserve(&deployment) {
                taken.push(reservation);
            }
            if taken.len() == all {
                return;
            }
            assert!(Instant::now() < deadline, "{} of {all} sandboxes", taken.len());
            drop(taken);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Takes the sandbox of the active host.
    fn occupy(&self) -> OwnedSemaphorePermit {
        self.local.sandboxes.clone().try_acquire_owned().unwrap()
    }

    fn attempt(&self, script: &Value) -> Attempt {
        Attempt {
            job: job_id(),
            number: 3,
            deployment: self.deployment("e"),
            input: Json::from_value(script),
            s3_config: None,
            trace: None,
            timeout_ms: 60_000,
            deadline: Instant::now() + Duration::from_secs(60),
            stop: CancellationToken::new(),
        }
    }

    async fn perform(&self, attempt: Attempt, sink: Arc<Sink>) -> AttemptReport {
        let reservation = self.runtime.reserve(&attempt.deployment).await;
        timeout(PATIENCE, self.runtime.perform(reservation, attempt, sink)).await.unwrap()
    }

    async fn run(&self, script: Value) -> AttemptEnd {
        self.perform(self.attempt(&script), Arc::default()).await.end
    }

    /// Begins an attempt, and waits until the runner runs it.
    async fn begin(
        self: &Arc<Self>,
        on: &Connected,
        attempt: Attempt,
    ) -> JoinHandle<AttemptReport> {
        let (active, before) = (self.clone(), on.runtime.running());
        let task = tokio::spawn(async move { active.perform(attempt, Arc::default()).await });
        eventually(|| on.runtime.running() > before).await;
        task
    }
}

impl Connected {
    fn over(io: DuplexStream, name: &'static str, sandboxes: usize, memory_bytes: u64) -> Self {
        let runtime = Scripted::new(name, sandboxes);
        let source = Arc::new(Source { runtime: runtime.clone(), components: Mutex::default() });
        let settings = RunnerSettings {
            address: None,
            version: "1.2.3".to_owned(),
            sandboxes: sandboxes as u64,
            memory_bytes,
            cores: 4,
            tenancy: Tenancy::default(),
            guests: tokio::runtime::Handle::current(),
        };
        let runner = Runner::new(settings, source.clone());
        let drain = CancellationToken::new();
        let (served, drained) = (runner.clone(), drain.clone());
        let serving = tokio::spawn(async move {
            let _ = served.serve(io, drained).await;
        });
        Self { runtime, source, runner, drain, serving }
    }
}

async fn eventually(is_true: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < deadline, "it never happened");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn returned(end: AttemptEnd) -> Value {
    match end {
        AttemptEnd::Returned(output) => output.read().unwrap(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_attempt_on_a_runner_has_everything_that_its_handler_needs() {
    let active = Active::new().await;
    let runner = active.connect("runner", 1).await;
    let _taken = active.occupy();
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let attempt = Attempt {
        s3_config: Some(Arc::new(S3Config { bucket_name: "flour".into(), ..S3Config::default() })),
        trace: TraceContext::from_header(trace),
        ..active.attempt(&json!({ "do": "show" }))
    };
    let report = active.perform(attempt, Arc::default()).await;
    assert_eq!((report.usage.run_us, report.usage.fuel), (7, Some(9)));
    let shown = returned(report.end);
    let expected = json!({
        "job": job_id().to_string(), "number": 3, "image": "mill",
        "env": [["STONE", "granite"]], "component": COMPONENT, "bucket": "flour",
        "trace": [trace, null], "timeout": 60_000, "soon": true,
    });
    assert_eq!(shown, expected);
    let known = runner.source.components.lock().clone();
    assert_eq!(known.len(), 2, "of the greeting, and of the deployment");
    assert!(known.iter().all(|one| one.digest.to_string() == COMPONENT));
    let hosts = active.runners.hosts();
    assert_eq!((&*hosts[0].address, &*hosts[0].version, hosts[0].cores), ("192.0.2.1", "1.2.3", 4));
    assert_eq!(hosts[0].running, 0);
}

#[tokio::test]
async fn the_end_of_an_attempt_is_that_of_its_runner() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 2).await;
    let _taken = active.occupy();
    assert_eq!(returned(active.run(json!({ "do": "host" })).await), "runner");
    match active.run(json!({ "do": "fail" })).await {
        AttemptEnd::Failed { reason: FailureReason::Trap, error } => {
            assert_eq!(error, "ground down")
        }
        other => panic!("{other:?}"),
    }
    // 20 MB in both directions.
    let value = "x".repeat(20_000_000);
    assert_eq!(returned(active.run(json!({ "do": "echo", "value": value })).await), value);
    let attempt = active.attempt(&json!({ "do": "wait" }));
    let stop = attempt.stop.clone();
    let task = active.begin(&runner, attempt).await;
    stop.cancel();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    assert_eq!(report.usage.run_us, 7, "it was stopped by the runner, which knows its usage");
    // The sandboxes are free again.
    active.until_ready("e").await;
}

#[tokio::test]
async fn chunks_progress_and_lines_arrive_in_order() {
    let active = Active::new().await;
    let _runner = active.connect("runner", 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    let attempt = active.attempt(&json!({ "do": "emit", "count": 300, "bytes": 10_000 }));
    let report = active.perform(attempt, sink.clone()).await;
    assert!(matches!(report.end, AttemptEnd::Returned(_)), "{report:?}");
    let chunks = sink.chunks.lock();
    assert_eq!(chunks.len(), 300);
    for (n, chunk) in chunks.iter().enumerate() {
        let value: Value = chunk.output.read().unwrap();
        assert_eq!(value[0], n);
    }
    assert_eq!((chunks[0].metrics.as_ref(), &chunks[0].part), (Some(&text("first")), &None));
    assert_eq!(
        (chunks[1].metrics.as_ref(), chunks[1].part),
        (None, Some(Part { index: 0, count: 2 }))
    );
    let lines: Vec<_> = (0..300).map(|n| format!("warn line {n}")).collect();
    assert_eq!(*sink.lines.lock(), lines);
    assert_eq!(sink.progress.lock().last().unwrap(), "299", "the last value is not lost");
}

#[tokio::test]
async fn a_handler_waits_while_its_chunks_are_not_taken_and_other_attempts_continue() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 2).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    sink.is_full.store(true, Ordering::SeqCst);
    let attempt = active.attempt(&json!({ "do": "emit", "count": 1_000, "bytes": 100_000 }));
    let stop = attempt.stop.clone();
    let (other, theirs) = (active.clone(), sink.clone());
    let task = tokio::spawn(async move { other.perform(attempt, theirs).await });
    eventually(|| !sink.lines.lock().is_empty() || runner.runtime.running() == 1).await;
    let value = "x".repeat(3_000_000);
    for _ in 0..5 {
        assert_eq!(returned(active.run(json!({ "do": "echo", "value": value })).await), value);
    }
    assert!(!task.is_finished());
    assert!(sink.lines.lock().len() < 100, "100 MB are not in memory");
    stop.cancel();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    eventually(|| runner.runtime.running() == 0).await;
}

#[tokio::test]
async fn calls_of_a_handler_are_answered_by_the_active_host() {
    let active = Active::new().await;
    let _runner = active.connect("runner", 1).await;
    let _taken = active.occupy();
    let sink = Arc::new(Sink::default());
    let report = active.perform(active.attempt(&json!({ "do": "call" })), sink.clone()).await;
    let id = job_id();
    let failed = CallError::Failed { id, status: JobStatus::TimedOut, error: "why".to_owned() };
    let why = || "why".to_owned();
    let expected: [Result<Json, CallError>; 7] = [
        Ok(text("grain")),
        Err(CallError::Denied(why())),
        Err(CallError::InvalidRequest(why())),
        Err(CallError::LimitReached(why())),
        Err(failed),
        Err(CallError::Timeout(why())),
        Err(CallError::Other(why())),
    ];
    let expected: Vec<_> = expected.iter().map(|answer| format!("{answer:?}")).collect();
    assert_eq!(returned(report.end), json!([expected, id.to_string()]));
    let calls = sink.calls.lock();
    assert_eq!(
        (&*calls[0].endpoint, calls[0].idempotency_key.as_deref()),
        ("answers", Some("once"))
    );
}

/// What counts as a crash, and what does not.
#[tokio::test]
async fn an_attempt_whose_runner_is_lost_has_lost_its_host() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 2).await;
    let _taken = active.occupy();
    let attempt = active.attempt(&json!({ "do": "hang" }));
    let task = active.begin(&runner, attempt).await;
    let stopped = active.attempt(&json!({ "do": "hang" }));
    let stop = stopped.stop.clone();
    let stopping = active.begin(&runner, stopped).await;
    stop.cancel();
    tokio::task::yield_now().await;
    runner.serving.abort();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::HostLost), "{report:?}");
    let report = stopping.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "a stop was wanted: {report:?}");
    eventually(|| active.runners.hosts().is_empty()).await;
    eventually(|| runner.runtime.running() == 0).await;
    assert_eq!(runner.runtime.dropped.load(Ordering::SeqCst), 2, "the handlers have ended");
    // Without a runner, attempts wait for the host itself.
    let deployment = active.deployment("e");
    assert!(active.runtime.try_reserve(&deployment).is_none());
}

#[tokio::test]
async fn a_host_that_gives_up_an_attempt_stops_its_handler() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 1).await;
    let _taken = active.occupy();
    let task = active.begin(&runner, active.attempt(&json!({ "do": "hang" }))).await;
    task.abort();
    eventually(|| runner.runtime.running() == 0).await;
    assert_eq!(runner.runtime.dropped.load(Ordering::SeqCst), 1);
    active.until_ready("e").await;
}

/// A runner that does not end an attempt cannot keep its job.
#[tokio::test]
async fn an_attempt_ends_although_its_runner_does_not_end_it() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 2).await;
    let _taken = active.occupy();
    let attempt = Attempt {
        deadline: Instant::now() + Duration::from_millis(50),
        ..active.attempt(&json!({ "do": "hang" }))
    };
    let task = active.begin(&runner, attempt).await;
    let stopped = active.attempt(&json!({ "do": "hang" }));
    let stop = stopped.stop.clone();
    let stopping = active.begin(&runner, stopped).await;
    stop.cancel();
    let report = task.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::DeadlineReached), "{report:?}");
    let report = stopping.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    eventually(|| runner.runtime.running() == 0).await;
}

#[tokio::test]
async fn a_drained_runner_ends_its_attempts_and_takes_no_more() {
    let active = Arc::new(Active::new().await);
    let runner = active.connect("runner", 4).await;
    let _taken = active.occupy();
    let waiting = active.begin(&runner, active.attempt(&json!({ "do": "wait" }))).await;
    runner.drain.cancel();
    // Until the active host has noticed it, attempts are refused without a crash.
    let deployment = active.deployment("e");
    while let Some(reservation) = active.runtime.try_reserve(&deployment) {
        let attempt = active.attempt(&json!({ "do": "host" }));
        let report = active.runtime.perform(reservation, attempt, Arc::new(Sink::default())).await;
        // One that was sent before the drain returns.
        let is_expected = matches!(report.end, AttemptEnd::Stopped | AttemptEnd::Returned(_));
        assert!(is_expected, "{report:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!waiting.is_finished() && !runner.serving.is_finished());
    runner.runner.stop();
    let report = waiting.await.unwrap();
    assert!(matches!(report.end, AttemptEnd::Stopped), "{report:?}");
    assert_eq!(report.usage.run_us, 7);
    timeout(PATIENCE, runner.serving).await.unwrap().unwrap();
    eventually(|| active.runners.hosts().is_empty()).await;
}

#[tokio::test]
async fn an_attempt_waits_for_a_sandbox_of_any_host() {
    let active = Arc::new(Active::new().await);
    let taken = active.occupy();
    let waits = |active: Arc<Active>| {
        tokio::spawn(async move { returned(active.run(json!({ "do": "host" })).await) })
    };
    // A runner that connects later.
    let waiting = waits(active.clone());
    tokio::time::sleep(Duration::from_millis(20)).await;
    let runner = active.connect_unprepared("runner", 1, 1 << 30).await;
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap(), "runner");
    active.until_ready("e").await;
    // The sandbox of the runner, when its attempt ends.
    let attempt = active.attempt(&json!({ "do": "wait" }));
    let stop = attempt.stop.clone();
    let running = active.begin(&runner, attempt).await;
    let waiting = waits(active.clone());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    stop.cancel();
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap(), "runner");
    running.await.unwrap();
    // The sandbox of the host itself.
    let attempt = active.attempt(&json!({ "do": "hang" }));
    let running = active.begin(&runner, attempt).await;
    let waiting = waits(active.clone());
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(taken);
    assert_eq!(timeout(PATIENCE, waiting).await.unwrap().unwrap(), "active");
    running.abort();
}

#[tokio::test]
async fn a_changed_endpoint_runs_its_new_deployment_on_runners() {
    let active = Active::new().await;
    let runner = active.connect("runner", 1).await;
    let old = active.deployment("e");
    let mut changed = endpoint("e");
    changed.env.insert("STONE".to_owned(), "basalt".to_owned());
    active.change(changed).await;
    let new = active.deployment("e");
    active.runtime.retire(&new.endpoint.id, Some(&new));
    eventually(|| !runner.runtime.retired.lock().is_empty()).await;
    active.until_ready("e").await;
    let _taken = active.occupy();
    let shown = returned(active.run(json!({ "do": "show" })).await);
    assert_eq!(shown["env"], json!([["STONE", "basalt"]]));
    // A reservation for the former deployment is refused without a crash.
    active.runtime.retire(&old.endpoint.id, None);
    let deleted = vec![CatalogChange::Delete(CatalogKey::Endpoint(old.endpoint.id.clone()))];
    active.catalog.change(|_| Ok::<_, StoreError>((deleted, ()))).await.unwrap();
    eventually(|| runner.runtime.retired.lock().len() > 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_endpoint_that_changes_often_runs_its_newest_deployment() {
    let active = Active::new().await;
    let _runner = active.connect("runner", 1).await;
    let _taken = active.occupy();
    for n in 0..200 {
        let mut changed = endpoint("e");
        changed.env.insert("STONE".to_owned(), n.to_string());
        active.change(changed).await;
        let new = active.deployment("e");
        active.runtime.retire(&new.endpoint.id, Some(&new));
        let deadline = Instant::now() + PATIENCE;
        let shown = loop {
            match active.run(json!({ "do": "show" })).await {
                AttemptEnd::Stopped => assert!(Instant::now() < deadline, "it never begins"),
                end => break returned(end),
            }
        };
        assert_eq!(shown["env"], json!([["STONE", n.to_string()]]));
    }
}

#[tokio::test]
async fn some_deployments_run_on_the_active_host_only() {
    let active = Active::new().await;
    let small = active.connect_unprepared("small", 1, 32 * MIB).await;
    let taken = active.occupy();
    // More memory than all sandboxes of the runner have.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(active.runtime.try_reserve(&active.deployment("e")).is_none());
    small.serving.abort();
    eventually(|| active.runners.hosts().is_empty()).await;
    drop(taken);

    // A network volume, whose files are on the active host.
    let runner = active.connect("runner", 1).await;
    let mut with_volume = endpoint("e");
    with_volume.network_volume = Some(VolumeId::new("v").unwrap());
    active.change(with_volume).await;
    let taken = active.occupy();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(active.runtime.try_reserve(&active.deployment("e")).is_none());

    // A component that the runner cannot run: the active host continues.
    runner.runtime.cannot_run.store(true, Ordering::SeqCst);
    for _ in 0..3 {
        assert!(active.runtime.try_reserve(&active.deployment("f")).is_none());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    drop(taken);
    assert!(active.runtime.try_reserve(&active.deployment("f")).is_some());
}

/// A silent program at the other side is no runner.
#[tokio::test(start_paused = true)]
async fn a_connection_without_an_answer_ends() {
    let active = Active::new().await;
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
    timeout(Duration::from_secs(60), active.runners.serve(ours, peer)).await.unwrap();
    drop(theirs);
    assert!(active.runners.hosts().is_empty());
}

/// A runner that is paused answers no ping.
#[tokio::test]
async fn a_silent_runner_is_lost() {
    let active = Arc::new(Active::new().await);
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (relay, of_runner) = tokio::io::duplex(1 << 16);
    let cut = CancellationToken::new();
    let is_cut = cut.clone();
    tokio::spawn(async move {
        let (mut left, mut right) = (theirs, relay);
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut left, &mut right) => {}
            () = is_cut.cancelled() => {}
        }
        // Both connections stay open.
        std::future::pending::<()>().await;
        drop((left, right));
    });
    let runner = Connected::over(of_runner, "runner", 1, 1 << 30);
    let runners = active.runners.clone();
    let peer: SocketAddr = "192.0.2.1:7".parse().unwrap();
    tokio::spawn(async move { runners.serve(ours, peer).await });
    eventually(|| !active.runners.hosts().is_empty()).await;
    active.until_ready("e").await;
    let _taken = active.occupy();
    let task = active.begin(&runner, active.attempt(&json!({ "do": "hang" }))).await;
    cut.cancel();
    let report = timeout(PATIENCE, task).await.unwrap().unwrap();
    assert!(matches!(report.end, AttemptEnd::HostLost), "{report:?}");
    // The runner has noticed it too, and the handler has ended.
    eventually(|| runner.runtime.running() == 0 && runner.serving.is_finished()).await;
}
