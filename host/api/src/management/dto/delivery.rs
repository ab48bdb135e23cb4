//! Deliveries of webhooks.

use gristmill_core::delivery::{self, DeliveryState};
use gristmill_core::id::JobId;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::wire_time::rfc3339;

/// The answer's form of a webhook delivery.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Delivery {
    /// The header `webhook-id` of its calls.
    id: String,
    #[schema(value_type = schema::JobId)]
    job_id: JobId,
    #[schema(value_type = schema::Status)]
    job_status: &'static str,
    url: String,
    state: State,
    /// Number of attempts made so far.
    attempts: u32,
    #[schema(value_type = schema::Time)]
    created_at: String,
    /// Present while the delivery is PENDING.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::Time)]
    next_attempt_at: Option<String>,
    /// Present once the delivery is no longer PENDING.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema::Time)]
    ended_at: Option<String>,
    /// The status code of the answer to the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u16)]
    last_status: Option<u16>,
    /// Why the last attempt does not count as received.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    last_error: Option<String>,
}

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[schema(as = DeliveryState)]
enum State {
    Pending,
    Delivered,
    GivenUp,
}

impl From<&delivery::Delivery> for Delivery {
    fn from(delivery: &delivery::Delivery) -> Self {
        let (state, next_attempt_at, ended_at) = match delivery.state {
            DeliveryState::Pending { due_at } => (State::Pending, Some(rfc3339(due_at)), None),
            DeliveryState::Delivered { at } => (State::Delivered, None, Some(rfc3339(at))),
            DeliveryState::GivenUp { at } => (State::GivenUp, None, Some(rfc3339(at))),
        };
        Self {
            id: delivery.webhook_id(),
            job_id: delivery.job,
            job_status: delivery.job_status.as_str(),
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
}
