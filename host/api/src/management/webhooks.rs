//! `/v1/endpoints/{id}/…` about webhooks: the secret that signs them, and what became of them.

use axum::Json;
use axum::extract::{Path, State};
use gristmill_core::delivery::DELIVERY_LOG_MAX;
use gristmill_core::key::Scope;
use serde_json::Value;

use super::dto;
use super::endpoints::{own, put};
use crate::auth::ManagementCaller;
use crate::error::ApiError;
use crate::state::ApiState;

/// A new secret; webhooks are signed with the one before as well, for a day.
pub(crate) async fn rotate_secret(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    Path(id): Path<String>,
) -> Result<Json<Value>, ApiError> {
    caller.require(Scope::Manage)?;
    let now = state.jobs.now();
    let endpoint = state
        .catalog
        .change(|view| {
            let mut endpoint = own(view, &caller.0.owner, &id)?;
            endpoint.webhook_secrets = endpoint.webhook_secrets.rotated(now);
            endpoint.version += 1;
            Ok::<_, ApiError>((put(&endpoint), endpoint))
        })
        .await?;
    state.workers.refresh(&endpoint.id);
    Ok(Json(dto::endpoint_with_secret(&endpoint)))
}

/// The newest deliveries, newest first.
pub(crate) async fn deliveries(
    State(state): State<ApiState>,
    caller: ManagementCaller,
    Path(id): Path<String>,
) -> Result<Json<Vec<Value>>, ApiError> {
    caller.require(Scope::Manage)?;
    let endpoint = own(&state.catalog.view(), &caller.0.owner, &id)?;
    let deliveries = state.deliveries.deliveries(&endpoint.id, DELIVERY_LOG_MAX).await?;
    Ok(Json(deliveries.iter().map(dto::delivery).collect()))
}
