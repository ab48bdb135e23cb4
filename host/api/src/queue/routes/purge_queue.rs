//! `POST /{endpoint}/purge-queue`: removes all waiting jobs.

use axum::Json;

use gristmill_wire::queue::Purged;

use crate::answer::error::ApiError;
use crate::identity::caller::{Admitted, Submit};
use crate::openapi::tag;

/// Removes all waiting jobs.
///
/// Jobs in progress keep running.
#[utoipa::path(
    post, path = "/{endpoint}/purge-queue", operation_id = "PurgeQueue", tag = tag::JOBS,
    responses((status = 200, description = "How many there were", body = Purged)),
)]
pub(crate) async fn purge_queue(
    Admitted { state, call, .. }: Admitted<Submit>,
) -> Result<Json<Purged>, ApiError> {
    let removed = state.jobs.purge(&call.deployment.endpoint.id).await?;
    call.deployment.incarnation.metrics().cancelled(removed);
    Ok(Json(Purged { removed, status: "completed".to_owned() }))
}
