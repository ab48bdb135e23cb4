//! The trait of the store of jobs, and its promises.

use async_trait::async_trait;

use crate::billing::usage::{Bill, Metered};
use crate::id::{EndpointId, JobId, ShardId, WorkerId};
use crate::job::filter::JobSearch;
use crate::job::idempotency::Idempotency;
use crate::job::listing::{Cursor, JobPage, JobQuery};
use crate::job::loss::HostLoss;
use crate::job::payload::Json;
use crate::job::record::{
    CallStep, Chunk, ChunkPage, ClaimedJob, CompletedJob, Demand, HostProcess, JobCounts,
    JobRecord, Lease, LeftAttempt, NewJob, Outcome, StreamPosition,
};
use crate::job::retention::HistoryMax;
use crate::job::retry::FailedAttempt;
use crate::job::starts::StartLimits;
use crate::job::state::{JobStatus, ReleaseCause};
use crate::metrics::instruments::DurationTotals;
pub use crate::store_error::{OwnerQuota, StoreError, StoreFull};
use crate::time::Timestamp;

/// Keeps jobs. An embedded engine and a shared database can both implement it.
///
/// **Durability.** When a future of [`submit`](Self::submit), [`release`](Self::release),
/// [`cancel`](Self::cancel), [`retry`](Self::retry), [`purge`](Self::purge),
/// [`shorten_ttl`](Self::shorten_ttl), [`delete_ended`](Self::delete_ended),
/// [`delete_endpoint`](Self::delete_endpoint) or [`expire`](Self::expire) resolves to `Ok`, the
/// change is on stable storage. Readers ([`job`](Self::job), [`chunks`](Self::chunks),
/// [`counts`](Self::counts)) never see a change before that. [`claim`](Self::claim) is ahead of the
/// disk: a job may be claimed, and run, before its submission is on disk, since a crash would run
/// it again anyway. So are [`holds_lease`](Self::holds_lease), [`note_call`](Self::note_call) and
/// [`demand`](Self::demand), which serve the workers.
///
/// **Fences.** Each claim has a number that grows and is never reset, and the
/// [epoch](crate::job::record::StoreEpoch) of the store that made it. A change with a lease is
/// applied only while that lease's claim is the current one; the store accepts at most one final
/// result for a claim.
///
/// **Signals.** After each visible change the store calls
/// [`Signals::changed`](crate::signals::Signals::changed), and as soon as a job can be claimed
/// [`Signals::job_queued`](crate::signals::Signals::job_queued). After each change of an endpoint's
/// queue, soon but in any order, it calls
/// [`Signals::demand_changed`](crate::signals::Signals::demand_changed) with what waits then, and
/// the version of that.
///
/// **Time** is the store's: no call takes the current time.
///
/// Dropping a future does not undo its operation.
#[async_trait]
pub trait JobStore: Send + Sync + std::fmt::Debug {
    /// The shard of the jobs that this host creates.
    fn shard(&self) -> ShardId;

    /// The store's time.
    fn now(&self) -> Timestamp;

    /// Adds a job to its endpoint's queue, unless the submission is a duplicate. A submission with
    /// an [`Idempotency`] is recorded for
    /// [`KEY_LIFETIME_MS`](crate::job::idempotency::KEY_LIFETIME_MS), even if its job is deleted,
    /// as long as its endpoint exists.
    ///
    /// # Errors
    /// [`StoreError::Full`]: [`StoreFull::Queue`] at the bound of the endpoint's queue,
    /// [`StoreFull::HostQueue`] and [`StoreFull::OwnerQueue`] at the bound of all waiting jobs and
    /// at the owner's share of it, [`StoreFull::WaitingBytes`] and [`StoreFull::ResultBytes`] at
    /// the bounds of its payloads, [`StoreFull::OwnerDisk`] at the owner's share of the disk,
    /// [`StoreFull::HostWebhooks`] and [`StoreFull::OwnerWebhooks`] at the bound of the memory of
    /// all webhooks and at the owner's share of it, [`StoreFull::Disk`] when the disk has no room.
    /// A duplicate of an earlier submission is not refused for any of them.
    async fn submit(&self, job: NewJob) -> Result<SubmitAnswer, StoreError>;

    /// The answer of [`submit`](Self::submit) to a duplicate of an earlier submission, whose job is
    /// then on stable storage; `None` when the submission is new. Adds nothing.
    async fn find_repeated(
        &self,
        endpoint: &EndpointId,
        idempotency: Idempotency,
    ) -> Result<Option<SubmitAnswer>, StoreError>;

    /// Takes the oldest waiting job for a worker, one of low priority only when no other waits.
    /// Does not wait for the disk; the claim is written no later than its result. A job whose ttl
    /// is over is never returned, and a job whose stored input is damaged ends as FAILED. `None`
    /// when no job can be claimed. The claimed job has the new [demand](ClaimedJob::left), for
    /// which there need be no notification.
    async fn claim(
        &self,
        endpoint: &EndpointId,
        worker: &WorkerId,
    ) -> Result<Option<ClaimedJob>, StoreError>;

    /// Appends chunks to the stream of a running job. Waits only while the store's buffer is full.
    /// The chunks become visible once they are on disk, no later than the job's end.
    async fn append_chunks(&self, lease: Lease, chunks: Vec<Chunk>) -> Result<Fenced, StoreError>;

    /// Replaces the progress value of a running job. Not durable: a crash runs the job again.
    async fn set_progress(&self, lease: Lease, value: Json) -> Result<Fenced, StoreError>;

    /// Ends an attempt with its result and bills its usage: both are on disk together, or neither
    /// is. Waits only while the store's buffer is full, not for the disk. The result becomes
    /// visible, and is signalled, once it is on disk.
    async fn finish_deferred(
        &self,
        lease: Lease,
        outcome: Outcome,
        metered: Metered,
    ) -> Result<Fenced, StoreError>;

    /// Ends an attempt that failed. If the [rule](FailedAttempt::decide) of the job permits another
    /// one, the job waits for it and the attempt's usage is billed: both are on disk together, or
    /// neither is. Otherwise the caller [finishes](Self::finish_deferred) the job. Waits neither
    /// for the store's buffer nor for the disk.
    async fn try_again(
        &self,
        lease: Lease,
        failed: &FailedAttempt,
        metered: &Metered,
    ) -> Result<TriedAgain, StoreError>;

    /// Bills the last attempt of a job that has no result. Must be called once for it. Waits only
    /// while the store's buffer is full, not for the disk. The
    /// [usage](crate::job::record::JobRecord::usage) of a cancelled job includes the attempt from
    /// then on; that of an archived job does not.
    async fn bill(&self, lease: Lease, bill: Bill) -> Result<(), StoreError>;

    /// Bills usage without jobs. All of it is on disk together, or none is. Waits only while the
    /// store's buffer is full, not for the disk. Without bills it only finds out whether the store
    /// is open.
    async fn bill_requests(&self, bills: Vec<Bill>) -> Result<(), StoreError>;

    /// Waits until all earlier changes are on disk.
    async fn flush(&self) -> Result<(), StoreError>;

    /// Whether the lease is the current one. Like [`claim`](Self::claim) the answer may be ahead of
    /// the disk.
    async fn holds_lease(&self, lease: Lease) -> Result<bool, StoreError>;

    /// Remembers that a call of a handler begins to wait for the end of a job, or waits no more.
    /// While calls wait for a job, it comes before all jobs of its endpoint for which none waits.
    /// The job's end and a restart forget its calls; a job that has ended has none.
    fn note_call(&self, id: JobId, step: CallStep);

    /// Returns a running job to its place in the queue; neither a crash nor a retry is counted.
    async fn release(&self, lease: Lease, cause: ReleaseCause) -> Result<Fenced, StoreError>;

    /// Ends the attempt of a host that was lost: the job waits again and a retry is counted, or it
    /// is FAILED when it has lost so many hosts as the [bound](crate::job::loss::LossBounds) of
    /// this loss. Waits until a job that waits again is on disk, but not for the end, as
    /// [`finish_deferred`](Self::finish_deferred).
    async fn host_lost(&self, lease: Lease, loss: HostLoss) -> Result<Fenced, StoreError>;

    /// Notes the process of another host that runs the attempt, before it begins there: the attempt
    /// [outlives](Self::left_attempts) this host. Written with the claim, or soon after it.
    async fn note_host(&self, lease: Lease, host: HostProcess) -> Result<Fenced, StoreError>;

    /// The attempts that other hosts have had since before this store was opened. Their jobs are
    /// running until the caller ends the attempts: the caller awaits the hosts, or
    /// [gives them up](Self::host_lost).
    fn left_attempts(&self) -> Result<Vec<LeftAttempt>, StoreError>;

    /// Waits until all earlier changes of the job are on disk.
    async fn durable(&self, id: JobId) -> Result<(), StoreError>;

    /// Cancels a waiting or running job; a job that has ended keeps its status, which is returned.
    async fn cancel(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<JobStatus>, StoreError>;

    /// Queues a FAILED or TIMED_OUT job again, with its input and without its result. Its failed
    /// attempts do not count any more. The ttl goes on from the submission. `waiting_jobs_max` is
    /// the endpoint's own bound of jobs that wait.
    ///
    /// # Errors
    /// At the bounds of the endpoint's queue and payloads, those of [`submit`](Self::submit); the
    /// job stays as it was.
    async fn retry(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        waiting_jobs_max: Option<u32>,
    ) -> Result<RetryAnswer, StoreError>;

    /// Removes all waiting jobs of the endpoint and returns their number.
    async fn purge(&self, endpoint: &EndpointId) -> Result<u64, StoreError>;

    /// Shortens the remaining lifetime of a job to `ttl_ms` from now; never lengthens it. Then
    /// neither a chosen retention nor a retry lengthens it.
    async fn shorten_ttl(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        ttl_ms: u64,
    ) -> Result<(), StoreError>;

    /// Deletes jobs whose ttl or retention is over, up to a bounded number, and returns the time of
    /// the next call.
    async fn expire(&self) -> Result<NextExpiry, StoreError>;

    /// Sets the limits of the starts of an endpoint's jobs, on all hosts together; by default there
    /// are none. They hold for further [claims](Self::claim), until they are set again, the
    /// endpoint is deleted or the store is closed.
    fn limit_starts(&self, endpoint: &EndpointId, limits: &StartLimits);

    /// Makes jobs claimable whose time has come, or whose [limit](Self::limit_starts) permits more
    /// by now. Returns when the next ones are; [`Timestamp::NEVER`] when none waits for a time.
    /// Quick: nothing is written.
    ///
    /// # Errors
    /// When the store is closed.
    fn fire_due(&self) -> Result<Timestamp, StoreError>;

    /// Deletes ended jobs of the endpoint beyond these bounds, the oldest first, except those that
    /// ended less than [`HistoryMax::SPARED_MS`] ago. A job counts as older than all that were
    /// submitted after it; but jobs that have left memory are deleted before all others.
    async fn trim_history(&self, endpoint: &EndpointId, max: HistoryMax) -> Result<(), StoreError>;

    /// Deletes those of the jobs that belong to the endpoint and have ended, and returns their
    /// number.
    ///
    /// # Errors
    /// [`StoreFull::Disk`] when the disk has no room for the deletions. Some jobs may be deleted
    /// then.
    async fn delete_ended(&self, endpoint: &EndpointId, ids: &[JobId]) -> Result<u64, StoreError>;

    /// The record of a job; `None` when it is unknown, deleted, or another endpoint's.
    async fn job(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<Box<JobRecord>>, StoreError>;

    /// The endpoint's jobs, newest first: the [search](Self::search) for them alone.
    async fn list(&self, endpoint: &EndpointId, query: &JobQuery) -> Result<JobPage, StoreError> {
        self.search(&JobSearch::of_endpoint(endpoint, query)).await
    }

    /// A page of the jobs of several endpoints that match, newest first. A page may be short, or
    /// empty, and have a next one: a store examines a bounded number of jobs for each page.
    async fn search(&self, search: &JobSearch) -> Result<JobPage, StoreError>;

    /// The position before the next job: a search after it finds jobs that were submitted so far,
    /// and no later ones. Valid until the store is opened again.
    ///
    /// # Errors
    /// Those of every read.
    fn end_position(&self) -> Result<Cursor, StoreError>;

    /// The input of a job that may run, now or after a retry; that of a COMPLETED or CANCELLED job
    /// is not kept.
    async fn input(&self, id: JobId) -> Result<Option<Json>, StoreError>;

    /// The output that a COMPLETED job's handler returned.
    async fn output(&self, id: JobId) -> Result<Option<Json>, StoreError>;

    /// Visible chunks of the [current attempt](JobRecord::attempt) from index `from` on: as many as
    /// fit in `bytes_max` and `count_max`, but at least one when there is one.
    async fn chunks(
        &self,
        id: JobId,
        from: u64,
        bytes_max: usize,
        count_max: usize,
    ) -> Result<ChunkPage, StoreError>;

    /// Remembers that the chunks before `next` were delivered. The position never moves backwards,
    /// and a call for another attempt than the [current](JobRecord::attempt) one changes nothing. A
    /// restart forgets the position: the stream is then delivered again from its start. After a
    /// call for a job with chunks, also for the position that it has, later ones need not wait.
    async fn mark_delivered(&self, id: JobId, next: StreamPosition) -> Result<(), StoreError>;

    /// The endpoint's counts; zeros for an endpoint without jobs.
    async fn counts(&self, endpoint: &EndpointId) -> Result<JobCounts, StoreError>;

    /// The waiting jobs of the endpoint that can be claimed, on disk or not.
    async fn demand(&self, endpoint: &EndpointId) -> Result<Demand, StoreError>;

    /// Deletes all data of an endpoint, including its jobs and counts, except its usage. For
    /// endpoints that are not in the catalog; the catalog itself begins the deletion of its
    /// endpoints ([`forget_endpoints`](crate::catalog::CatalogStore::forget_endpoints)).
    async fn delete_endpoint(&self, endpoint: &EndpointId) -> Result<(), StoreError>;

    /// Waits until all data of deleted endpoints of this name is deleted on disk.
    async fn await_deletion(&self, endpoint: &EndpointId) -> Result<(), StoreError>;

    /// Statistics since the store was opened.
    fn stats(&self) -> StoreStats;

    /// Waits until all accepted changes are on disk, then refuses all calls.
    async fn close(&self);
}

/// The result of a submission.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum SubmitAnswer {
    /// The job was added.
    Queued,
    /// The job was added, and completed meanwhile. A store may answer so to a submission that
    /// [may linger](NewJob::may_linger): its caller then need not read the result.
    Completed(CompletedJob),
    /// The submission is a duplicate: this is the job of the first one, which may have been deleted
    /// since. Nothing was added.
    Repeated(JobId),
    /// The key was used before with other content. Nothing was added.
    KeyReused,
}

/// Whether a change with a lease was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Fenced {
    /// The change was applied.
    Applied,
    /// The lease is not the current one any more: the job was cancelled, timed out, deleted, or
    /// claimed again. Nothing has changed.
    Stale,
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum TriedAgain {
    /// The job waits for its next attempt.
    Queued,
    /// The job is to end.
    Ends,
    /// The lease is not the current one any more. Nothing has changed.
    Stale,
}

/// The result of a retry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryAnswer {
    /// The job waits again.
    Queued,
    /// Only FAILED and TIMED_OUT jobs can be retried; this is the job's status.
    WrongStatus(JobStatus),
    /// There is no such job.
    NotFound,
}

/// The time of the next [`JobStore::expire`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NextExpiry(pub Timestamp);

/// Statistics since the store was opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Transactions committed, each with one fsync.
    pub commits: u64,
    /// Changes that those transactions carried.
    pub operations: u64,
    /// Jobs that exist now.
    pub jobs: u64,
    /// Those of them that are only in the tables.
    pub archived_jobs: u64,
    /// Webhooks that are still to be sent.
    pub waiting_webhooks: u64,
    /// Time of each commit, with its fsync.
    pub commit: DurationTotals,
    /// Bytes that the store will still copy from its journal to its tables, at most.
    pub checkpoint_backlog_bytes: u64,
}
