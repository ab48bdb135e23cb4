//! The traits between the jobs and the sandbox: [`Runtime`] runs an attempt, [`AttemptSink`]
//! receives its output, and [`Components`] and [`VolumeDirectories`] keep its files.

use std::any::Any;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use crate::billing::usage::Metered;
use crate::catalog::Component;
use crate::deploy::digest::ComponentDigest;
use crate::deploy::endpoint::Deployment;
use crate::deploy::volume_files::VolumeFiles;
use crate::http_call::HttpCall;
use crate::id::{
    EndpointId, JobId, OwnerId, ShardId, SubmissionKind, TemplateId, VolumeId, WorkerId,
};
use crate::job::handler_call::{CallError, HandlerCall};
use crate::job::loss::HostLoss;
use crate::job::payload::Json;
use crate::job::record::{Chunk, HostProcess, LeftAttempt, S3Config};
use crate::job::retry::RetryWish;
use crate::job::state::Claim;
use crate::limits::UPLOADS_WAITING_MAX;
use crate::metrics::endpoint::{AttemptValues, RequestEnd};
pub use crate::metrics::failure_reason::FailureReason;
use crate::metrics::instruments::DurationTotals;
use crate::sharing::disk_space::Shortage;
use crate::sharing::permits::PermitBytes;
pub use crate::sharing::permits::{PermitShortage as SandboxShortage, ShortageCause};
use crate::sharing::shares::Level;
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// Runs handlers, each attempt in its own sandbox.
#[async_trait]
pub trait Runtime: Send + Sync + std::fmt::Debug {
    /// Makes the deployment ready to run, before the clock of an attempt starts: loads its
    /// component, or compiles it when its compiled file is missing, and counts the files of its
    /// network volume once after a start. Quick if this was done already. `perform` does the same
    /// if needed.
    ///
    /// # Errors
    /// [`CannotRun`]; a repetition is safe.
    async fn prepare(&self, deployment: &Deployment) -> Result<(), CannotRun>;

    /// Reserves a sandbox for one attempt at this level, if there is room now and no worker waits
    /// for it. Quick.
    fn try_reserve(&self, deployment: &Arc<Deployment>, level: Level) -> Option<Reservation>;

    /// Waits for room for one attempt at this level. Owners that wait take turns, then their
    /// endpoints. Dropping the future ends the wait.
    async fn reserve(&self, deployment: &Arc<Deployment>, level: Level) -> Reservation;

    /// The room of an attempt that another host has had since before this host was active: that
    /// host may go on with it from now on. `None` if no other host runs attempts for this one.
    fn expect(&self, _deployment: &Arc<Deployment>, _left: &LeftAttempt) -> Option<Reservation> {
        None
    }

    /// This host is about to end. [`perform`](Self::perform) returns [`AttemptEnd::Left`] for the
    /// attempts of other hosts from now on.
    fn leave(&self) {}

    /// Ends the idle instances of an endpoint, unless they belong to its `current` deployment, by
    /// identity. `None`: the endpoint was deleted.
    fn retire(&self, endpoint: &EndpointId, current: Option<&Arc<Deployment>>);

    /// Why a worker of this deployment waits for room for a client's job, if it is known.
    fn shortage(&self, _deployment: &Deployment) -> Option<SandboxShortage> {
        None
    }

    /// Sandboxes of this host that run now, and workers that wait for one.
    fn load(&self) -> RuntimeLoad;

    /// The memory of its sandboxes.
    fn memory(&self) -> SandboxMemory {
        SandboxMemory::default()
    }

    /// The other hosts that run jobs for it.
    fn runners(&self) -> Vec<RunnerHost> {
        Vec::new()
    }

    /// Times of the compiles of components that succeeded. A runtime that compiles nothing has
    /// none.
    fn compiles(&self) -> DurationTotals {
        DurationTotals::default()
    }

    /// Runs one attempt to its end, with the reservation for its deployment. Returns at the latest
    /// at `attempt.deadline`, or shortly after `attempt.stop` fires, whatever the handler does.
    /// Dropping the future stops the handler.
    async fn perform(
        &self,
        reservation: Reservation,
        attempt: Attempt,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport;

    /// The same for an HTTP request. It ends when the handler has returned, which may be before or
    /// after the end of the answer's body.
    async fn serve(
        &self,
        reservation: Reservation,
        attempt: Attempt<HttpCall>,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport<()>;
}

/// One sentence that says why a deployment cannot run here. A repetition is safe, and succeeds once
/// the cause is removed: workers try again every few seconds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CannotRun(pub String);

impl From<String> for CannotRun {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

/// Room for one attempt of a job that is still to be claimed, so that no job is claimed before it
/// can run. Its content is known only to its runtime. Dropping it returns the room.
pub struct Reservation {
    room: Box<dyn Any + Send>,
    host: Option<HostProcess>,
}

impl Reservation {
    /// Wraps a value that returns the room when it is dropped.
    pub fn new(room: impl Any + Send) -> Self {
        Self { room: Box::new(room), host: None }
    }

    /// The same for room on another host.
    pub fn on(host: HostProcess, room: impl Any + Send) -> Self {
        Self { room: Box::new(room), host: Some(host) }
    }

    /// The other host that has the room.
    pub fn host(&self) -> Option<HostProcess> {
        self.host
    }

    /// The room, for the runtime that made it.
    ///
    /// # Errors
    /// The reservation, when it was made by another runtime.
    pub fn downcast<T: Any>(self) -> Result<Box<T>, Self> {
        let Self { room, host } = self;
        room.downcast().map_err(|room| Self { room, host })
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}

/// How busy a runtime is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuntimeLoad {
    /// Sandboxes that run a job now.
    pub running: u64,
    /// Sandboxes that wait for their next job.
    pub idle: u64,
    /// Workers that wait for a sandbox because the host runs its maximum.
    pub waiting: u64,
}

/// The memory of all sandboxes of this host, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SandboxMemory {
    /// What they are charged, and what is withheld from them since the machine is short of memory.
    pub permits: PermitBytes,
    /// The part of those permits that idle instances have: they end for an attempt that needs it.
    pub idle: u64,
    /// What ended sandboxes have left in memory, for the next ones.
    pub kept: u64,
}

/// Another host that runs attempts for this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunnerHost {
    /// The address at which other hosts reach it, or that from which it has connected.
    pub address: String,
    /// The version of its program.
    pub version: String,
    /// Most attempts that it runs at one time.
    pub sandboxes: u64,
    /// Its cores.
    pub cores: u64,
    /// Attempts that it runs now.
    pub running: u64,
    /// Bytes of its sandboxes.
    pub memory_bytes: u64,
    /// Most bytes of its sandboxes.
    pub memory_bytes_max: u64,
    /// When it has connected.
    pub since: Timestamp,
}

/// Names an attempt among those of all hosts of a database.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptKey {
    /// The job.
    pub job: JobId,
    /// The claim that began it.
    pub claim: Claim,
    /// The worker that runs it. The active host may end before a claim is on disk; the next one
    /// then gives the same number to another attempt, with another worker.
    pub worker: WorkerId,
}

impl AttemptKey {
    /// The key of an attempt without a store, at a job of its own.
    pub fn without_store() -> Self {
        let worker = WorkerId::new("w").expect("a letter is an id");
        Self { job: JobId::generate(SubmissionKind::Async, ShardId(0)), claim: Claim(1), worker }
    }
}

/// One attempt: at a job, or whatever else has the input `I`.
#[derive(Debug, Clone)]
pub struct Attempt<I = Json> {
    /// Its job, and the claim that distinguishes it from the other attempts at the job.
    pub key: AttemptKey,
    /// Which attempt this is; the first is 1.
    pub number: u32,
    /// The component to run, with its limits.
    pub deployment: Arc<Deployment>,
    /// The handler's input.
    pub input: I,
    /// Object-storage settings for the handler.
    pub s3_config: Option<Arc<S3Config>>,
    /// Its position in a distributed trace: the parent of its requests.
    pub trace: Option<TraceContext>,
    /// Milliseconds that the attempt may run.
    pub timeout_ms: u64,
    /// When the attempt is stopped: the earlier of its timeout and the job's ttl.
    pub deadline: Instant,
    /// Fires when the attempt should stop early: cancelled, deleted, or the host drains.
    pub stop: CancellationToken,
}

impl<I> Attempt<I> {
    /// The input, and the rest.
    pub fn split(self) -> (I, Attempt<()>) {
        self.replace(())
    }

    /// The input, and the same attempt with another one.
    pub fn replace<J>(self, other: J) -> (I, Attempt<J>) {
        let Self { key, number, deployment, input, s3_config, trace, timeout_ms, deadline, stop } =
            self;
        let attempt = Attempt {
            key,
            number,
            deployment,
            input: other,
            s3_config,
            trace,
            timeout_ms,
            deadline,
            stop,
        };
        (input, attempt)
    }
}

/// Receives an attempt's side output while it runs.
#[async_trait]
pub trait AttemptSink: Send + Sync {
    /// Receives the next chunks of the stream. Waits while the buffer of this attempt is full.
    ///
    /// # Errors
    /// [`SinkClosed`] when the attempt has ended.
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed>;

    /// Receives a new progress value. Never waits.
    fn progress(&self, value: Json);

    /// Receives one log line: from the handler's `log`, or its standard output or error. The
    /// runtime has limited its length and the attempt's total, and removed control characters.
    fn log(&self, level: LogLevel, line: &str);

    /// Counts a request that the handler made, with the microseconds until the head of its answer
    /// or its failure. Waits while earlier ones cannot be passed on: a request that is refused
    /// costs a handler nothing, so that it could make millions of them meanwhile.
    async fn requested(&self, end: RequestEnd, took_us: u64);

    /// Receives the handler's stack at the time of its trap, the innermost frame first. Called only
    /// by a runtime that is configured to explain traps.
    fn trapped(&self, stack: Vec<StackCall>);

    /// The host that the handler runs on; `None` if it runs without one.
    fn host(&self) -> Option<&dyn HandlerHost>;

    /// Resolves when everything that was received so far is on disk, as far as it is kept there.
    ///
    /// # Errors
    /// [`SinkClosed`] when it may be lost.
    async fn stored(&self) -> Result<(), SinkClosed> {
        Ok(())
    }

    /// Resolves when the end of the attempt is on disk, if it is kept there. May be called before
    /// the attempt is reported.
    ///
    /// # Errors
    /// [`SinkClosed`] when it may be lost.
    async fn end_stored(&self) -> Result<(), SinkClosed> {
        Ok(())
    }
}

/// The parts of a host that a handler reaches.
#[async_trait]
pub trait HandlerHost: Send + Sync {
    /// Submits a job of the handler, and returns its id once it is on stable storage.
    ///
    /// # Errors
    /// [`CallError`].
    async fn submit(&self, call: HandlerCall) -> Result<JobId, CallError>;

    /// Submits a job of the handler and waits for its output, until shortly before the attempt's
    /// deadline.
    ///
    /// # Errors
    /// [`CallError`].
    async fn call(&self, call: HandlerCall) -> Result<Json, CallError>;
}

/// One call on a handler's stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackCall {
    /// The function, when the component has names.
    pub function: Option<String>,
    /// Where in its source, when the component has debug information.
    pub location: Option<SourceLocation>,
}

impl StackCall {
    /// The function's name in its source. An exported function without one has the name of the
    /// export, which contains a `#` and says nothing.
    pub fn source_name(&self) -> Option<&str> {
        self.function.as_deref().filter(|name| !name.contains('#'))
    }
}

/// A location in a source file: `file:line`, or `file` without a known line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceLocation {
    /// The file, as the compiler named it.
    pub file: String,
    /// The line; the first is 1.
    pub line: Option<u32>,
}

impl std::fmt::Display for SourceLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { file, line } = self;
        match line {
            Some(line) => write!(f, "{file}:{line}"),
            None => f.write_str(file),
        }
    }
}

/// The attempt has ended; the sink accepts nothing more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the attempt is over")]
pub struct SinkClosed;

/// The severity of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// The most detailed messages.
    Trace,
    /// Messages for debugging.
    Debug,
    /// Normal messages, and standard output.
    Info,
    /// Warnings, and standard error.
    Warn,
    /// Failures.
    Error,
}

impl LogLevel {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Trace, Self::Debug, Self::Info, Self::Warn, Self::Error];

    /// The level's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// The end of an attempt, its usage, and the wish of its handler.
#[derive(Debug, Clone)]
pub struct AttemptReport<T = Json> {
    /// How it ended.
    pub end: AttemptEnd<T>,
    /// The usage of the attempt.
    pub usage: Usage,
    /// What the handler wishes for its job if the attempt has failed; `None` without a wish.
    pub wish: Option<RetryWish>,
}

/// Of an attempt without usage or wish: its handler was not called, or nothing is known of it.
impl<T> From<AttemptEnd<T>> for AttemptReport<T> {
    fn from(end: AttemptEnd<T>) -> Self {
        Self { end, usage: Usage::default(), wish: None }
    }
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub enum AttemptEnd<T = Json> {
    /// The handler returned this value.
    Returned(T),
    /// The handler failed, or reached one of its limits.
    Failed {
        /// The kind of cause.
        reason: FailureReason,
        /// One sentence that names the cause.
        error: String,
    },
    /// The deadline passed.
    DeadlineReached,
    /// The attempt was asked to stop, and stopped.
    Stopped,
    /// It waited for memory when no attempt of the host got any: the job is to run again.
    NoMemory,
    /// The host that ran the attempt is lost.
    HostLost(HostLoss),
    /// The attempt goes on at another host, and this one [ends](Runtime::leave).
    Left,
}

/// The usage of an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Microseconds from the start to a ready instance.
    pub instantiate_us: u64,
    /// Microseconds in which the handler ran, including host calls that waited.
    pub run_us: u64,
    /// Microseconds in which the handler held a processor.
    pub cpu_us: u64,
    /// Fuel used; `None` on an endpoint without fuel metering.
    pub fuel: Option<u64>,
    /// Greatest sum of all its memories, in bytes.
    pub memory_bytes_peak: u64,
    /// Bytes of the bodies of requests that it made.
    pub sent_bytes: u64,
    /// Bytes of the bodies of their answers.
    pub received_bytes: u64,
    /// Chunks emitted.
    pub chunks: u64,
    /// Log lines beyond the cap, which were dropped.
    pub log_lines_dropped: u64,
}

impl Usage {
    /// The part that is measured for the endpoint.
    pub fn values(&self) -> AttemptValues {
        let Self { run_us, cpu_us, sent_bytes, received_bytes, chunks, log_lines_dropped, .. } =
            *self;
        let start_us = self.instantiate_us;
        AttemptValues {
            start_us,
            run_us,
            cpu_us,
            sent_bytes,
            received_bytes,
            chunks,
            log_lines_dropped,
        }
    }

    /// The part that is billed, with the bytes of input and output.
    pub fn metered(&self, template: TemplateId, bytes_in: u64, bytes_out: u64) -> Metered {
        Metered {
            template,
            cpu_us: self.cpu_us,
            fuel: self.fuel.unwrap_or(0),
            memory_bytes_peak: self.memory_bytes_peak,
            bytes_in,
            bytes_out,
            chunks: self.chunks,
            egress_bytes: self.sent_bytes.saturating_add(self.received_bytes),
        }
    }
}

/// Ends an upload that no call uses, for an upload of this owner that was refused with this error.
/// Returns whether there was one.
pub type EndUpload = Box<dyn Fn(&OwnerId, &StageError) -> bool + Send + Sync>;

/// Accepts uploaded components and keeps their bytes. Implemented by the runtime.
#[async_trait]
pub trait Components: Send + Sync + std::fmt::Debug {
    /// From now on, a write without room ends other uploads by this function. Only the first call
    /// has an effect.
    fn end_uploads_by(&self, end_upload: EndUpload);

    /// Begins an upload of this owner that arrives piece by piece.
    ///
    /// # Errors
    /// [`StageError`].
    async fn stage(&self, owner: &OwnerId) -> Result<Box<dyn Staged>, StageError>;

    /// The bytes of a component with a record, for reading from their start.
    ///
    /// # Errors
    /// When they cannot be read.
    async fn open_component(
        &self,
        component: ComponentDigest,
    ) -> io::Result<Box<dyn AsyncRead + Send + Unpin>>;

    /// Removes the files of components that have no record any more. Files of uploads in progress
    /// are kept, and jobs that run one of the components continue.
    ///
    /// # Errors
    /// Errors of the file system. The next start removes the remaining files.
    async fn remove_components(&self, components: Vec<ComponentDigest>) -> io::Result<()>;
}

/// The bytes of an upload in progress, on disk. They are deleted when this is dropped.
#[async_trait]
pub trait Staged: Send + Sync + std::fmt::Debug {
    /// Adds the next bytes. If the call is dropped, all or none of them are added.
    ///
    /// # Errors
    /// [`StageError`]; the earlier bytes are unchanged.
    async fn write(&self, piece: Bytes) -> Result<(), StageError>;

    /// Number of bytes.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their digest.
    fn digest(&self) -> ComponentDigest;

    /// All bytes, if they are at most `bytes_max`.
    ///
    /// # Errors
    /// When they are more, or cannot be read.
    async fn read(&self, bytes_max: usize) -> io::Result<Bytes>;

    /// A file with all bytes, for reading from its beginning; it stays readable after this upload
    /// has ended. Opening it takes microseconds.
    ///
    /// # Errors
    /// Errors of the file system.
    fn open(&self) -> io::Result<File>;

    /// Checks, compiles (in a separate process) and keeps the bytes as a component of this owner.
    /// The same bytes twice cost one compilation. Owners take turns, and few uploads of one owner
    /// may wait. No bytes can be written afterwards.
    ///
    /// # Errors
    /// [`AddComponentError`]; nothing is kept, and the bytes of the upload can be added again.
    async fn add(&self, owner: &OwnerId) -> Result<AddedComponent, AddComponentError>;
}

/// An accepted component.
#[derive(Debug)]
pub struct AddedComponent {
    /// Its record, which is not in the catalog yet.
    pub component: Component,
    /// Keeps its files until the record is in the catalog; drop it then. Files without a record are
    /// removed when it is dropped.
    pub hold: FileGuard,
}

/// A guard: keeps an object for as long as it exists.
pub type FileGuard = Box<dyn Any + Send + Sync>;

/// Why an upload cannot continue now.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// Too many uploads are in progress.
    #[error("too many uploads are in progress; try again shortly")]
    Full,
    /// The disk has no room.
    #[error("{0}; it takes no uploads until there is room")]
    NoSpace(Shortage),
    /// The upload would exceed its owner's share of the disk.
    #[error(
        "this upload would exceed the owner's share of the host's disk, of which the owner's jobs, results, \
         waiting webhooks, files and handlers take {held_mib} MiB; delete handlers or files that are \
         not needed any more"
    )]
    OwnerDiskFull {
        /// MiB that the owner's data takes.
        held_mib: u64,
    },
    /// The disk.
    #[error("cannot store the upload: {0}")]
    Io(io::Error),
}

impl From<io::Error> for StageError {
    fn from(error: io::Error) -> Self {
        if is_no_space(&error) { Self::NoSpace(Shortage::Bytes) } else { Self::Io(error) }
    }
}

/// Whether a file could not be written because its disk, or its owner's quota, is full.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Manages the content of network volumes. Implemented by the runtime.
#[async_trait]
pub trait VolumeDirectories: VolumeFiles {
    /// Notes on the disk that a volume's record is about to be deleted. If the host crashes after
    /// the deletion and before [`remove_volume`](Self::remove_volume), the next start removes the
    /// content.
    ///
    /// # Errors
    /// Errors of the file system.
    async fn mark_removal(&self, volume: &VolumeId) -> io::Result<()>;

    /// Removes this note, since the volume's record stays.
    ///
    /// # Errors
    /// Errors of the file system.
    async fn unmark_removal(&self, volume: &VolumeId) -> io::Result<()>;

    /// Removes the content of a volume that no endpoint may use any more. Running jobs lose it when
    /// they end.
    ///
    /// # Errors
    /// Errors of the file system; if the volume is marked, the next start tries again.
    async fn remove_volume(&self, volume: &VolumeId) -> io::Result<()>;
}

/// Why an uploaded component was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddComponentError {
    /// It is not a component that this host can run; one sentence says why.
    #[error("{0}")]
    Rejected(String),
    /// The owner has as many uploads that wait to be compiled as it may have.
    #[error(
        "{UPLOADS_WAITING_MAX} uploads of this owner wait to be compiled, which is the limit; try again when one of them \
         has ended"
    )]
    TooManyWaiting,
    /// The disk has no room for it.
    #[error("{0}; it takes no uploads until there is room")]
    NoSpace(Shortage),
    /// The host failed to check, compile or keep it.
    #[error("{0}")]
    Failed(String),
}
