//! `POST /{endpoint}/runsync?wait=ms`: accepts a job and waits for its result.

use std::time::Duration;

use axum::extract::{RawQuery, Request};
use axum::response::{IntoResponse as _, Response};
use gristmill_core::jobs::operations::{SubmitMode, Submitted};
use gristmill_core::limits::{RUN_SYNC_BODY_BYTES_MAX, WAIT_MS};
use gristmill_wire::queue::{StatusDocument, Submission};

use crate::answer::error::ApiError;
use crate::identity::caller::{Admitted, Submit};
use crate::openapi::parameters::{IdempotencyKey, Wait};
use crate::openapi::refusals::{BodyRefused, KeyReused, QueueRefused};
use crate::openapi::tag;
use crate::queue::{dto, idempotency, results, submission, waiting};
use crate::request::query::Query;

/// Submits a job and waits for its result.
///
/// Answers with the result; when `wait` is over first, with the job's status, and the job
/// continues. Unless a retention is set, the result is kept for 1 minute after the job's end, or as
/// long as `wait` if that is longer. The body has 20 MB at most.
#[utoipa::path(
    post, path = "/{endpoint}/runsync", operation_id = "RunSync", tag = tag::JOBS,
    params(Wait, IdempotencyKey), request_body = Submission<'_>,
    responses(
        (status = 200, description = "The job as it is then", body = StatusDocument<'_>,
            headers(
                ("X-Job-Id" = String, description = "The job's id"),
                ("Idempotent-Replayed" = bool, description = "It was sent before"),
                ("X-Ignored-Policy" = String, description = "Members of `policy` that do not exist"),
            )),
        BodyRefused, QueueRefused, KeyReused,
    ),
)]
pub(crate) async fn run_sync(
    Admitted { state, call, .. }: Admitted<Submit>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Result<Response, ApiError> {
    let query = Query(query.as_deref().unwrap_or_default());
    let wait = query.wait(WAIT_MS)?;
    // Only a given `wait` keeps the result longer; the default does not.
    let kept = if query.has("wait") { wait } else { Duration::ZERO };
    let (parts, body) = request.into_parts();
    let body = call.read_body(&state, &parts, body, RUN_SYNC_BODY_BYTES_MAX).await?;
    let endpoint = &call.deployment.endpoint.id;
    let key = call.key_check(&state);
    let mode = SubmitMode::Sync { kept_ms: u64::try_from(kept.as_millis()).unwrap_or(u64::MAX) };
    let (owner, idempotency) = (call.key.owner.clone(), idempotency::key(&parts.headers)?);
    let receivers = state.receivers.clone();
    let trace = call.trace;
    let check = move |body: &_| {
        let mut submission = submission::parse(body)?;
        let ignored = submission.take_ignored();
        submission.check_receiver(&*receivers)?;
        let record = idempotency.record(&owner, "runsync", body);
        Ok((submission.into_request(owner, mode, record, trace), ignored))
    };
    let (request, ignored) = state.checks.run(&call.key, &body.bytes, check).await?;
    let Submitted { id, is_repeated, completed } =
        state.jobs.submit(&call.deployment, request).await?;
    drop(body); // the job is stored; its body is no longer in flight
    if let Some(completed) = completed {
        let mut response = dto::status_document(&state.jobs.document_of(completed), None);
        ignored.add_header(&mut response);
        dto::add_job_id_header(&mut response, id);
        return Ok(response);
    }
    let ended = waiting::for_end(&key, &state.jobs, endpoint, id, wait).await;
    let answer = match ended {
        Ok(Some(record)) => results::document(&state, &call.key, record).await,
        Err(error) => Err(error),
        Ok(None) => Err(ApiError::not_found(format!(
            "job `{id}` was removed by purge-queue, or its ttl or retention is over"
        ))),
    };
    // The job continues without the call, and only this header names it.
    let mut response = answer.unwrap_or_else(ApiError::into_response);
    idempotency::add_replayed_header(is_repeated, &mut response);
    ignored.add_header(&mut response);
    dto::add_job_id_header(&mut response, id);
    Ok(response)
}
