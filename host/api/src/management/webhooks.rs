//! `/v1/endpoints/{id}/…` about webhooks: the secret that signs them, and their deliveries.

use axum::response::Response;
use gristmill_core::webhook::delivery::{self, DeliveryState};
use gristmill_wire::management::{self as wire, Delivery, EndpointWithSecret};

use super::document;
use super::endpoints::endpoint_with_secret;
use super::input::Named;
use super::page::{Page, Paged};
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Caller, Manage};
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{Missing, Mistaken};
use crate::openapi::tag;

/// Creates a new secret; for a day webhooks are signed with the previous one as well.
///
/// After several rotations within a day, each previous secret signs for a day after its
/// replacement, four at most: the oldest three and the newest.
#[utoipa::path(
    post, path = "/endpoints/{id}/rotate-webhook-secret", operation_id = "RotateWebhookSecret", tag = tag::ENDPOINTS,
    responses((status = 200, description = "The endpoint with its new secret", body = EndpointWithSecret), Mistaken, Missing),
)]
pub(crate) async fn rotate_secret(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
) -> Result<Response, ApiError> {
    let endpoint = state.control.endpoints.rotate_webhook_secret(&key, named.id()?).await?;
    document::answer(&state, &key, move || endpoint_with_secret(&endpoint, vec![])).await
}

/// The newest 1,000 webhooks of the endpoint, newest first.
#[utoipa::path(
    get, path = "/endpoints/{id}/deliveries", operation_id = "ListDeliveries", tag = tag::ENDPOINTS,
    params(PageOfList),
    responses((status = 200, description = "Newest first", body = Vec<Delivery>), Mistaken, Missing),
)]
pub(crate) async fn deliveries(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
    page: Page,
) -> Result<Paged, ApiError> {
    let deliveries = state.control.endpoints.deliveries(&key, &named.id()?).await?;
    // Numbers grow from one delivery to the next.
    let cursor_position =
        |delivery: &&delivery::Delivery| format!("{:020}", u64::MAX - delivery.id.0);
    let select = move |page: Page| page.of(&deliveries, cursor_position, delivery);
    page.make(&state, &key, select).await
}

/// The answer's form of a webhook delivery.
fn delivery(delivery: &delivery::Delivery) -> Delivery {
    use wire::DeliveryState as State;

    let (state, next_attempt_at, ended_at) = match delivery.state {
        DeliveryState::Pending { due_at } => (State::Pending, Some(rfc3339(due_at)), None),
        DeliveryState::Delivered { at } => (State::Delivered, None, Some(rfc3339(at))),
        DeliveryState::GivenUp { at } => (State::GivenUp, None, Some(rfc3339(at))),
    };
    Delivery {
        id: delivery.webhook_id(),
        job_id: delivery.job.to_string(),
        job_status: delivery.job_status,
        url: delivery.url.clone(),
        state,
        attempts: delivery.attempts,
        created_at: rfc3339(delivery.created_at),
        next_attempt_at,
        ended_at,
        last_status: delivery.last.status,
        last_error: delivery.last.error.clone(),
    }
}
