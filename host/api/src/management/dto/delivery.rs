//! Deliveries of webhooks.

use gristmill_core::webhook::delivery::{self, DeliveryState};
use gristmill_wire::management as wire;

use crate::answer::wire_time::rfc3339;

/// The answer's form of a webhook delivery.
pub(crate) fn delivery(delivery: &delivery::Delivery) -> wire::Delivery {
    use wire::DeliveryState as State;

    let (state, next_attempt_at, ended_at) = match delivery.state {
        DeliveryState::Pending { due_at } => (State::Pending, Some(rfc3339(due_at)), None),
        DeliveryState::Delivered { at } => (State::Delivered, None, Some(rfc3339(at))),
        DeliveryState::GivenUp { at } => (State::GivenUp, None, Some(rfc3339(at))),
    };
    wire::Delivery {
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
