//! The trait behind which handlers are run.

use std::any::Any;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::io::AsyncRead;
use tokio_util::sync::CancellationToken;

use crate::catalog::Component;
use crate::digest::ComponentDigest;
use crate::endpoint::Deployment;
use crate::id::{EndpointId, JobId, VolumeId};
use crate::payload::Json;
use crate::record::{Chunk, S3Config};

/// Runs handlers, each attempt in a sandbox of its own.
#[async_trait]
pub trait Runtime: Send + Sync + std::fmt::Debug {
    /// Makes the deployment's component ready to run: loads it, or compiles it when its compiled
    /// file is missing. Quick when that has happened before. `perform` does the same where needed.
    ///
    /// # Errors
    /// One sentence that says why the component cannot be run here.
    async fn prepare(&self, deployment: &Deployment) -> Result<(), String>;

    /// Takes room for one attempt, if there is some now and no worker waits for it. Quick.
    fn try_reserve(&self, deployment: &Arc<Deployment>) -> Option<Reservation>;

    /// Waits for room for one attempt. Owners that wait take turns, then their endpoints. Dropping the future ends the wait.
    async fn reserve(&self, deployment: &Arc<Deployment>) -> Reservation;

    /// Ends what is kept for further jobs of an endpoint, unless it belongs to its `current` deployment, by identity.
    /// `None`: the endpoint was deleted.
    fn retire(&self, endpoint: &EndpointId, current: Option<&Arc<Deployment>>);

    /// Why a worker of this deployment waits for room.
    fn shortage(&self, _deployment: &Deployment) -> Shortage {
        Shortage::OfHost
    }

    /// Sandboxes that run now, and workers that wait for one.
    fn load(&self) -> RuntimeLoad;

    /// Runs one attempt to its end, in the room that was reserved for its deployment. Never waits longer than until
    /// `attempt.deadline`, or until
    /// shortly after `attempt.stop` fires, whatever the handler does. Dropping the future stops
    /// the handler.
    async fn perform(
        &self,
        reservation: Reservation,
        attempt: Attempt,
        sink: Arc<dyn AttemptSink>,
    ) -> AttemptReport;
}

/// Room for one attempt at a job that is still to be claimed, so that no job is claimed before it can run. Only its runtime
/// knows what it is. Dropping it gives the room back.
pub struct Reservation(Box<dyn Any + Send>);

impl Reservation {
    /// Room that gives itself back when it is dropped.
    pub fn new(room: impl Any + Send) -> Self {
        Self(Box::new(room))
    }

    /// The room, for the runtime that made it.
    ///
    /// # Errors
    /// The reservation, when it was made by another runtime.
    pub fn downcast<T: Any>(self) -> Result<Box<T>, Self> {
        self.0.downcast().map_err(Self)
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").finish_non_exhaustive()
    }
}

/// Why there is no room for an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// The host has none.
    OfHost,
    /// The endpoint's owner has its share, and the rest is kept free for other owners.
    OfOwner,
}

/// How busy a runtime is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RuntimeLoad {
    /// Sandboxes that run a job now.
    pub running: u64,
    /// Sandboxes that wait for their next job.
    pub idle: u64,
    /// Workers that wait for a sandbox because there are as many as there may be.
    pub waiting: u64,
}

/// One attempt at one job.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The job.
    pub job: JobId,
    /// Which attempt this is; the first is 1.
    pub number: u32,
    /// What to run, with its limits.
    pub deployment: Arc<Deployment>,
    /// The handler's input.
    pub input: Json,
    /// Object-storage settings for the handler.
    pub s3_config: Option<S3Config>,
    /// Milliseconds that the attempt may run.
    pub timeout_ms: u64,
    /// When the attempt is stopped: the earlier of its timeout and the job's ttl.
    pub deadline: Instant,
    /// Fires when the attempt should stop early: cancelled, deleted, or the host drains.
    pub stop: CancellationToken,
}

/// Where an attempt's side output goes while it runs.
#[async_trait]
pub trait AttemptSink: Send + Sync {
    /// Takes the next chunks of the stream. Waits while the buffer of this attempt is full.
    ///
    /// # Errors
    /// [`SinkClosed`] when the attempt is over.
    async fn emit(&self, chunks: Vec<Chunk>) -> Result<(), SinkClosed>;

    /// Takes a new progress value. Never waits.
    fn progress(&self, value: Json);

    /// Takes one line of log: from the handler's `log`, or its standard output or error. The
    /// runtime has capped its length and the attempt's total, and removed control characters.
    fn log(&self, level: LogLevel, line: &str);

    /// Takes the handler's stack as it was when the handler was ended, the innermost frame first.
    /// Told only by a runtime that was set up to explain traps.
    fn trapped(&self, _stack: Vec<StackCall>) {}
}

/// One call on a handler's stack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackCall {
    /// The function, when the component has names.
    pub function: Option<String>,
    /// Where in its source, when the component has debug information.
    pub place: Option<SourcePlace>,
}

/// A place in somebody's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePlace {
    /// The file, as the compiler named it.
    pub file: String,
    /// The line; the first is 1.
    pub line: Option<u32>,
}

/// The attempt is over; nothing more is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the attempt is over")]
pub struct SinkClosed;

/// How much a log line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// Finest detail.
    Trace,
    /// For finding mistakes.
    Debug,
    /// What happens; standard output too.
    Info,
    /// Something is off; standard error too.
    Warn,
    /// Something failed.
    Error,
}

impl LogLevel {
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

/// How an attempt ended, and what it used.
#[derive(Debug, Clone)]
pub struct AttemptReport {
    /// How it ended.
    pub end: AttemptEnd,
    /// What it used.
    pub usage: Usage,
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub enum AttemptEnd {
    /// The handler returned this value.
    Returned(Json),
    /// The handler failed, or ran into one of its limits; one sentence that says what happened.
    Failed(String),
    /// The deadline passed.
    DeadlineReached,
    /// The attempt was told to stop, and did.
    Stopped,
}

/// What an attempt used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Microseconds from the start to a ready instance.
    pub instantiate_us: u64,
    /// Microseconds in which the handler ran, host calls that waited included.
    pub run_us: u64,
    /// Microseconds in which the handler held a processor.
    pub cpu_us: u64,
    /// Fuel used; `None` on an endpoint without fuel metering.
    pub fuel: Option<u64>,
    /// Greatest sum of all its memories, in bytes.
    pub memory_bytes_peak: u64,
    /// Chunks emitted.
    pub chunks: u64,
    /// Log lines beyond the cap, which were dropped.
    pub log_lines_dropped: u64,
}

/// Takes uploaded components in, and keeps their bytes. Implemented by the sandbox.
#[async_trait]
pub trait Components: Send + Sync + std::fmt::Debug {
    /// A place for bytes that come in piece by piece.
    ///
    /// # Errors
    /// [`StageError`].
    async fn stage(&self) -> Result<Box<dyn Staged>, StageError>;

    /// The bytes of a component that has a record, to be read from their start.
    ///
    /// # Errors
    /// When they cannot be read.
    async fn open_component(
        &self,
        component: ComponentDigest,
    ) -> io::Result<Box<dyn AsyncRead + Send + Unpin>>;

    /// Removes the files of components that have no record any more. Those that are being added are
    /// left alone, and jobs that run one go on.
    ///
    /// # Errors
    /// Those of the file system. The next start removes what is left.
    async fn remove_components(&self, components: Vec<ComponentDigest>) -> io::Result<()>;
}

/// Bytes on their way in, on disk. They are gone when this is dropped.
#[async_trait]
pub trait Staged: Send + Sync + std::fmt::Debug {
    /// Adds the next bytes. When the call is dropped they are added or not, but never in part.
    ///
    /// # Errors
    /// [`StageError`]; what was there before is still there.
    async fn write(&self, piece: Bytes) -> Result<(), StageError>;

    /// How many bytes there are.
    fn len(&self) -> u64;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Their digest.
    fn digest(&self) -> ComponentDigest;

    /// All of them, when they are at most `bytes_max`.
    ///
    /// # Errors
    /// When they are more, or cannot be read.
    async fn read(&self, bytes_max: usize) -> io::Result<Bytes>;

    /// A file with all of them, to read from its beginning; it can be read after this upload has
    /// ended. Opening it takes microseconds.
    ///
    /// # Errors
    /// Those of the file system.
    fn open(&self) -> io::Result<File>;

    /// Checks, compiles and keeps them as a component, apart from this process. The same bytes
    /// twice cost one compilation.
    ///
    /// # Errors
    /// [`AddComponentError`]; nothing is kept.
    async fn add(self: Box<Self>) -> Result<Added, AddComponentError>;
}

/// A component that was taken in.
#[derive(Debug)]
pub struct Added {
    /// Its record, which is not in the catalog yet.
    pub component: Component,
    /// Keeps its files until the record is in the catalog; drop it then.
    pub hold: Hold,
}

/// Keeps something for as long as it lives.
pub type Hold = Box<dyn Any + Send + Sync>;

/// Why bytes are not taken now.
#[derive(Debug, thiserror::Error)]
pub enum StageError {
    /// Too many are on their way.
    #[error("too many uploads are on their way; try again shortly")]
    Full,
    /// The disk has no room.
    #[error("the host's disk is nearly full; it takes no uploads until there is room")]
    NoSpace,
    /// The disk.
    #[error("cannot store the upload: {0}")]
    Io(io::Error),
}

impl From<io::Error> for StageError {
    fn from(error: io::Error) -> Self {
        if is_no_space(&error) { Self::NoSpace } else { Self::Io(error) }
    }
}

/// Whether a file could not be written because its disk, or its owner's quota, is full.
pub fn is_no_space(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Keeps what is in network volumes. Implemented by the sandbox.
#[async_trait]
pub trait Volumes: Send + Sync + std::fmt::Debug {
    /// Removes all that is in a volume, which nobody may name any more. Running jobs that see it
    /// lose it when they end.
    ///
    /// # Errors
    /// Those of the file system.
    async fn remove_volume(&self, volume: &VolumeId) -> io::Result<()>;
}

/// Why an uploaded component was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddComponentError {
    /// It is not a component that this host can run; one sentence says why.
    #[error("{0}")]
    Rejected(String),
    /// The disk has no room for it.
    #[error("the host's disk is nearly full; it takes no uploads until there is room")]
    NoSpace,
    /// The host failed to check, compile or keep it.
    #[error("{0}")]
    Failed(String),
}
