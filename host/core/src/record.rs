//! What the store keeps of a job, and what passes between it and its callers.

use serde::{Deserialize, Serialize};

use crate::endpoint::Life;
use crate::id::{EndpointId, JobId, OwnerId, WorkerId};
use crate::idempotency::Idempotency;
use crate::job::{Claim, JobStatus, Verdict};
use crate::limits::PARTIAL_OUTPUT_BYTES_MAX;
use crate::payload::Json;
use crate::policy::Policy;
use crate::time::Timestamp;

/// A submission that was checked and may be stored.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// The job's id; unique for ever.
    pub id: JobId,
    /// The endpoint that it was submitted to.
    pub endpoint: EndpointId,
    /// Who submitted it.
    pub owner: OwnerId,
    /// The handler's input, as it came.
    pub input: Json,
    /// Timeout, ttl and priority.
    pub policy: Policy,
    /// How long the result is kept after the job ended, in milliseconds.
    pub retention_ms: u64,
    /// The URL to call when the job ends.
    pub webhook: Option<String>,
    /// The submission's object-storage settings, for the handler only.
    pub s3_config: Option<S3Config>,
    /// Whether its client waits for the result, and so is told nothing before: the store may write
    /// it together with what comes next, a few milliseconds later.
    pub may_linger: bool,
    /// Refuses it when so many jobs wait on the endpoint already; the store may refuse it earlier.
    pub waiting_jobs_max: Option<u32>,
    /// What makes the submission recognisable when it comes again.
    pub idempotency: Option<Idempotency>,
    /// The life of its endpoint; a job of an endpoint that was deleted meanwhile is refused.
    pub life: Life,
}

impl NewJob {
    /// How many jobs may wait on its endpoint, in a store that lets `store_max` wait on each.
    pub fn queue_limit(&self, store_max: usize) -> usize {
        queue_limit(self.waiting_jobs_max, store_max)
    }
}

/// How many jobs may wait on an endpoint with this bound of its own, in a store that lets `store_max`
/// wait on each.
pub fn queue_limit(waiting_jobs_max: Option<u32>, store_max: usize) -> usize {
    let own = waiting_jobs_max.and_then(|jobs| usize::try_from(jobs).ok());
    own.map_or(store_max, |own| own.min(store_max))
}

/// Object-storage settings, handed to the handler as given. Secret: never logged.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct S3Config {
    /// Bucket access key id; empty when the submission left it out, like the other fields.
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

/// The right to change one running job: its id and the fence of the claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The job.
    pub job: JobId,
    /// The claim that made this lease.
    pub claim: Claim,
}

/// A job that a worker has just taken.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// The right to finish it.
    pub lease: Lease,
    /// The worker that it was claimed for.
    pub worker: WorkerId,
    /// Who submitted it.
    pub owner: OwnerId,
    /// Which attempt this is; the first is 1.
    pub attempt: u32,
    /// The handler's input.
    pub input: Json,
    /// Object-storage settings for the handler.
    pub s3_config: Option<S3Config>,
    /// Time for this attempt, in milliseconds.
    pub execution_timeout_ms: u64,
    /// When the job is deleted, even while it runs.
    pub ttl_at: Timestamp,
}

/// How an attempt ended, with what it left.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The handler returned this value. `null` after chunks stands for the list of their outputs.
    Completed(Json),
    /// The handler, or the sandbox on its behalf, failed with this error.
    Failed(String),
    /// The same, after the handler had handed out a part of its output.
    FailedWith {
        /// Why.
        error: String,
        /// Its newest progress value. `null`, or more than [`PARTIAL_OUTPUT_BYTES_MAX`], stands for none.
        output: Json,
    },
    /// The attempt ran into its executionTimeout.
    TimedOut,
}

impl Outcome {
    /// What a failed attempt has left of its output.
    pub fn partial_output(&self) -> Option<&Json> {
        match self {
            Self::FailedWith { output, .. } => Some(output)
                .filter(|output| !output.is_null() && output.len() <= PARTIAL_OUTPUT_BYTES_MAX),
            Self::Completed(_) | Self::Failed(_) | Self::TimedOut => None,
        }
    }

    /// The verdict alone.
    pub fn verdict(&self) -> Verdict {
        match self {
            Self::Completed(_) => Verdict::Completed,
            Self::Failed(_) | Self::FailedWith { .. } => Verdict::Failed,
            Self::TimedOut => Verdict::TimedOut,
        }
    }
}

/// The error text of a job that ran into its executionTimeout.
pub const TIMED_OUT_ERROR: &str = "executionTimeout exceeded";

/// One element of a job's stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// What the handler emitted.
    pub output: Json,
    /// The handler's metrics object, if it gave one.
    pub metrics: Option<Json>,
    /// For one part of an emit that was larger than a chunk may be: which part, of how many.
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
}

/// Says which part of a split emit a chunk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// 0 for the first part.
    pub index: u32,
    /// How many parts there are.
    pub count: u32,
}

/// Some consecutive chunks of a job's stream.
#[derive(Debug, Clone, Default)]
pub struct ChunkPage {
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
}

/// What is known of a job, without its payloads.
#[derive(Debug, Clone)]
pub struct JobRecord {
    /// The job's id.
    pub id: JobId,
    /// The endpoint that it was submitted to.
    pub endpoint: EndpointId,
    /// The state that a client may see: what has reached the disk.
    pub status: JobStatus,
    /// When it was submitted.
    pub created_at: Timestamp,
    /// When it was last queued: at its submission, by a retry, or when it was handed back.
    pub queued_at: Timestamp,
    /// When the last attempt started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
    /// The worker of the last attempt.
    pub worker: Option<WorkerId>,
    /// How often it was queued again: after a crash of its host, or by `/retry`.
    pub retries: u32,
    /// Why it is FAILED or TIMED_OUT.
    pub error: Option<String>,
    /// The newest progress value of the running attempt.
    pub progress: Option<Json>,
    /// How many chunks a client may read.
    pub chunk_count: u64,
    /// How many of them `/stream` has delivered.
    pub chunks_delivered: u64,
    /// When it is deleted.
    pub purge_at: Timestamp,
}

impl JobRecord {
    /// Milliseconds that the job has waited since it was last queued, or waited before its last attempt. Earlier
    /// attempts, and the time between them, are not part of it.
    pub fn delay_ms(&self, now: Timestamp) -> u64 {
        let until = self.started_at.or(self.finished_at).unwrap_or(now);
        until.millis_since(self.queued_at)
    }

    /// Milliseconds that the last attempt has run, or ran.
    pub fn execution_ms(&self, now: Timestamp) -> u64 {
        self.started_at.map_or(0, |start| self.finished_at.unwrap_or(now).millis_since(start))
    }
}

/// The jobs that wait on an endpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// How many may start a worker: those that are not low priority.
    pub jobs: u64,
    /// When the one of them was queued that is to be claimed next.
    pub since: Option<Timestamp>,
    /// How many can be claimed, of any priority.
    pub claimable: u64,
}

/// How many jobs an endpoint has, by state, and how many it ever had.
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
