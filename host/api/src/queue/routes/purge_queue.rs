//! `POST /{endpoint}/purge-queue`: removes all jobs that wait.

use axum::Json;
use axum::extract::{Path, State};
use gristmill_core::key::Scope;

use crate::auth::QueueCaller;
use crate::error::ApiError;
use crate::queue::{dto::Purged, target};
use crate::state::ApiState;

/// Jobs in progress keep running.
pub(crate) async fn purge_queue(
    State(state): State<ApiState>,
    caller: QueueCaller,
    Path(endpoint): Path<String>,
) -> Result<Json<Purged>, ApiError> {
    let deployment = target::endpoint(&state, &caller, Scope::Submit, &endpoint)?;
    let removed = state.jobs.purge(&deployment.endpoint.id).await?;
    Ok(Json(Purged { removed, status: "completed" }))
}
