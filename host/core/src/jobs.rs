//! All that a client may do with jobs. The API calls nothing else.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::endpoint::Deployment;
use crate::id::{EndpointId, JobId, OwnerId, Submission};
use crate::idempotency::Idempotency;
use crate::job::JobStatus;
use crate::limits::{
    RETENTION_ASYNC_MS, RETENTION_SYNC_MS_MIN, STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX,
};
use crate::listing::{JobPage, JobQuery};
use crate::payload::Json;
use crate::policy::{PolicyOutOfBounds, PolicyRequest, Strictness};
use crate::record::{JobCounts, JobRecord, NewJob, S3Config};
use crate::signals::Signals;
use crate::store::{JobStore, RetryAnswer, StoreError, SubmitAnswer};
use crate::stream::{Position, StreamPage, list_of_outputs};
use crate::time::Timestamp;
use crate::workers::{WorkerCounts, Workers};

/// What a client asks for with `/run` or `/runsync`.
#[derive(Debug, Clone)]
pub struct SubmitRequest {
    /// Who asks.
    pub owner: OwnerId,
    /// The handler's input.
    pub input: Json,
    /// Timeout, ttl and priority, where given.
    pub policy: PolicyRequest,
    /// The URL to call when the job ends.
    pub webhook: Option<String>,
    /// Object-storage settings for the handler.
    pub s3_config: Option<S3Config>,
    /// By which operation, and for how long its result shall be kept.
    pub mode: SubmitMode,
    /// What makes the submission recognisable when it comes again.
    pub idempotency: Option<Idempotency>,
}

/// A submission that was accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitted {
    /// Its job.
    pub id: JobId,
    /// Whether it came before; its job may be gone by now.
    pub is_repeat: bool,
}

/// By which operation a job is submitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitMode {
    /// `/run`.
    Async,
    /// `/runsync`.
    Sync {
        /// For how long its client wants the result kept, in milliseconds: the `wait` that the
        /// call names, 0 when it names none.
        kept_ms: u64,
    },
}

/// Why a submission was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// A number of the policy is outside its bounds.
    #[error(transparent)]
    Policy(#[from] PolicyOutOfBounds),
    /// The store did not take the job.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The submission's key belongs to another one.
    #[error("this Idempotency-Key was sent before with another operation or body")]
    KeyReused,
}

/// A job as a client sees it.
#[derive(Debug, Clone)]
pub struct JobDocument {
    /// What is known of the job.
    pub record: JobRecord,
    /// The time at which it was read, for the values that still run.
    pub read_at: Timestamp,
    /// The result; while the job runs, its newest progress value.
    pub output: Option<Json>,
    /// Why a job that waits is not being run.
    pub waiting_reason: Option<String>,
}

/// An endpoint's health.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Health {
    /// Jobs by state.
    pub jobs: JobCounts,
    /// Workers by what they do.
    pub workers: WorkerCounts,
}

/// The jobs of all endpoints.
#[derive(Debug)]
pub struct Jobs {
    store: Arc<dyn JobStore>,
    signals: Arc<Signals>,
    workers: Arc<dyn Workers>,
    strictness: Strictness,
    draining: CancellationToken,
    closing: CancellationToken,
}

impl Jobs {
    /// Puts the parts together. The store must report to `signals`.
    pub fn new(
        store: Arc<dyn JobStore>,
        signals: Arc<Signals>,
        workers: Arc<dyn Workers>,
        strictness: Strictness,
    ) -> Self {
        let (draining, closing) = (CancellationToken::new(), CancellationToken::new());
        Self { store, signals, workers, strictness, draining, closing }
    }

    /// Stores a job and returns its id; then the job is on stable storage, and may already run.
    /// A submission that came before is the job that it became then.
    ///
    /// # Errors
    /// [`SubmitError`]; nothing was stored.
    pub async fn submit(
        &self,
        deployment: &Deployment,
        request: SubmitRequest,
    ) -> Result<Submitted, SubmitError> {
        if self.draining.is_cancelled() {
            return Err(StoreError::Closed.into());
        }
        let default_timeout_ms = deployment.endpoint.execution_timeout_ms;
        let policy = request.policy.resolve(default_timeout_ms, self.strictness)?;
        let (submission, retention_ms) = match request.mode {
            SubmitMode::Async => (Submission::Async, RETENTION_ASYNC_MS),
            SubmitMode::Sync { kept_ms } => (Submission::Sync, kept_ms.max(RETENTION_SYNC_MS_MIN)),
        };
        let id = JobId::generate(submission, self.store.node());
        let answer = self
            .store
            .submit(NewJob {
                id,
                endpoint: deployment.endpoint.id.clone(),
                owner: request.owner,
                input: request.input,
                policy,
                retention_ms,
                webhook: request.webhook,
                s3_config: request.s3_config,
                may_linger: submission == Submission::Sync,
                waiting_jobs_max: deployment.endpoint.waiting_jobs_max,
                idempotency: request.idempotency,
                life: deployment.life.clone(),
            })
            .await?;
        match answer {
            SubmitAnswer::Queued => Ok(Submitted { id, is_repeat: false }),
            SubmitAnswer::Repeated(id) => Ok(Submitted { id, is_repeat: true }),
            SubmitAnswer::KeyReused => Err(SubmitError::KeyReused),
        }
    }

    /// The job, with its output when it has one. `None`: unknown, or gone.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn document(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<JobDocument>, StoreError> {
        match self.store.job(endpoint, id).await? {
            Some(record) => self.complete(record).await.map(Some),
            None => Ok(None),
        }
    }

    /// Adds to a record what else its document has.
    async fn complete(&self, record: JobRecord) -> Result<JobDocument, StoreError> {
        let mut waiting_reason = None;
        let output = match record.status {
            JobStatus::Completed => self.output(&record).await?,
            JobStatus::Failed => self.store.output(record.id).await?,
            JobStatus::InProgress => record.progress.clone(),
            JobStatus::InQueue => {
                waiting_reason = self.workers.waiting_reason(&record.endpoint);
                None
            }
            JobStatus::Cancelled | JobStatus::TimedOut => None,
        };
        Ok(JobDocument { record, read_at: self.store.now(), output, waiting_reason })
    }

    async fn output(&self, record: &JobRecord) -> Result<Option<Json>, StoreError> {
        let returned = self.store.output(record.id).await?;
        match returned {
            Some(value) if value.is_null() && record.chunk_count > 0 => {
                list_of_outputs(&*self.store, record.id, record.chunk_count).await
            }
            other => Ok(other),
        }
    }

    /// Waits until the job has ended or `wait` is over, and returns it as [`Jobs::document`] does.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn wait_until_final(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        wait: Duration,
    ) -> Result<Option<JobDocument>, StoreError> {
        match self.wait_for_end(endpoint, id, wait).await? {
            Some(record) if record.status.is_final() => self.complete(record).await.map(Some),
            // It may have changed just when the wait was over.
            Some(_) => self.document(endpoint, id).await,
            None => Ok(None),
        }
    }

    /// Waits until the job has ended or `wait` is over, and returns what is known of it then.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn wait_for_end(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        wait: Duration,
    ) -> Result<Option<JobRecord>, StoreError> {
        let deadline = Instant::now() + wait;
        let watch = self.signals.watch(id);
        loop {
            let changed = watch.changed();
            let record = self.store.job(endpoint, id).await?;
            let is_final = record.as_ref().is_none_or(|record| record.status.is_final());
            if is_final || self.waited_long_enough(deadline, changed).await {
                return Ok(record);
            }
        }
    }

    /// The value that a COMPLETED job's handler returned, `null` after chunks included.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn returned(&self, id: JobId) -> Result<Option<Json>, StoreError> {
        self.store.output(id).await
    }

    /// Takes no more jobs: the host drains, and somebody else should get them.
    pub fn stop_accepting(&self) {
        self.draining.cancel();
    }

    /// Answers every call that waits with what it has, now and from now on: the host closes down.
    pub fn stop_waiting(&self) {
        self.closing.cancel();
    }

    /// Whether calls are not waited for any more.
    pub fn is_closing(&self) -> bool {
        self.closing.is_cancelled()
    }

    /// Waits until calls are not waited for any more.
    pub async fn closed(&self) {
        self.closing.cancelled().await;
    }

    /// Waits for a change. `true`: there will be no more waiting for this call.
    async fn waited_long_enough(
        &self,
        deadline: Instant,
        changed: impl Future<Output = ()>,
    ) -> bool {
        tokio::select! {
            // A change that comes with the deadline is still told.
            biased;
            () = changed => false,
            () = tokio::time::sleep_until(deadline) => true,
            () = self.closing.cancelled() => true,
        }
    }

    /// The next page of the job's stream. Waits up to `wait` for something new: a chunk or the
    /// job's end. Call [`Jobs::mark_delivered`] once the page has been handed over.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn stream(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        position: Position,
        wait: Duration,
    ) -> Result<Option<StreamPage>, StoreError> {
        let deadline = Instant::now() + wait;
        let watch = self.signals.watch(id);
        loop {
            let changed = watch.changed();
            let Some(record) = self.store.job(endpoint, id).await? else { return Ok(None) };
            let from = match position {
                Position::Undelivered => record.chunks_delivered,
                Position::From(index) => index,
            };
            let page =
                self.store.chunks(id, from, STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX).await?;
            let is_last = page.next() >= record.chunk_count;
            let status = match record.status {
                status if status.is_final() && !is_last => JobStatus::InProgress,
                status => status,
            };
            let is_worth_telling = !page.chunks.is_empty() || status.is_final();
            if is_worth_telling || self.waited_long_enough(deadline, changed).await {
                let error = if status.is_final() { record.error } else { None };
                return Ok(Some(StreamPage { status, error, page }));
            }
        }
    }

    /// Remembers that the chunks before `next` have reached a client.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn mark_delivered(&self, id: JobId, next: u64) -> Result<(), StoreError> {
        self.store.mark_delivered(id, next).await
    }

    /// Cancels the job and returns its status: CANCELLED, or the final status that it had already.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn cancel(
        &self,
        endpoint: &EndpointId,
        id: JobId,
    ) -> Result<Option<JobStatus>, StoreError> {
        self.store.cancel(endpoint, id).await
    }

    /// Queues a FAILED or TIMED_OUT job again, unless as many jobs wait as may.
    ///
    /// # Errors
    /// Those of the store, among them its refusals of submissions at the endpoint's bounds.
    pub async fn retry(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        waiting_jobs_max: Option<u32>,
    ) -> Result<RetryAnswer, StoreError> {
        self.store.retry(endpoint, id, waiting_jobs_max).await
    }

    /// Removes all jobs that wait on the endpoint and returns their number.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn purge(&self, endpoint: &EndpointId) -> Result<u64, StoreError> {
        self.store.purge(endpoint).await
    }

    /// Shortens what remains of the job's life.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn shorten_ttl(
        &self,
        endpoint: &EndpointId,
        id: JobId,
        ttl_ms: u64,
    ) -> Result<(), StoreError> {
        self.store.shorten_ttl(endpoint, id, ttl_ms).await
    }

    /// The endpoint's jobs, newest first, and the time at which they were read.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn list(
        &self,
        endpoint: &EndpointId,
        query: &JobQuery,
    ) -> Result<(JobPage, Timestamp), StoreError> {
        let page = self.store.list(endpoint, query).await?;
        Ok((page, self.store.now()))
    }

    /// The endpoint's jobs and workers.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn health(&self, endpoint: &EndpointId) -> Result<Health, StoreError> {
        let jobs = self.store.counts(endpoint).await?;
        Ok(Health { jobs, workers: self.workers.counts(endpoint) })
    }

    /// The store's time.
    pub fn now(&self) -> Timestamp {
        self.store.now()
    }
}
