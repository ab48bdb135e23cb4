//! `/v1/endpoints/{id}/…` about webhooks: the secret that signs them, and their deliveries.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use gristmill_core::delivery::DELIVERY_LOG_MAX;
use gristmill_core::endpoint::Endpoint;

use super::dto::{Delivery, EndpointWithSecret};
use super::endpoints::upsert;
use super::input::Named;
use super::owned::find_owned;
use crate::caller::{Caller, Manage};
use crate::error::ApiError;
use crate::openapi::refusals::{Missing, Mistaken};
use crate::openapi::tag;

/// Creates a new secret; for a day webhooks are signed with the previous one as well.
#[utoipa::path(
    post, path = "/endpoints/{id}/rotate-webhook-secret", operation_id = "RotateWebhookSecret", tag = tag::ENDPOINTS,
    responses((status = 200, description = "The endpoint with its new secret", body = EndpointWithSecret), Mistaken, Missing),
)]
pub(crate) async fn rotate_secret(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
) -> Result<Json<EndpointWithSecret>, ApiError> {
    let now = state.jobs.now();
    state
        .change(&key, |view| {
            let mut endpoint = find_owned::<Endpoint>(view, &key, &id)?.clone();
            endpoint.webhook_secrets = endpoint.webhook_secrets.rotated(now);
            Ok::<_, ApiError>((upsert(endpoint), ()))
        })
        .await?;
    let view = state.catalog.view();
    let endpoint: &Endpoint = find_owned(&view, &key, &id)?;
    state.workers.refresh(&endpoint.id);
    Ok(Json(endpoint.into()))
}

/// The newest deliveries, newest first.
#[utoipa::path(
    get, path = "/endpoints/{id}/deliveries", operation_id = "ListDeliveries", tag = tag::ENDPOINTS,
    responses((status = 200, description = "Newest first", body = Vec<Delivery>), Mistaken, Missing),
)]
pub(crate) async fn deliveries(
    Caller { state, key, .. }: Caller<Manage>,
    Named(id): Named,
) -> Result<Response, ApiError> {
    let view = state.catalog.view();
    let endpoint: &Endpoint = find_owned(&view, &key, &id)?;
    let deliveries = state.deliveries.deliveries(&endpoint.id, DELIVERY_LOG_MAX).await?;
    // The list may have 3 MiB.
    let write = move || {
        let documents: Vec<_> = deliveries.iter().map(Delivery::from).collect();
        Ok(Json(documents).into_response())
    };
    state.pages.write(&key, write).await
}
