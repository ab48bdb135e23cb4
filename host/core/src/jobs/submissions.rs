//! The submission of one job, the same for clients and for handlers: its policy is checked, and the
//! store decides about the bounds of the endpoint's queue and the share of its owner.

use std::sync::Arc;

use crate::deploy::endpoint::Deployment;
use crate::deploy::input_checks::{CheckError, InputChecks};
use crate::id::{JobId, OwnerId, SubmissionKind};
use crate::job::idempotency::Idempotency;
use crate::job::note::ScheduleNote;
use crate::job::payload::Json;
use crate::job::policy::{InvalidPolicy, PolicyRequest, Strictness};
use crate::job::record::{CompletedJob, NewJob, S3Config};
use crate::job::retention::Retention;
use crate::job::tags::Tags;
use crate::limits::{RETENTION_ASYNC_MS, RETENTION_SYNC_MS_MIN};
use crate::metrics::endpoint::{RefusedFor, SubmittedBy};
use crate::store::{JobStore, StoreError, StoreFull, SubmitAnswer};
use crate::trace::TraceContext;

/// A request of `/run` or `/runsync`, or of a handler.
#[derive(Debug, Clone)]
pub struct SubmitRequest {
    /// The owner of the calling key. For a handler's request: that of the handler's job.
    pub owner: OwnerId,
    /// The handler's input.
    pub input: Json,
    /// Timeout, ttl and priority, if given.
    pub policy: PolicyRequest,
    /// The URL to call when the job ends.
    pub webhook: Option<String>,
    /// Object-storage settings for the handler.
    pub s3_config: Option<Arc<S3Config>>,
    /// The operation, and how long its result is kept.
    pub mode: SubmitMode,
    /// The hashes by which a duplicate of the submission is recognised.
    pub idempotency: Option<Idempotency>,
    /// By which clients find the job.
    pub tags: Option<Tags>,
    /// Its position in a distributed trace.
    pub trace: Option<TraceContext>,
    /// What its schedule notes about the tick that makes it.
    pub note: Option<ScheduleNote>,
}

/// The limit that an error of the store reports; `None` for another error.
fn refused_for(error: &StoreError) -> Option<RefusedFor> {
    match error {
        StoreError::Full(StoreFull::Disk(_)) => Some(RefusedFor::DiskFull),
        StoreError::Full(_) => Some(RefusedFor::QueueFull),
        _ => None,
    }
}

/// An accepted submission.
#[derive(Debug, Clone)]
pub struct Submitted {
    /// Its job.
    pub id: JobId,
    /// Whether the submission is a duplicate; then its job may have been deleted since.
    pub is_repeated: bool,
    /// The job and its result, if a job of `/runsync` was completed before its submission was on
    /// disk.
    pub completed: Option<CompletedJob>,
}

impl Submitted {
    fn repeated(id: JobId) -> Self {
        Self { id, is_repeated: true, completed: None }
    }
}

/// The operation that submits a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmitMode {
    /// `/run`.
    Async,
    /// A call of a handler, with the id of its job: of the same job as a call before with this id.
    Handler(JobId),
    /// A time of a schedule, or a job that a client submits by it, with the job's id.
    Schedule(JobId),
    /// `/runsync`.
    Sync {
        /// How long the client wants the result to be kept, in milliseconds: the `wait` of the
        /// call, or 0 without one.
        kept_ms: u64,
    },
}

/// Why a submission was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// A value of the policy is outside its bounds.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
    /// The input does not fit the schema of the handler's input, or cannot be checked by it.
    #[error(transparent)]
    Input(#[from] CheckError),
    /// The store did not accept the job.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The Idempotency-Key was used for another submission.
    #[error("this Idempotency-Key was sent before with another operation or body")]
    KeyReused,
}

/// Stores a job and returns its id; then the job is on stable storage, and may already run. A
/// duplicate submission returns the job of the first one.
///
/// # Errors
/// [`SubmitError`]; then nothing was stored.
pub(crate) async fn submit(
    store: &dyn JobStore,
    checks: &InputChecks,
    deployment: &Deployment,
    request: SubmitRequest,
    strictness: Strictness,
) -> Result<Submitted, SubmitError> {
    let settings = &deployment.endpoint.settings;
    let policy = request.policy.resolve(strictness, settings.retry, store.now())?;
    let chosen = request.policy.resolve_retention(strictness).map_err(InvalidPolicy::from)?;
    let new_id = |submission| JobId::generate(submission, store.shard());
    let (id, default_ms) = match request.mode {
        SubmitMode::Async => (new_id(SubmissionKind::Async), RETENTION_ASYNC_MS),
        SubmitMode::Handler(id) | SubmitMode::Schedule(id) => (id, RETENTION_ASYNC_MS),
        SubmitMode::Sync { kept_ms } => {
            (new_id(SubmissionKind::Sync), kept_ms.max(RETENTION_SYNC_MS_MIN))
        }
    };
    if let Err(refused) = checks.check(deployment, &request.input).await {
        return repeated(store, deployment, request.idempotency, refused).await;
    }
    let metrics = deployment.incarnation.metrics();
    let submitted = store
        .submit(NewJob {
            id,
            endpoint: deployment.endpoint.id.clone(),
            owner: request.owner,
            input: request.input,
            policy,
            retention: Retention { default_ms, chosen: chosen.or(deployment.endpoint.retention()) },
            webhook: request.webhook,
            s3_config: request.s3_config,
            may_linger: id.submission() == SubmissionKind::Sync,
            waiting_jobs_max: settings.max_waiting_jobs,
            idempotency: request.idempotency,
            incarnation: deployment.incarnation.clone(),
            tags: request.tags,
            trace: request.trace,
            note: request.note,
        })
        .await;
    if let Some(why) = submitted.as_ref().err().and_then(refused_for) {
        metrics.refused(why);
    }
    let completed = match submitted? {
        SubmitAnswer::Queued => None,
        SubmitAnswer::Completed(job) => Some(job),
        SubmitAnswer::Repeated(id) => return Ok(Submitted::repeated(id)),
        SubmitAnswer::KeyReused => return Err(SubmitError::KeyReused),
    };
    metrics.submitted(match request.mode {
        SubmitMode::Async => SubmittedBy::Run,
        SubmitMode::Sync { .. } => SubmittedBy::RunSync,
        SubmitMode::Handler(_) => SubmittedBy::Handler,
        SubmitMode::Schedule(_) => SubmittedBy::Schedule,
    });
    Ok(Submitted { id, is_repeated: false, completed })
}

/// The answer to a submission with an input that is refused: a duplicate still gets the job of the
/// first submission, whose input fitted the schema of that time.
async fn repeated(
    store: &dyn JobStore,
    deployment: &Deployment,
    idempotency: Option<Idempotency>,
    refused: CheckError,
) -> Result<Submitted, SubmitError> {
    let Some(idempotency) = idempotency else { return Err(refused.into()) };
    match store.find_repeated(&deployment.endpoint.id, idempotency).await? {
        Some(SubmitAnswer::Repeated(id)) => Ok(Submitted::repeated(id)),
        Some(SubmitAnswer::KeyReused) => Err(SubmitError::KeyReused),
        Some(SubmitAnswer::Queued | SubmitAnswer::Completed(_)) | None => Err(refused.into()),
    }
}
