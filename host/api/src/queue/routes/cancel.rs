//! `POST /{endpoint}/cancel/{job}`: stops a job that runs, removes one that waits.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::IntoResponse;

use crate::error::ApiError;
use crate::front_door::Call;
use crate::queue::dto::Accepted;
use crate::state::ApiState;

/// Answers at once; a job that has ended keeps its status, which is told.
pub(crate) async fn cancel(
    State(state): State<ApiState>,
    Extension(call): Extension<Call>,
    Path((_, job)): Path<(String, String)>,
) -> Result<impl IntoResponse, ApiError> {
    let id = call.job(&job)?;
    let status = state.jobs.cancel(&call.deployment.endpoint.id, id).await?;
    Ok(Accepted::new(id, status.ok_or_else(ApiError::job_not_found)?))
}
