//! The jobs that handlers submit to other endpoints.
//!
//! Such a job is like a client's: its submission is on disk before the call returns, and the bounds
//! of the queue and the share of its owner hold. Its id has its [depth](CallDepth), so that
//! handlers that call each other in a circle end. It does not depend on its caller: it continues
//! when the caller is cancelled, ends or runs again.
//!
//! A call that waits keeps its caller's sandbox, and lends the caller's place among the workers of
//! its endpoint to other called jobs. So calls in a circle do not wait for each other's workers.
//! More callers than the host has sandboxes can block each other. Each such call ends shortly
//! before the deadline of its attempt, with an error that names the job.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::catalog::Catalog;
use crate::deploy::endpoint::{Deployment, EndpointType, Scaling};
use crate::id::{CallDepth, EndpointId, JobId, OwnerId};
use crate::job::handler_call::{CallError, HandlerCall};
use crate::job::idempotency::Idempotency;
use crate::job::payload::Json;
use crate::job::policy::{PolicyRequest, Strictness};
use crate::job::record::{CallStep, JobRecord, TIMED_OUT_ERROR};
use crate::job::state::JobStatus;
use crate::jobs::stream::output_of;
use crate::jobs::submissions::{SubmitError, SubmitMode, SubmitRequest, submit};
use crate::limits::{
    HANDLER_CALL_MARGIN_MS, IDEMPOTENCY_KEY_CHARS_MAX, OUTPUT_BYTES_MAX, is_idempotency_key,
};
use crate::signals::Signals;
use crate::store::{JobStore, StoreError};
use crate::trace::TraceContext;

/// The attempt whose handler calls.
#[derive(Debug)]
pub struct Caller {
    /// Its job.
    pub job: JobId,
    /// The owner of the key that submitted this job, who owns the called jobs too.
    pub owner: OwnerId,
    /// The deployment that it runs.
    pub deployment: Arc<Deployment>,
    /// Its position in a distributed trace: the parent of the called jobs.
    pub trace: Option<TraceContext>,
    /// When it is stopped.
    pub deadline: Instant,
}

/// Makes the calls of handlers.
#[derive(Debug)]
pub struct HandlerCalls {
    store: Arc<dyn JobStore>,
    catalog: Arc<Catalog>,
    signals: Arc<Signals>,
}

impl HandlerCalls {
    /// Combines the parts. The store must report to `signals`.
    pub fn new(store: Arc<dyn JobStore>, catalog: Arc<Catalog>, signals: Arc<Signals>) -> Self {
        Self { store, catalog, signals }
    }

    /// Submits a job, and returns its id once it is on stable storage.
    ///
    /// # Errors
    /// [`CallError`]; then nothing was stored.
    pub async fn submit(&self, caller: &Caller, call: HandlerCall) -> Result<JobId, CallError> {
        Ok(self.submit_to(caller, call).await?.1)
    }

    /// Submits a job whose output the caller awaits: until the called job is dropped, it comes
    /// before the other jobs of its endpoint.
    ///
    /// # Errors
    /// [`CallError`]; then nothing was stored.
    pub async fn begin(
        &self,
        caller: &Caller,
        call: HandlerCall,
    ) -> Result<CalledJob<'_>, CallError> {
        let (target, id) = self.submit_to(caller, call).await?;
        self.store.note_call(id, CallStep::Begins);
        let margin = Duration::from_millis(HANDLER_CALL_MARGIN_MS);
        let until = caller.deadline.checked_sub(margin).unwrap_or(caller.deadline);
        Ok(CalledJob { calls: self, target, id, until })
    }

    async fn submit_to(
        &self,
        caller: &Caller,
        call: HandlerCall,
    ) -> Result<(Arc<Deployment>, JobId), CallError> {
        let target = self.target(caller, &call.endpoint)?;
        let own = caller.job.of_call().ok_or_else(|| {
            CallError::LimitReached(format!(
                "job `{}` is at the end of a chain of {} jobs that handlers submitted; it may submit none",
                caller.job,
                CallDepth::MAX
            ))
        })?;
        let chosen = call.job.filter(|id| id.submission() == own.submission());
        let key = call.idempotency_key.as_deref();
        let idempotency =
            key.map(|key| idempotency(&caller.owner, key, &call.input)).transpose()?;
        let request = SubmitRequest {
            owner: caller.owner.clone(),
            input: call.input,
            policy: PolicyRequest::default(),
            webhook: None,
            s3_config: None,
            mode: SubmitMode::Handler(chosen.unwrap_or(own)),
            idempotency,
            tags: None,
            trace: caller.trace.clone(),
            note: None,
        };
        let checks = self.catalog.input_checks();
        let submitted = submit(&*self.store, checks, &target, request, Strictness::Clamp).await;
        match submitted {
            Ok(submitted) => Ok((target, submitted.id)),
            Err(SubmitError::Store(error)) => Err(not_stored(error)),
            Err(SubmitError::KeyReused) => Err(CallError::InvalidRequest(
                "this idempotency key was used before for another operation or input".to_owned(),
            )),
            Err(error @ SubmitError::Input(_)) => Err(CallError::InvalidRequest(error.to_string())),
            Err(error @ SubmitError::Policy(_)) => Err(CallError::Other(error.to_string())),
        }
    }

    /// The endpoint with this id, if the caller may call it. An endpoint of another owner is as
    /// unknown as one that does not exist.
    fn target(&self, caller: &Caller, id: &str) -> Result<Arc<Deployment>, CallError> {
        let calling = &caller.deployment.endpoint;
        let id = EndpointId::new(id).map_err(|_| {
            let shown: String = id.chars().take(SHOWN_CHARS_MAX).collect();
            CallError::InvalidRequest(format!("`{shown}` is not the id of an endpoint"))
        })?;
        if !calling.settings.call_endpoints.contains(&id) {
            return Err(CallError::Denied(format!(
                "endpoint `{}` does not allow calls of endpoint `{id}`: add it to its `callEndpoints` \
                 (deploy --call-endpoint {id})",
                calling.id
            )));
        }
        let target = self.catalog.deployment(&id);
        let target = target
            .filter(|target| target.endpoint.owner == calling.owner)
            .ok_or_else(|| CallError::Denied(format!("endpoint `{id}` does not exist")))?;
        match target.endpoint.kind {
            EndpointType::Queue => Ok(target),
            EndpointType::LoadBalancer => Err(CallError::InvalidRequest(format!(
                "endpoint `{id}` has the type `LOAD_BALANCER`, which takes HTTP requests and no jobs"
            ))),
        }
    }

    async fn result(&self, record: Box<JobRecord>) -> Result<Json, CallError> {
        let (id, status) = (record.id, record.status);
        let error = match status {
            JobStatus::Completed => {
                if let Some(output) = output_of(&*self.store, &record).await.map_err(not_stored)? {
                    return Ok(output);
                }
                let kept = self.store.job(&record.endpoint, id).await.map_err(not_stored)?;
                return Err(if kept.is_some() { list_too_long(id) } else { removed(id) });
            }
            JobStatus::TimedOut => record.error.unwrap_or_else(|| TIMED_OUT_ERROR.to_owned()),
            JobStatus::Cancelled => "it was cancelled".to_owned(),
            _ => record.error.unwrap_or_default(),
        };
        Err(CallError::Failed { id, status, error })
    }
}

/// A job that a handler has called; the handler waits for its output.
#[derive(Debug)]
pub struct CalledJob<'a> {
    calls: &'a HandlerCalls,
    target: Arc<Deployment>,
    id: JobId,
    until: Instant,
}

impl CalledJob<'_> {
    /// Waits for the output, until shortly before the caller's deadline.
    ///
    /// # Errors
    /// [`CallError`]. The job continues after [`CallError::Timeout`].
    pub async fn output(self) -> Result<Json, CallError> {
        let Self { ref target, id, until, .. } = self;
        let HandlerCalls { store, signals, .. } = self.calls;
        let watch = signals.watch(id);
        let record = loop {
            let changed = watch.changed();
            let record = store.job(&target.endpoint.id, id).await.map_err(not_stored)?;
            let Some(record) = record else { return Err(removed(id)) };
            if record.status.is_final() {
                break record;
            }
            if tokio::time::timeout_at(until.into(), changed).await.is_err() {
                return Err(CallError::Timeout(out_of_time(target, &record)));
            }
        };
        self.calls.result(record).await
    }
}

impl Drop for CalledJob<'_> {
    fn drop(&mut self) {
        self.calls.store.note_call(self.id, CallStep::Ends);
    }
}

/// Most characters of a malformed id in an error.
const SHOWN_CHARS_MAX: usize = 64;

/// The operation of the hashes: a `submit` and a `call` with the same key and input are the same
/// job.
const OPERATION: &str = "handler";

fn idempotency(owner: &OwnerId, key: &str, input: &Json) -> Result<Idempotency, CallError> {
    if !is_idempotency_key(key.as_bytes()) {
        return Err(CallError::InvalidRequest(format!(
            "an idempotency key must have 1 to {IDEMPOTENCY_KEY_CHARS_MAX} printable ASCII characters"
        )));
    }
    Ok(Idempotency::new(owner, key, OPERATION, input.as_bytes()))
}

fn not_stored(error: StoreError) -> CallError {
    match error {
        StoreError::Full(_) | StoreError::QuotaExceeded(_) => {
            CallError::LimitReached(error.to_string())
        }
        error => CallError::Other(error.to_string()),
    }
}

fn removed(id: JobId) -> CallError {
    CallError::Other(format!(
        "job `{id}` has no output any more: it was removed by purge-queue, or its ttl or retention is over"
    ))
}

fn list_too_long(id: JobId) -> CallError {
    CallError::Other(format!(
        "job `{id}` is COMPLETED without an output: its handler returned nothing, and the list of its chunks \
         has more than {OUTPUT_BYTES_MAX} bytes; `/stream` has the chunks"
    ))
}

fn out_of_time(target: &Deployment, record: &JobRecord) -> String {
    let (id, job) = (&target.endpoint.id, record.id);
    let Scaling { workers_max, paused, .. } = target.endpoint.scaling();
    match record.status {
        JobStatus::InQueue if paused => format!(
            "job `{job}` of endpoint `{id}` still waits, since `{id}` is paused, and this attempt has no \
             time left"
        ),
        JobStatus::InQueue => format!(
            "job `{job}` of endpoint `{id}` still waits for a worker, and this attempt has no time left; \
             `{id}` has at most {workers_max} workers that compute, and each needs a sandbox, which a job \
             keeps while it waits for another one"
        ),
        _ => {
            format!("job `{job}` of endpoint `{id}` still runs, and this attempt has no time left")
        }
    }
}
