//! `POST /{endpoint}/cancel/{job}`: stops a running job, or removes a waiting job from the queue.

use axum::Json;

use gristmill_wire::JobStatus;
use gristmill_wire::queue::Accepted;

use crate::answer::error::ApiError;
use crate::identity::caller::{Admitted, Submit};
use crate::openapi::tag;
use crate::queue::dto;

/// Stops a running job, or removes a waiting job from the queue.
///
/// Answers at once; a job that has ended keeps its status, which is returned.
#[utoipa::path(
    post, path = "/{endpoint}/cancel/{job}", operation_id = "Cancel", tag = tag::JOBS,
    responses((status = 200, description = "Its status now", body = Accepted)),
)]
pub(crate) async fn cancel(
    Admitted { state, call, .. }: Admitted<Submit>,
) -> Result<Json<Accepted>, ApiError> {
    let id = call.job()?;
    let endpoint = &call.deployment.endpoint.id;
    let before = state.jobs.record(endpoint, id).await?;
    let status = state.jobs.cancel(endpoint, id).await?;
    let goes_on = before.is_some_and(|job| !job.status.is_final());
    if goes_on && status == Some(JobStatus::Cancelled) {
        call.deployment.incarnation.metrics().cancelled(1);
    }
    Ok(dto::accepted(id, status.ok_or_else(ApiError::job_not_found)?))
}
