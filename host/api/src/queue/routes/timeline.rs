//! `GET /{endpoint}/timeline/{job}`: what happened to a job, and when.

use axum::Json;

use gristmill_wire::queue::Timeline;

use crate::answer::error::ApiError;
use crate::identity::caller::{Admitted, Read};
use crate::openapi::refusals::Mistaken;
use crate::openapi::tag;
use crate::queue::dto;

/// The events of the job, oldest first: when it was queued, started and ended, for each attempt,
/// and the attempts to send its webhook; with the usage and the cost of the job.
#[utoipa::path(
    get, path = "/{endpoint}/timeline/{job}", operation_id = "GetTimeline", tag = tag::JOBS,
    responses((status = 200, description = "Its events", body = Timeline), Mistaken),
)]
pub(crate) async fn timeline(
    Admitted { state, call, .. }: Admitted<Read>,
) -> Result<Json<Timeline>, ApiError> {
    let id = call.job()?;
    let endpoint = &call.deployment.endpoint.id;
    let record = state.jobs.record(endpoint, id).await?.ok_or_else(ApiError::job_not_found)?;
    let timeline = state.control.endpoints.timeline(&record).await?;
    Ok(Json(dto::timeline(&record, timeline, state.control.billing.prices())))
}
