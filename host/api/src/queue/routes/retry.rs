//! `POST /{endpoint}/retry/{job}`: queues a FAILED or TIMED_OUT job again.

use axum::Json;
use gristmill_core::job::state::JobStatus;
use gristmill_core::store::RetryAnswer;
use gristmill_wire::queue::Accepted;

use crate::answer::error::ApiError;
use crate::identity::caller::{Admitted, Submit};
use crate::openapi::refusals::Mistaken;
use crate::openapi::tag;
use crate::queue::dto;

/// Queues a FAILED or TIMED_OUT job again.
///
/// The job keeps its id, its input and its ttl, which goes on unless a retention is set for FAILED
/// jobs; its output, error and chunks are deleted. Refused with 400 in any other state, and like a
/// submission while the queue is full.
#[utoipa::path(
    post, path = "/{endpoint}/retry/{job}", operation_id = "Retry", tag = tag::JOBS,
    responses((status = 200, description = "It waits again", body = Accepted), Mistaken),
)]
pub(crate) async fn retry(
    Admitted { state, call, .. }: Admitted<Submit>,
) -> Result<Json<Accepted>, ApiError> {
    let id = call.job()?;
    let endpoint = &call.deployment.endpoint;
    match state.jobs.retry(&endpoint.id, id, endpoint.settings.max_waiting_jobs).await? {
        RetryAnswer::Queued => {
            call.deployment.incarnation.metrics().requeued();
            Ok(dto::accepted(id, JobStatus::InQueue))
        }
        RetryAnswer::WrongStatus(status) => Err(ApiError::bad_request(format!(
            "only FAILED or TIMED_OUT jobs can be retried; job is {status}"
        ))),
        RetryAnswer::NotFound => Err(ApiError::job_not_found()),
    }
}
