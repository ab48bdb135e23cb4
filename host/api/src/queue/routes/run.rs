//! `POST /{endpoint}/run`: accepts a job; the client reads the result later.

use axum::extract::Request;
use axum::response::{IntoResponse as _, Response};
use gristmill_core::job::state::JobStatus;
use gristmill_core::jobs::operations::SubmitMode;
use gristmill_core::limits::RUN_BODY_BYTES_MAX;
use gristmill_wire::queue::{Accepted, Submission};

use crate::answer::error::ApiError;
use crate::identity::caller::{Admitted, Submit};
use crate::openapi::parameters::IdempotencyKey;
use crate::openapi::refusals::{BodyRefused, KeyReused, QueueRefused};
use crate::openapi::tag;
use crate::queue::dto;
use crate::queue::{idempotency, submission};

/// Submits a job; the client reads the result later.
///
/// Answers once the job is on stable storage. Unless a retention is set, the result is kept for 30
/// minutes after the job's end, and no longer than its ttl. The body has 10 MB at most.
#[utoipa::path(
    post, path = "/{endpoint}/run", operation_id = "Run", tag = tag::JOBS,
    params(IdempotencyKey), request_body = Submission<'_>,
    responses(
        (status = 200, description = "It is on stable storage", body = Accepted,
            headers(("Idempotent-Replayed" = bool, description = "It was sent before"),
                ("X-Ignored-Policy" = String, description = "Members of `policy` that do not exist"))),
        BodyRefused, QueueRefused, KeyReused,
    ),
)]
pub(crate) async fn run(
    Admitted { state, call, .. }: Admitted<Submit>,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let body = call.read_body(&state, &parts, body, RUN_BODY_BYTES_MAX).await?;
    let (owner, idempotency) = (call.key.owner.clone(), idempotency::key(&parts.headers)?);
    let receivers = state.receivers.clone();
    let trace = call.trace;
    let check = move |body: &_| {
        let mut submission = submission::parse(body)?;
        let ignored = submission.take_ignored();
        submission.check_receiver(&*receivers)?;
        let record = idempotency.record(&owner, "run", body);
        Ok((submission.into_request(owner, SubmitMode::Async, record, trace), ignored))
    };
    let (request, ignored) = state.checks.run(&call.key, &body.bytes, check).await?;
    let submitted = state.jobs.submit(&call.deployment, request).await?;
    let mut response = dto::accepted(submitted.id, JobStatus::InQueue).into_response();
    idempotency::add_replayed_header(submitted.is_repeated, &mut response);
    ignored.add_header(&mut response);
    Ok(response)
}
