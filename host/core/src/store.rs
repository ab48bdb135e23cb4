//! The trait behind which jobs are kept, and its promises.

use async_trait::async_trait;

use crate::id::{EndpointId, JobId, NodeId, WorkerId};
use crate::job::JobStatus;
use crate::listing::{JobPage, JobQuery};
use crate::payload::Json;
use crate::record::{
    Chunk, ChunkPage, ClaimedJob, Demand, JobCounts, JobRecord, Lease, NewJob, Outcome,
};
use crate::room::Shortage;
use crate::time::Timestamp;
use crate::usage::{Bill, Metered};

/// Keeps jobs. An embedded engine and a shared database can both implement it.
///
/// **Durability.** A future of [`submit`](Self::submit), [`finish`](Self::finish),
/// [`release`](Self::release), [`cancel`](Self::cancel), [`retry`](Self::retry),
/// [`purge`](Self::purge) or [`expire`](Self::expire) that resolves to `Ok` means that the change
/// is on stable storage. What readers can see ([`job`](Self::job), [`chunks`](Self::chunks),
/// [`counts`](Self::counts)) never runs ahead of that; only [`claim`](Self::claim) does: a job may
/// be claimed, and run, before its submission is on disk, since a crash would run it again anyway.
///
/// **Fences.** Each claim has a number that grows and is never reset. A change that carries a
/// lease is applied only while that lease's claim is the current one; at most one final result is
/// ever stored for a claim.
///
/// **Signals.** After each visible change the store calls
/// [`Signals::changed`](crate::signals::Signals::changed), and as soon as a job can be claimed
/// [`Signals::job_ready`](crate::signals::Signals::job_ready).
///
/// **Time** is the store's: no call takes the current time.
///
/// A dropped future does not take its operation back.
#[async_trait]
pub trait JobStore: Send + Sync + std::fmt::Debug {
    /// The node that job ids made here carry.
    fn node(&self) -> NodeId;

    /// The store's time.
    fn now(&self) -> Timestamp;

    /// Adds a job to its endpoint's queue, unless it was added before: a submission with an
    /// [`Idempotency`](crate::idempotency::Idempotency) is remembered for
    /// [`KEY_LIFE_MS`](crate::idempotency::KEY_LIFE_MS), whatever becomes of its job, as long as
    /// its endpoint exists.
    ///
    /// # Errors
    /// [`StoreError::QueueFull`] at the bound of the endpoint's queue,
    /// [`WaitingBytesFull`](StoreError::WaitingBytesFull) and
    /// [`ResultBytesFull`](StoreError::ResultBytesFull) at the bounds of its payloads,
    /// [`DiskFull`](StoreError::DiskFull) when the disk has no room.
    async fn submit(&self, job: NewJob) -> Result<SubmitAnswer, StoreError>;

    /// Takes up to one job for each of `workers`, oldest first, low priority after the others.
    /// Does not wait for the disk; the claim is written no later than its result. A job whose
    /// ttl is over is never handed out.
    async fn claim(
        &self,
        endpoint: &EndpointId,
        workers: &[WorkerId],
    ) -> Result<Vec<ClaimedJob>, StoreError>;

    /// Appends chunks to the stream of a running job. Waits only while the store's buffer is full;
    /// the chunks become visible once they are on disk, which is no later than the job's end.
    async fn append_chunks(&self, lease: Lease, chunks: Vec<Chunk>) -> Result<Fenced, StoreError>;

    /// Replaces the progress value of a running job. Not durable: a crash runs the job again.
    async fn set_progress(&self, lease: Lease, value: Json) -> Result<Fenced, StoreError>;

    /// Ends an attempt with its result, which is not billed: for whoever has run no handler.
    async fn finish(&self, lease: Lease, outcome: Outcome) -> Result<Fenced, StoreError>;

    /// Ends an attempt with its result and bills what it used: both are on disk together, or
    /// neither is. Does not wait for the disk, only while the store's buffer is full; the result
    /// becomes visible, and is signalled, once it is on disk.
    async fn finish_soon(
        &self,
        lease: Lease,
        outcome: Outcome,
        metered: Metered,
    ) -> Result<Fenced, StoreError>;

    /// Bills an attempt that left no result, and was the last of its job. To be called once for it.
    /// Does not wait for the disk, only while the store's buffer is full.
    async fn bill(&self, bill: Bill) -> Result<(), StoreError>;

    /// Waits until all that was decided before is on disk.
    async fn flush(&self) -> Result<(), StoreError>;

    /// Whether the lease is the current one. Like [`claim`](Self::claim) this may run ahead of the
    /// disk.
    async fn holds(&self, lease: Lease) -> Result<bool, StoreError>;

    /// Hands a running job back: it is queued again, and neither a crash nor a retry is counted.
    async fn release(&self, lease: Lease) -> Result<Fenced, StoreError>;

    /// Cancels a job that waits or runs; one that has ended keeps its status, which is returned.
    async fn cancel(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<JobStatus>, StoreError>;

    /// Queues a FAILED or TIMED_OUT job again, with its input and without its result. The ttl
    /// goes on from the submission. `waiting_jobs_max` is the endpoint's own bound of jobs that wait.
    ///
    /// # Errors
    /// At the bounds of the endpoint's queue and payloads, those of [`submit`](Self::submit); the job
    /// stays as it was.
    async fn retry(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        waiting_jobs_max: Option<u32>,
    ) -> Result<RetryAnswer, StoreError>;

    /// Removes all jobs that wait on the endpoint and returns their number.
    async fn purge(&self, endpoint: &EndpointId) -> Result<u64, StoreError>;

    /// Shortens what remains of a job's life to `ttl_ms` from now; never lengthens it.
    async fn shorten_ttl(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        ttl_ms: u64,
    ) -> Result<(), StoreError>;

    /// Deletes what is due (ttl or retention over), up to a bounded number, and says when to call
    /// again.
    async fn expire(&self) -> Result<NextExpiry, StoreError>;

    /// What is known of a job; `None` when it is unknown, gone, or another endpoint's.
    async fn job(&self, endpoint: &EndpointId, id: JobId) -> Result<Option<JobRecord>, StoreError>;

    /// The endpoint's jobs, newest first.
    async fn list(&self, endpoint: &EndpointId, query: &JobQuery) -> Result<JobPage, StoreError>;

    /// The input of a job that may run, now or after a retry: that of a COMPLETED or CANCELLED one
    /// is not kept.
    async fn input(&self, id: JobId) -> Result<Option<Json>, StoreError>;

    /// The output that a COMPLETED job's handler returned.
    async fn output(&self, id: JobId) -> Result<Option<Json>, StoreError>;

    /// Visible chunks from index `from` on: as many as fit in `bytes_max` and `count_max`, but at
    /// least one when there is one.
    async fn chunks(
        &self,
        id: JobId,
        from: u64,
        bytes_max: usize,
        count_max: usize,
    ) -> Result<ChunkPage, StoreError>;

    /// Remembers that chunks before `next` were delivered. Never moves backwards, and is forgotten
    /// by a restart: a stream is then delivered again from its start.
    async fn mark_delivered(&self, id: JobId, next: u64) -> Result<(), StoreError>;

    /// The endpoint's counts; zeros for one without jobs.
    async fn counts(&self, endpoint: &EndpointId) -> Result<JobCounts, StoreError>;

    /// The jobs that wait on the endpoint: what can be claimed, on disk or not.
    async fn demand(&self, endpoint: &EndpointId) -> Result<Demand, StoreError>;

    /// Forgets all that belongs to an endpoint, its jobs and its counts, but for what was billed.
    async fn delete_endpoint(&self, endpoint: &EndpointId) -> Result<(), StoreError>;

    /// What the store has done since it was opened.
    fn stats(&self) -> StoreStats;

    /// Waits until all that was asked for is on disk, then refuses everything.
    async fn close(&self);
}

/// What became of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum SubmitAnswer {
    /// The job waits.
    Queued,
    /// It came before, and became this job, which may be gone by now. Nothing was added.
    Repeated(JobId),
    /// Its key came before with something else. Nothing was added.
    KeyReused,
}

/// Whether a change that carried a lease was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Fenced {
    /// It was.
    Applied,
    /// The lease is not the current one any more: the job was cancelled, timed out, deleted, or
    /// claimed again. Nothing changed.
    Stale,
}

/// What became of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAnswer {
    /// The job waits again.
    Queued,
    /// Only FAILED and TIMED_OUT jobs can be retried; this is the job's status.
    WrongStatus(JobStatus),
    /// There is no such job.
    NotFound,
}

/// When [`JobStore::expire`] has work again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextExpiry(pub Timestamp);

/// What a store has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Transactions committed, each with one fsync.
    pub commits: u64,
    /// Changes that those transactions carried.
    pub operations: u64,
    /// Jobs that exist now.
    pub jobs: u64,
}

/// Why the store did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The endpoint was deleted while the call was under way.
    #[error("the endpoint was deleted")]
    EndpointDeleted,
    /// The endpoint's queue is at its bound.
    #[error("the queue is full: {limit} jobs wait on this endpoint")]
    QueueFull {
        /// The bound, in jobs.
        limit: usize,
    },
    /// The inputs of the jobs that wait on the endpoint take as much of the disk as they may.
    #[error(
        "the queue is full: the inputs that wait on this endpoint would take more than {limit_mib} MiB"
    )]
    WaitingBytesFull {
        /// The bound, in MiB.
        limit_mib: u64,
    },
    /// The results that the endpoint keeps take as much of the disk as they may.
    #[error(
        "the results of this endpoint take {limit_mib} MiB, as much as they may; results are deleted \
         when their retention is over"
    )]
    ResultBytesFull {
        /// The bound, in MiB.
        limit_mib: u64,
    },
    /// The disk has no room for new work.
    #[error("{0}; it takes no new work until there is room")]
    DiskFull(Shortage),
    /// The store is closing down.
    #[error("the store is closed")]
    Closed,
    /// A payload on the disk is not what was written. The store goes on.
    #[error("{0}")]
    Damaged(String),
}
