//! The store's records of a job, and the values that it exchanges with its callers.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::billing::usage::JobUsage;
use crate::id::{EndpointId, JobId, OwnerId, WorkerId};
use crate::incarnation::EndpointIncarnation;
use crate::job::idempotency::Idempotency;
use crate::job::note::ScheduleNote;
use crate::job::payload::Json;
use crate::job::policy::Policy;
use crate::job::retention::Retention;
use crate::job::starts::Blocked;
use crate::job::state::{Claim, JobEvent, JobStatus, ReleaseCause, Verdict};
use crate::job::tags::Tags;
use crate::limits::{PARTIAL_OUTPUT_BYTES_MAX, PAST_ERROR_BYTES_MAX};
use crate::sharing::shares::Level;
use crate::time::Timestamp;
use crate::trace::TraceContext;

/// A submission that was checked and may be stored.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// The job's id, which is never used again.
    pub id: JobId,
    /// The endpoint that it was submitted to.
    pub endpoint: EndpointId,
    /// The owner of the key that submitted it.
    pub owner: OwnerId,
    /// The handler's input, unchanged.
    pub input: Json,
    /// Timeout, ttl and priority.
    pub policy: Policy,
    /// How long it is kept after its end.
    pub retention: Retention,
    /// The URL to call when the job ends.
    pub webhook: Option<String>,
    /// The submission's object-storage settings, for the handler only.
    pub s3_config: Option<Arc<S3Config>>,
    /// Whether its client waits for the result and so learns of the submission only then. The store
    /// may write such a submission a few milliseconds later, together with the next change.
    pub may_linger: bool,
    /// Most waiting jobs of the endpoint, beyond which the submission is refused; the store's own
    /// bound may be lower.
    pub waiting_jobs_max: Option<u32>,
    /// The hashes by which a duplicate of the submission is recognised.
    pub idempotency: Option<Idempotency>,
    /// The incarnation of its endpoint; a job of an endpoint that was deleted meanwhile is refused.
    pub incarnation: EndpointIncarnation,
    /// By which clients find it.
    pub tags: Option<Tags>,
    /// Its position in a distributed trace.
    pub trace: Option<TraceContext>,
    /// What its schedule notes about the tick that made it, in the same commit.
    pub note: Option<ScheduleNote>,
}

impl NewJob {
    /// Most waiting jobs of its endpoint, in a store with the bound `store_max`.
    pub fn queue_limit(&self, store_max: usize) -> usize {
        queue_limit(self.waiting_jobs_max, store_max)
    }
}

/// Most waiting jobs of an endpoint with this bound, in a store with the bound `store_max` for each
/// endpoint.
pub fn queue_limit(waiting_jobs_max: Option<u32>, store_max: usize) -> usize {
    let own = waiting_jobs_max.and_then(|jobs| usize::try_from(jobs).ok());
    own.map_or(store_max, |own| own.min(store_max))
}

/// Object-storage settings, handed to the handler as given. Secret: never logged.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct S3Config {
    /// Bucket access key id; empty when the submission has none, like the other fields.
    pub access_id: String,
    /// Bucket secret access key.
    pub access_secret: String,
    /// Bucket name.
    pub bucket_name: String,
    /// Bucket endpoint URL.
    pub endpoint_url: String,
}

impl std::fmt::Debug for S3Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("S3Config(redacted)")
    }
}

/// The right to change one running job: its id, its claim number, and the epoch of the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The job.
    pub job: JobId,
    /// The claim that made this lease.
    pub claim: Claim,
    /// The epoch of the store that made it.
    pub epoch: StoreEpoch,
}

/// A process that runs attempts for the active host of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostProcess {
    /// Names its data directory, which no other process uses meanwhile.
    pub directory: u64,
    /// Names the process: the next one with its data directory has another number.
    pub instance: u64,
}

/// An attempt that another host has had since before the store was opened.
#[derive(Debug, Clone)]
pub struct LeftAttempt {
    /// The endpoint of its job.
    pub endpoint: EndpointId,
    /// The right to finish the job.
    pub lease: Lease,
    /// The worker that the job was claimed for.
    pub worker: WorkerId,
    /// The process that runs it, if that has not ended.
    pub host: HostProcess,
    /// The owner of the key that submitted the job.
    pub owner: OwnerId,
    /// Which attempt this is; the first is 1.
    pub attempt: u32,
    /// When the job was claimed.
    pub started_at: Timestamp,
    /// Time for this attempt, in milliseconds. `None`: that of its endpoint.
    pub execution_timeout_ms: Option<u64>,
    /// When the job is deleted, even while it runs.
    pub ttl_at: Timestamp,
    /// The job's position in a distributed trace.
    pub trace: Option<TraceContext>,
    /// Bytes of the input with its object-storage settings, about.
    pub input_bytes: u64,
    /// Chunks that are on disk.
    pub chunks: u64,
    /// Bytes of these chunks.
    pub chunk_bytes: u64,
}

/// How often a store was started: grows with each start. A crash may forget a claim, and the next
/// claim of the job then has the same number, but not the same epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreEpoch(pub u32);

/// A job that a worker has just claimed.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// The right to finish it.
    pub lease: Lease,
    /// The worker that it was claimed for.
    pub worker: WorkerId,
    /// The owner of the key that submitted it.
    pub owner: OwnerId,
    /// Which attempt this is; the first is 1.
    pub attempt: u32,
    /// The handler's input.
    pub input: Json,
    /// Object-storage settings for the handler.
    pub s3_config: Option<Arc<S3Config>>,
    /// When the job was queued for this attempt.
    pub queued_at: Timestamp,
    /// Time for this attempt, in milliseconds. `None`: that of its endpoint.
    pub execution_timeout_ms: Option<u64>,
    /// When the job is deleted, even while it runs.
    pub ttl_at: Timestamp,
    /// Its position in a distributed trace.
    pub trace: Option<TraceContext>,
    /// Its level when it was claimed.
    pub level: Level,
    /// The jobs that still wait on the endpoint.
    pub left: Demand,
}

/// The end of an attempt, with its results.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The handler returned this value. `null` after chunks stands for the list of their outputs.
    Completed(Json),
    /// The handler, or the sandbox on its behalf, failed with this error.
    Failed(String),
    /// The same, after the handler had returned a part of its output.
    FailedWith {
        /// Why.
        error: String,
        /// Its newest progress value. `null`, or more than [`PARTIAL_OUTPUT_BYTES_MAX`], stands for
        /// none.
        output: Json,
    },
    /// The attempt reached its executionTimeout.
    TimedOut,
}

impl Outcome {
    /// The partial output of a failed attempt.
    pub fn partial_output(&self) -> Option<&Json> {
        match self {
            Self::FailedWith { output, .. } => Some(output)
                .filter(|output| !output.is_null() && output.len() <= PARTIAL_OUTPUT_BYTES_MAX),
            Self::Completed(_) | Self::Failed(_) | Self::TimedOut => None,
        }
    }

    /// Why the attempt failed; `None` if it did not.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed(error) | Self::FailedWith { error, .. } => Some(error),
            Self::TimedOut => Some(TIMED_OUT_ERROR),
            Self::Completed(_) => None,
        }
    }

    /// The verdict without the results.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Completed(_) => Verdict::Completed,
            Self::Failed(_) | Self::FailedWith { .. } => Verdict::Failed,
            Self::TimedOut => Verdict::TimedOut,
        }
    }
}

/// The error text of a job whose attempt reached its executionTimeout.
pub const TIMED_OUT_ERROR: &str = "executionTimeout exceeded";

/// One element of a job's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The emitted value.
    pub output: Json,
    /// The handler's metrics object, if it gave one.
    pub metrics: Option<Json>,
    /// For a part of an emit that was larger than one chunk: its index and the number of parts.
    /// `None` also for the first piece of a string.
    pub part: Option<Part>,
}

impl Chunk {
    /// Bytes that the chunk holds.
    pub fn len(&self) -> usize {
        self.output.len() + self.metrics.as_ref().map_or(0, Json::len)
    }

    /// Never true: a chunk has an output.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The part that clients see. For them each piece of a string is a chunk of its own.
    pub fn shown_part(&self) -> Option<Part> {
        self.part.filter(|part| part.count > 0)
    }
}

/// The position of a chunk among the parts of a split emit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// 0 for the first part.
    pub index: u32,
    /// How many parts there are. 0 for a piece of a string, which has an index from 1 on.
    pub count: u32,
}

impl Part {
    /// The part with these numbers, as the disk and the runners have them; `None` for two zeros.
    pub fn of_numbers(index: u32, count: u32) -> Option<Self> {
        (index > 0 || count > 0).then_some(Self { index, count })
    }
}

/// Some consecutive chunks of a job's stream.
#[derive(Debug, Clone, Default)]
pub struct ChunkPage {
    /// The attempt that has emitted them; see [`JobRecord::attempt`].
    pub attempt: Claim,
    /// Index of the first chunk.
    pub first: u64,
    /// The chunks, in order.
    pub chunks: Vec<Chunk>,
}

impl ChunkPage {
    /// Index of the chunk after this page.
    pub fn next(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }

    /// The size of its text: the chunks, and 64 bytes for the frame of each.
    pub fn text_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len() + 64).sum()
    }

    /// The position after this page.
    pub fn end(&self) -> StreamPosition {
        StreamPosition { attempt: self.attempt, index: self.next() }
    }
}

/// A position in a job's stream. Each attempt has a stream of its own: an index alone names chunks
/// of several attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPosition {
    /// The attempt that emits the chunk.
    pub attempt: Claim,
    /// The chunk's index; the first is 0.
    pub index: u64,
}

/// A job that was completed before its submission was on stable storage; now both are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedJob {
    /// Its record.
    pub record: Box<JobRecord>,
    /// The output that its handler returned. It has no chunks.
    pub output: Json,
}

/// A job without its payloads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// The job's id.
    pub id: JobId,
    /// The endpoint that it was submitted to.
    pub endpoint: EndpointId,
    /// The status that clients see: the one on disk.
    pub status: JobStatus,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it was last queued: at its submission, by a retry, or when it was released.
    pub queued_at: Timestamp,
    /// When the last attempt started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// The worker of the last attempt.
    pub worker: Option<WorkerId>,
    /// How often it was queued again: after a failed attempt, after a crash of its host, or by
    /// `/retry`.
    pub retries: u32,
    /// Why it is FAILED or TIMED_OUT.
    pub error: Option<String>,
    /// The limit that keeps it from being claimed, while it waits.
    pub blocked: Option<Blocked>,
    /// Whether attempts were repeated and the last permitted one failed, too.
    pub is_exhausted: bool,
    /// The newest progress value of the running attempt.
    pub progress: Option<Json>,
    /// The attempt that the stream belongs to: the last one, or the next one while none has begun
    /// since the job was queued.
    pub attempt: Claim,
    /// How many chunks of this attempt a client may read.
    pub chunk_count: u64,
    /// For a COMPLETED job: bytes of its chunks as they are stored, with their metrics and headers,
    /// and of its handler's output. 0 for any other job.
    pub result_bytes: u64,
    /// How many chunks `/stream` has delivered.
    pub chunks_delivered: u64,
    /// When it is deleted.
    pub purge_at: Timestamp,
    /// The attempts before the last one, or before the next one while none has begun since the job
    /// was queued: the newest [`PAST_ATTEMPTS_MAX`](crate::limits::PAST_ATTEMPTS_MAX), oldest
    /// first.
    pub past_attempts: Vec<PastAttempt>,
    /// The sum of its attempts that ended with a result, and of the one that a cancel stopped.
    pub usage: JobUsage,
    /// Those of its submission.
    pub tags: Option<Tags>,
    /// Its position in a distributed trace.
    pub trace: Option<TraceContext>,
}

/// An attempt after which the job was queued again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PastAttempt {
    /// When the job was queued for it.
    pub queued_at: Timestamp,
    /// When it started.
    pub started_at: Timestamp,
    /// When it ended. For a crash: when the host started again.
    pub ended_at: Timestamp,
    /// Why it ended.
    pub end: RequeueCause,
    /// The [beginning](PastAttempt::beginning) of its error.
    pub error: Option<String>,
}

impl PastAttempt {
    /// The beginning of an error that is kept: at most [`PAST_ERROR_BYTES_MAX`].
    pub fn beginning(error: &str) -> &str {
        &error[..error.floor_char_boundary(PAST_ERROR_BYTES_MAX)]
    }
}

/// The end of an attempt after which the job was queued again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequeueCause {
    /// The handler failed, and a client retried the job.
    Failed,
    /// The attempt reached its executionTimeout, and a client retried the job.
    TimedOut,
    /// The host stops, or the sandbox that was free is kept for jobs that are deeper in a chain of
    /// calls.
    Released,
    /// The host had no memory for the attempt.
    NoMemory,
    /// The host died.
    HostLost,
    /// The handler failed, and the rule of its retries permits another attempt.
    AttemptFailed,
}

impl RequeueCause {
    /// Every cause.
    pub const ALL: [Self; 6] = [
        Self::Failed,
        Self::TimedOut,
        Self::Released,
        Self::NoMemory,
        Self::HostLost,
        Self::AttemptFailed,
    ];

    /// The end of the attempt of a job with this `status` that an event queues again; `None` for
    /// any other event.
    pub fn of(event: JobEvent, status: Option<JobStatus>) -> Option<Self> {
        match event {
            JobEvent::Released { cause: ReleaseCause::Stopped, .. } => Some(Self::Released),
            JobEvent::Released { cause: ReleaseCause::NoMemory, .. } => Some(Self::NoMemory),
            JobEvent::HostLost { .. } => Some(Self::HostLost),
            JobEvent::AttemptFailed { .. } => Some(Self::AttemptFailed),
            JobEvent::RetryRequested if status == Some(JobStatus::TimedOut) => Some(Self::TimedOut),
            JobEvent::RetryRequested => Some(Self::Failed),
            JobEvent::Claimed { .. }
            | JobEvent::Finished { .. }
            | JobEvent::CancelRequested
            | JobEvent::Purged
            | JobEvent::TtlElapsed
            | JobEvent::RetentionElapsed => None,
        }
    }
}

impl JobRecord {
    /// Milliseconds that the job has waited since it was last queued, or waited before its last
    /// attempt. Earlier attempts, and the time between them, do not count.
    pub fn delay_ms(&self, now: Timestamp) -> u64 {
        let until = self.started_at.or(self.finished_at).unwrap_or(now);
        until.millis_since(self.queued_at)
    }

    /// The time for which the job waits, if it may not start yet.
    pub fn run_at(&self, now: Timestamp) -> Option<Timestamp> {
        let is_delayed = self.status == JobStatus::InQueue && self.queued_at > now;
        is_delayed.then_some(self.queued_at)
    }

    /// What a job waits for that [may not start yet](Self::run_at).
    pub fn delay_reason(&self) -> &'static str {
        match self.past_attempts.last() {
            Some(last) if last.end == RequeueCause::AttemptFailed => {
                "its last attempt failed; the job waits for the time of the next one (runAt)"
            }
            _ => "the job waits for its time (runAt)",
        }
    }

    /// Milliseconds that the last attempt has run, or ran.
    pub fn execution_ms(&self, now: Timestamp) -> u64 {
        self.started_at.map_or(0, |start| self.finished_at.unwrap_or(now).millis_since(start))
    }
}

/// The jobs that wait on an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Grows with each change of the queue, also beyond the deletion of the endpoint: of two
    /// values, the one with the greater version is newer. 0: no job has ever waited.
    pub version: u64,
    /// Jobs that may start a worker: those that are not low priority.
    pub jobs: u64,
    /// When the next job to claim was queued.
    pub since: Option<Timestamp>,
    /// Jobs that can be claimed, of any priority.
    pub claimable: u64,
    /// Those of them that calls of handlers wait for. They are claimed first, and each counts in
    /// `jobs` too, whatever its priority.
    pub called: u64,
    /// The level of the next job to claim. Of the jobs that calls wait for, the deepest are claimed
    /// first.
    pub level: Level,
}

/// A step of a handler's call, as the called job sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallStep {
    /// It begins to wait for the end of the job.
    Begins,
    /// It waits no more.
    Ends,
}

impl CallStep {
    /// The number of calls that wait, after this step.
    #[must_use]
    pub fn count(self, calls: u32) -> u32 {
        match self {
            Self::Begins => calls.saturating_add(1),
            Self::Ends => calls.saturating_sub(1),
        }
    }
}

/// Numbers of an endpoint's jobs by state: now, and since the endpoint was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobCounts {
    /// Waiting now.
    pub in_queue: u64,
    /// Running now.
    pub in_progress: u64,
    /// Completed since the endpoint was created.
    pub completed: u64,
    /// Failed or timed out since the endpoint was created.
    pub failed: u64,
    /// Queued again since the endpoint was created.
    pub retried: u64,
}
