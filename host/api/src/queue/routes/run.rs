//! `POST /{endpoint}/run`: accepts a job; the client comes back for its result.

use axum::extract::{Path, Request, State};
use axum::response::IntoResponse;
use gristmill_core::job::JobStatus;
use gristmill_core::jobs::{SubmitMode, SubmitRequest};
use gristmill_core::key::Scope;
use gristmill_core::limits::RUN_BODY_BYTES_MAX;

use crate::auth::QueueCaller;
use crate::error::ApiError;
use crate::queue::{dto::Accepted, submission, target};
use crate::state::ApiState;

/// Answers once the job is on stable storage.
pub(crate) async fn run(
    State(state): State<ApiState>,
    caller: QueueCaller,
    Path(endpoint): Path<String>,
    request: Request,
) -> Result<impl IntoResponse, ApiError> {
    let deployment = target::endpoint(&state, &caller, Scope::Submit, &endpoint)?;
    let (parts, body) = request.into_parts();
    let body = state.bodies.read(&parts.headers, body, RUN_BODY_BYTES_MAX).await?;
    let submission = submission::parse(&body.bytes)?;
    let request = SubmitRequest {
        owner: caller.0.owner.clone(),
        input: submission.input,
        policy: submission.policy,
        webhook: submission.webhook,
        s3_config: submission.s3_config,
        mode: SubmitMode::Async,
    };
    let id = state.jobs.submit(&deployment, request).await?;
    Ok(Accepted::new(id, JobStatus::InQueue))
}
