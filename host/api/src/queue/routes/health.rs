//! `GET /{endpoint}/health`: the endpoint's jobs and workers.

use axum::Extension;
use axum::Json;
use axum::extract::State;

use crate::error::ApiError;
use crate::front_door::Call;
use crate::queue::dto::HealthReport;
use crate::state::ApiState;

/// Read from memory; costs the same with any number of jobs.
pub(crate) async fn health(
    State(state): State<ApiState>,
    Extension(call): Extension<Call>,
) -> Result<Json<HealthReport>, ApiError> {
    Ok(Json(state.jobs.health(&call.deployment.endpoint.id).await?.into()))
}
