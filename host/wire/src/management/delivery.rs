//! Deliveries of webhooks.

use serde::{Deserialize, Serialize};

use crate::JobStatus;
#[cfg(feature = "openapi")]
use crate::schema;

/// The answer's form of a webhook delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Delivery {
    /// The header `webhook-id` of its calls.
    pub id: String,
    /// The job that ended.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::JobId))]
    pub job_id: String,
    /// The job's final status.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Status))]
    pub job_status: JobStatus,
    /// The receiver.
    pub url: String,
    /// Its state.
    pub state: DeliveryState,
    /// Number of attempts made so far.
    pub attempts: u32,
    /// When the job ended.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub created_at: String,
    /// Present while the delivery is PENDING.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub next_attempt_at: Option<String>,
    /// Present once the delivery is no longer PENDING.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub ended_at: Option<String>,
    /// The status code of the answer to the last attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = u16))]
    pub last_status: Option<u16>,
    /// Why the last attempt does not count as received, in 512 bytes at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub last_error: Option<String>,
}

/// The state of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DeliveryState {
    /// An attempt is to be made.
    Pending,
    /// The receiver accepted it.
    Delivered,
    /// No further attempt is made.
    GivenUp,
}
