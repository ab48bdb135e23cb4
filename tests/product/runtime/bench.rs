//! A sandbox with one component, and runs of it.

use std::fmt::Debug;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use gristmill_core::catalog::Component;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint};
use gristmill_core::deploy::template::Template;
use gristmill_core::deploy::volume::Volume;
use gristmill_core::http_call::{HttpBody, HttpCall, NoResponse};
use gristmill_core::id::{
    EndpointId, JobId, OwnerId, ShardId, SubmissionKind, TemplateId, VolumeId,
};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::handler_call::{CallError, HandlerCall};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::Chunk;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{
    Attempt, AttemptEnd, AttemptKey, AttemptReport, AttemptSink, FailureReason, HandlerHost,
    LogLevel, Runtime as _, SinkClosed, StackCall,
};
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::shares::Level;
use gristmill_core::time::Timestamp;
use gristmill_runtime::{Compiler, MemoryRecords, RuntimeSettings, WasmtimeRuntime};
use http::{Request, Response};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) struct Bench {
    runtime: WasmtimeRuntime,
    pub(crate) component: Component,
    /// The free space of the host's disk, as the sandbox sees it.
    pub(crate) disk_space: Arc<DiskSpaceGauge>,
    directory: TempDir,
}

impl Bench {
    pub(crate) async fn open(guest: &Path) -> Self {
        Self::open_in(tempfile::tempdir().unwrap(), guest).await
    }

    /// The same with the directory of an earlier one.
    pub(crate) async fn again(self, guest: &Path) -> Self {
        drop(self.runtime);
        Self::open_in(self.directory, guest).await
    }

    async fn open_in(directory: TempDir, guest: &Path) -> Self {
        let mut settings =
            RuntimeSettings::new(directory.path().to_owned(), Compiler::in_process());
        settings.running_jobs_max = 4;
        let disk_space = settings.disk_space.clone();
        let records = MemoryRecords::new();
        let runtime = WasmtimeRuntime::open(settings, records.clone()).unwrap();
        let bytes = std::fs::read(guest).unwrap();
        let added = runtime.add_component(bytes.into()).await.unwrap();
        // The files are removed with `added` unless there is a record.
        records.put(added.component.clone());
        let component = added.component;
        Self { runtime, component, disk_space, directory }
    }

    /// A run with this input; the test may change its fields.
    pub(crate) fn run(&self, input: &str) -> Run<'_> {
        Run {
            bench: self,
            input: Json::parse(input.to_owned()).unwrap(),
            template: template(&endpoint()),
            endpoint: endpoint(),
            volume: None,
            timeout: Duration::from_secs(60),
            stop: CancellationToken::new(),
            sink: Arc::default(),
        }
    }

    /// The sandbox itself.
    pub(crate) fn runtime(&self) -> &WasmtimeRuntime {
        &self.runtime
    }

    /// Its data directory.
    pub(crate) fn data_dir(&self) -> &Path {
        self.directory.path()
    }

    /// Attempts that hold a permit now.
    pub(crate) fn running(&self) -> u64 {
        self.runtime.load().running
    }
}

pub(crate) struct Run<'a> {
    bench: &'a Bench,
    input: Json,
    pub(crate) endpoint: Endpoint,
    pub(crate) template: Template,
    volume: Option<Arc<Volume>>,
    pub(crate) timeout: Duration,
    pub(crate) stop: CancellationToken,
    pub(crate) sink: Arc<Sink>,
}

impl Run<'_> {
    pub(crate) fn allow(&mut self, host: &str) {
        self.endpoint.settings.allowed_hosts = vec![host.parse().unwrap()];
    }

    /// Gives it the volume `id` of this many gigabytes, at `/workspace`.
    pub(crate) fn mount(&mut self, id: &str, size_gb: u32) {
        let id = VolumeId::new(id).unwrap();
        self.endpoint.network_volume = Some(id.clone());
        self.volume = Some(Arc::new(Volume {
            id,
            owner: self.endpoint.owner.clone(),
            name: "volume".to_owned(),
            size_gb,
            created_at: self.endpoint.created_at,
        }));
    }

    /// Makes the deployment ready, as a worker does before it claims a job.
    pub(crate) async fn prepare(&self) {
        self.bench.runtime.prepare(&self.deployment()).await.unwrap();
    }

    pub(crate) fn deployment(&self) -> Arc<Deployment> {
        Arc::new(Deployment {
            endpoint: Arc::new(self.endpoint.clone()),
            template: Arc::new(self.template.clone()),
            component: Some(self.bench.component.digest),
            input_schema: self.bench.component.input_schema.clone(),
            volume: self.volume.clone(),
            incarnation: EndpointIncarnation::default(),
        })
    }

    pub(crate) async fn perform(&self) -> Report {
        self.perform_on(&self.deployment()).await
    }

    /// The same on a deployment of an earlier run, whose idle instance is used again.
    pub(crate) async fn perform_on(&self, deployment: &Arc<Deployment>) -> Report {
        let reservation = self.bench.runtime.reserve(deployment, Level::CLIENT).await;
        let attempt = self.attempt(deployment, self.input.clone());
        Report(self.bench.runtime.perform(reservation, attempt, self.sink.clone()).await)
    }

    /// Has an HTTP request answered, while `client` reads the answer; `None` when there is none.
    pub(crate) async fn serve<T>(
        &self,
        deployment: &Arc<Deployment>,
        request: Request<HttpBody>,
        client: impl AsyncFnOnce(Result<Response<HttpBody>, NoResponse>) -> T,
    ) -> (Option<T>, Report<()>) {
        let reservation = self.bench.runtime.reserve(deployment, Level::CLIENT).await;
        let (call, answered) = HttpCall::new(request);
        let attempt = self.attempt(deployment, call);
        let serving = self.bench.runtime.serve(reservation, attempt, self.sink.clone());
        let reading = async {
            match answered.await {
                Ok(answer) => Some(client(answer).await),
                Err(_) => None,
            }
        };
        let (read, report) = tokio::join!(reading, serving);
        (read, Report(report))
    }

    fn attempt<I>(&self, deployment: &Arc<Deployment>, input: I) -> Attempt<I> {
        Attempt {
            key: AttemptKey::without_store(),
            number: 1,
            deployment: deployment.clone(),
            input,
            s3_config: None,
            trace: None,
            timeout_ms: u64::try_from(self.timeout.as_millis()).unwrap(),
            deadline: Instant::now() + self.timeout,
            stop: self.stop.clone(),
        }
    }
}

pub(crate) struct Report<T = Json>(AttemptReport<T>);

impl Report {
    pub(crate) fn output(&self) -> String {
        match &self.end {
            AttemptEnd::Returned(output) => output.as_str().to_owned(),
            end => panic!("not returned: {end:?}"),
        }
    }
}

impl<T: Debug> Report<T> {
    pub(crate) fn reason(&self) -> FailureReason {
        match &self.end {
            AttemptEnd::Failed { reason, .. } => *reason,
            end => panic!("not failed: {end:?}"),
        }
    }

    pub(crate) fn error(&self) -> String {
        match &self.end {
            AttemptEnd::Failed { error, .. } => error.clone(),
            end => panic!("not failed: {end:?}"),
        }
    }
}

impl<T> Deref for Report<T> {
    type Target = AttemptReport<T>;
    fn deref(&self) -> &AttemptReport<T> {
        &self.0
    }
}

/// Records the side output of an attempt.
#[derive(Default)]
pub(crate) struct Sink {
    chunks: Mutex<Vec<Chunk>>,
    lines: Mutex<Vec<(LogLevel, String)>>,
    progress_values: AtomicUsize,
    calls: Mutex<Vec<HandlerCall>>,
}

impl Sink {
    /// The jobs that the handler submitted.
    pub(crate) fn calls(&self) -> Vec<HandlerCall> {
        self.calls.lock().clone()
    }

    pub(crate) fn chunks(&self) -> Vec<Chunk> {
        self.chunks.lock().clone()
    }

    pub(crate) fn lines(&self) -> Vec<(LogLevel, String)> {
        self.lines.lock().clone()
    }

    /// Number of progress values.
    pub(crate) fn progress_values(&self) -> usize {
        self.progress_values.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl AttemptSink for Sink {
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed> {
        self.chunks.lock().extend(chunks);
        Ok(())
    }

    fn progress(&self, _: Json) {
        self.progress_values.fetch_add(1, Ordering::Relaxed);
    }

    fn log(&self, level: LogLevel, line: &str) {
        self.lines.lock().push((level, line.to_owned()));
    }

    async fn requested(&self, _: RequestEnd, _: u64) {}

    fn trapped(&self, _: Vec<StackCall>) {}

    fn host(&self) -> Option<&dyn HandlerHost> {
        Some(self)
    }
}

#[async_trait]
impl HandlerHost for Sink {
    async fn submit(&self, call: HandlerCall) -> Result<JobId, CallError> {
        self.calls.lock().push(call);
        Ok(JobId::generate(SubmissionKind::Async, ShardId(0)))
    }

    async fn call(&self, _: HandlerCall) -> Result<Json, CallError> {
        Err(CallError::Other("no endpoint answers here".to_owned()))
    }
}

fn endpoint() -> Endpoint {
    let mut endpoint = Endpoint::new(
        EndpointId::new("bench").unwrap(),
        OwnerId::operator(),
        TemplateId::new("bench").unwrap(),
        Timestamp::from_millis(0),
    );
    endpoint.settings.execution_timeout_ms = 60_000;
    endpoint
}

fn template(endpoint: &Endpoint) -> Template {
    Template::new(endpoint.template.clone(), endpoint.owner.clone(), "bench:latest")
}
