//! A job whose only client is the call that submitted it. If the call ends before the job, because
//! its client disconnected or its wait is over, the job is cancelled.

use std::sync::Arc;
use std::time::Duration;

use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::payload::Json;
use gristmill_core::job::state::JobStatus;
use gristmill_core::jobs::operations::{Jobs, SubmitRequest};
use gristmill_core::jobs::stream::Position;
use gristmill_core::limits::WAIT_MS;

use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::auth::KeyCheck;
use crate::limits::checks::CallerPages;
use crate::queue::results::Memory;
use crate::queue::waiting::{self, HeldPage};

/// How long a call waits for the end, or for the first chunk.
pub(super) const WAIT: Duration = Duration::from_millis(WAIT_MS.max);

/// The client of a call, with what its key may use.
pub(crate) struct Client {
    pub(crate) key: KeyCheck,
    pub(crate) memory: Memory,
    pub(crate) pages: CallerPages,
}

/// A job that is cancelled when this value is dropped, unless it has ended or was disarmed.
pub(crate) struct OwnedJob {
    jobs: Arc<Jobs>,
    client: Client,
    endpoint: EndpointId,
    id: JobId,
    is_disarmed: bool,
}

impl OwnedJob {
    /// Submits a job; then it is on stable storage.
    ///
    /// # Errors
    /// Those of a submission.
    pub(crate) async fn submit(
        jobs: Arc<Jobs>,
        client: Client,
        deployment: Arc<Deployment>,
        request: SubmitRequest,
    ) -> Result<Self, ApiError> {
        client.key.check()?;
        // A submission that has begun cannot be undone. On a task of its own it continues when
        // the client disconnects meanwhile, and its result, with the job, is dropped there.
        let submitting = tokio::spawn(async move {
            let id = jobs.submit(&deployment, request).await?.id;
            let endpoint = deployment.endpoint.id.clone();
            Ok(Self { jobs, client, endpoint, id, is_disarmed: false })
        });
        submitting.await.unwrap_or_else(|error| {
            Err(ApiError::new(ErrorCode::Internal, format!("the submission ended early: {error}")))
        })
    }

    pub(crate) fn id(&self) -> JobId {
        self.id
    }

    /// The job is not cancelled any more.
    pub(super) fn disarm(&mut self) {
        self.is_disarmed = true;
    }

    /// Waits for the end.
    ///
    /// # Errors
    /// Those of [`OwnedJob::check_completed`].
    pub(super) async fn wait_until_completed(&mut self) -> Result<(), ApiError> {
        let Self { jobs, client, endpoint, id, .. } = &*self;
        let record = waiting::for_end(&client.key, jobs, endpoint, *id, WAIT).await?;
        let record = record.ok_or_else(|| self.not_found())?;
        self.check_completed(record.status, record.error).await
    }

    /// The chunks from `position` on. Waits up to `wait` for one of them, or the end.
    ///
    /// # Errors
    /// 404 when the job was removed; 401 when the call's key is not valid any more.
    pub(super) async fn chunks(
        &self,
        position: Position,
        wait: Duration,
    ) -> Result<HeldPage, ApiError> {
        self.client.key.check()?;
        let Self { jobs, client, endpoint, id, .. } = self;
        let (Client { key, memory, .. }, job) = (client, (endpoint, *id));
        let page = waiting::for_page(key, jobs, memory, job, position, wait).await?;
        page.ok_or_else(|| self.not_found())
    }

    /// The output of the COMPLETED job's handler. The memory for it, and for its chunks, is held
    /// until this value is dropped.
    ///
    /// # Errors
    /// 404 when the job was removed; 503 when there is no memory for ten seconds.
    pub(super) async fn returned(&mut self) -> Result<Json, ApiError> {
        let record = self.jobs.record(&self.endpoint, self.id).await?;
        let record = record.ok_or_else(|| self.not_found())?;
        self.client.memory.take_for(&record).await?;
        self.jobs.returned(self.id).await?.ok_or_else(|| self.not_found())
    }

    /// Runs `work` on so many bytes of the job's output.
    ///
    /// # Errors
    /// 500 when `work` panics.
    pub(super) async fn work_on<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        self.client.pages.write_sized(bytes, work).await
    }

    /// Checks how the job has ended. A job that has not ended in time is cancelled.
    ///
    /// # Errors
    /// Every other end than COMPLETED.
    pub(super) async fn check_completed(
        &mut self,
        status: JobStatus,
        error: Option<String>,
    ) -> Result<(), ApiError> {
        if status.is_final() {
            self.disarm();
        }
        let (code, sentence) = match status {
            JobStatus::Completed => return Ok(()),
            JobStatus::Failed => (ErrorCode::JobFailed, error.unwrap_or_default()),
            JobStatus::TimedOut => (ErrorCode::JobTimedOut, error.unwrap_or_default()),
            JobStatus::Cancelled => {
                (ErrorCode::JobCancelled, format!("job `{}` was cancelled", self.id))
            }
            JobStatus::InQueue | JobStatus::InProgress => return Err(self.give_up(status).await),
        };
        Err(ApiError::new(code, sentence))
    }

    /// Whether the host closes, and no longer waits for calls.
    pub(super) fn is_abandoned(&self) -> bool {
        self.jobs.is_closing()
    }

    async fn give_up(&mut self, status: JobStatus) -> ApiError {
        self.disarm();
        if let Err(error) = self.jobs.cancel(&self.endpoint, self.id).await {
            return error.into();
        }
        if self.is_abandoned() {
            let sentence = "the host is shutting down; try again shortly";
            return ApiError::new(ErrorCode::Unavailable, sentence);
        }
        let seconds = WAIT.as_secs();
        let sentence = format!("the job was {status} after {seconds} s and has been cancelled");
        ApiError::new(ErrorCode::WaitOver, sentence)
    }

    /// The refusal when the job was removed.
    pub(super) fn not_found(&self) -> ApiError {
        let id = self.id;
        ApiError::not_found(format!("job `{id}` was removed by purge-queue, or its ttl is over"))
    }
}

impl Drop for OwnedJob {
    fn drop(&mut self) {
        if self.is_disarmed {
            return;
        }
        let (jobs, endpoint, id) = (self.jobs.clone(), self.endpoint.clone(), self.id);
        tokio::spawn(async move {
            // The store is closing: then the job runs again after the next start.
            let _ = jobs.cancel(&endpoint, id).await;
        });
    }
}
