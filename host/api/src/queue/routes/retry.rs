//! `POST /{endpoint}/retry/{job}`: queues a FAILED or TIMED_OUT job again.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use gristmill_core::job::JobStatus;
use gristmill_core::store::RetryAnswer;

use crate::error::ApiError;
use crate::front_door::Call;
use crate::queue::dto::Accepted;
use crate::state::ApiState;

/// Keeps the job's id and input; what the last attempt left is removed.
pub(crate) async fn retry(
    State(state): State<ApiState>,
    Extension(call): Extension<Call>,
    Path((_, job)): Path<(String, String)>,
) -> Result<impl IntoResponse, ApiError> {
    let id = call.job(&job)?;
    match state.jobs.retry(&call.deployment.endpoint.id, id).await? {
        RetryAnswer::Queued => Ok(Accepted::new(id, JobStatus::InQueue)),
        RetryAnswer::WrongStatus(status) => Err(ApiError::bad_request(format!(
            "only FAILED or TIMED_OUT jobs can be retried; job is {status}"
        ))),
        RetryAnswer::NotFound => Err(ApiError::job_not_found()),
    }
}
