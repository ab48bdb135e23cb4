//! `GET /{endpoint}/health`: the endpoint's jobs and workers.

use axum::Json;

use gristmill_wire::queue::HealthReport;

use crate::answer::error::ApiError;
use crate::identity::caller::{Admitted, Read};
use crate::openapi::tag;
use crate::queue::dto;

/// The endpoint's jobs and workers.
///
/// Read from memory; costs the same with any number of jobs.
#[utoipa::path(
    get, path = "/{endpoint}/health", operation_id = "GetHealth", tag = tag::JOBS,
    responses((status = 200, description = "The report", body = HealthReport)),
)]
pub(crate) async fn health(
    Admitted { state, call, .. }: Admitted<Read>,
) -> Result<Json<HealthReport>, ApiError> {
    Ok(Json(dto::health_report(state.jobs.health(&call.deployment.endpoint.id).await?)))
}
