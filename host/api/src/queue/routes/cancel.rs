//! `POST /{endpoint}/cancel/{job}`: stops a job that runs, removes one that waits.

use axum::extract::{Path, State};
use axum::response::IntoResponse;
use gristmill_core::key::Scope;

use crate::auth::QueueCaller;
use crate::error::ApiError;
use crate::queue::{dto::Accepted, target};
use crate::state::ApiState;

/// Answers at once; a job that has ended keeps its status, which is told.
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    caller: QueueCaller,
    Path(path): Path<(String, String)>,
) -> Result<impl IntoResponse, ApiError> {
    let (deployment, id) = target::job(&state, &caller, Scope::Submit, &path)?;
    let status = state.jobs.cancel(&deployment.endpoint.id, id).await?;
    Ok(Accepted::new(id, status.ok_or_else(ApiError::job_not_found)?))
}
