//! `POST /{endpoint}/retry/{job}`: queues a FAILED or TIMED_OUT job again.

use axum::extract::{Path, State};
use axum::response::IntoResponse;
use gristmill_core::job::JobStatus;
use gristmill_core::key::Scope;
use gristmill_core::store::RetryAnswer;

use crate::auth::QueueCaller;
use crate::error::ApiError;
use crate::queue::{dto::Accepted, target};
use crate::state::ApiState;

/// Keeps the job's id and input; what the last attempt left is removed.
pub(crate) async fn retry(
    State(state): State<ApiState>,
    caller: QueueCaller,
    Path(path): Path<(String, String)>,
) -> Result<impl IntoResponse, ApiError> {
    let (deployment, id) = target::job(&state, &caller, Scope::Submit, &path)?;
    match state.jobs.retry(&deployment.endpoint.id, id).await? {
        RetryAnswer::Queued => Ok(Accepted::new(id, JobStatus::InQueue)),
        RetryAnswer::WrongStatus(status) => Err(ApiError::bad_request(format!(
            "only FAILED or TIMED_OUT jobs can be retried; job is {status}"
        ))),
        RetryAnswer::NotFound => Err(ApiError::job_not_found()),
    }
}
