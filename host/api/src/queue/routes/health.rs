//! `GET /{endpoint}/health`: the endpoint's jobs and workers.

use axum::Json;
use axum::extract::{Path, State};
use gristmill_core::key::Scope;

use crate::auth::QueueCaller;
use crate::error::ApiError;
use crate::queue::{dto::HealthReport, target};
use crate::state::ApiState;

/// Read from memory; costs the same with any number of jobs.
pub(crate) async fn health(
    State(state): State<ApiState>,
    caller: QueueCaller,
    Path(endpoint): Path<String>,
) -> Result<Json<HealthReport>, ApiError> {
    let deployment = target::endpoint(&state, &caller, Scope::Read, &endpoint)?;
    Ok(Json(state.jobs.health(&deployment.endpoint.id).await?.into()))
}
