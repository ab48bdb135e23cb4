//! `POST /{endpoint}/purge-queue`: removes all waiting jobs.

use axum::Extension;
use axum::Json;
use axum::extract::State;

use crate::admission::Call;
use crate::error::ApiError;
use crate::openapi::tag;
use crate::queue::dto::Purged;
use crate::state::ApiState;

/// Removes all waiting jobs.
///
/// Jobs in progress keep running.
#[utoipa::path(
    post, path = "/{endpoint}/purge-queue", operation_id = "PurgeQueue", tag = tag::JOBS,
    responses((status = 200, description = "How many there were", body = Purged)),
)]
pub(crate) async fn purge_queue(
    State(state): State<ApiState>,
    Extension(call): Extension<Call>,
) -> Result<Json<Purged>, ApiError> {
    let removed = state.jobs.purge(&call.deployment.endpoint.id).await?;
    Ok(Json(Purged { removed, status: "completed" }))
}
