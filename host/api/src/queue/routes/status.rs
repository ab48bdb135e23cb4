//! `GET /{endpoint}/status/{job}` and its long form `status-sync`, which waits for the end.

use axum::Extension;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use gristmill_core::limits::WAIT_MS;

use crate::error::ApiError;
use crate::front_door::Call;
use crate::queue::dto;
use crate::queue::query::Query;
use crate::state::ApiState;

/// The job as it is now. `?ttl=ms` first shortens what remains of its life.
pub(crate) async fn status(
    State(state): State<ApiState>,
    Extension(call): Extension<Call>,
    Path((_, job)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let id = call.job(&job)?;
    let endpoint = &call.deployment.endpoint.id;
    let ttl_ms = Query(query.as_deref().unwrap_or_default()).unsigned("ttl")?;
    let document = state.jobs.document(endpoint, id).await?.ok_or_else(ApiError::job_not_found)?;
    if let Some(ttl_ms) = ttl_ms {
        state.jobs.shorten_ttl(endpoint, id, ttl_ms).await?;
    }
    Ok(dto::status_document(&document))
}

/// The job once it has ended, or as it is after `?wait=ms`.
pub(crate) async fn status_sync(
    State(state): State<ApiState>,
    Extension(call): Extension<Call>,
    Path((_, job)): Path<(String, String)>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let id = call.job(&job)?;
    let wait = Query(query.as_deref().unwrap_or_default()).wait(WAIT_MS)?;
    let document = state.jobs.wait_until_final(&call.deployment.endpoint.id, id, wait).await?;
    Ok(dto::status_document(&document.ok_or_else(ApiError::job_not_found)?))
}
