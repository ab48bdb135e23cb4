//! Lists of an endpoint's jobs.

use serde::{Deserialize, Serialize};

use crate::JobStatus;
use crate::id::WorkerId;
#[cfg(feature = "openapi")]
use crate::schema;

/// A page of `/requests`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RequestList {
    /// The jobs, newest first.
    pub requests: Vec<RequestSummary>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub cursor: Option<String>,
}

/// A job on a page of `/requests`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestSummary {
    /// The job's id.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::JobId))]
    pub id: String,
    /// Its status.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Status))]
    pub status: JobStatus,
    /// When it was submitted.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub created_at: String,
    /// Milliseconds in the queue.
    pub delay_time: u64,
    /// Milliseconds that the handler has run, or ran, in the last attempt.
    pub execution_time: u64,
    /// The worker that claimed the job; absent before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, nullable = false))]
    pub worker_id: Option<WorkerId>,
}
