//! HTTP requests that an endpoint has answered.

use serde::{Deserialize, Serialize};

#[cfg(feature = "openapi")]
use crate::schema;

/// An HTTP request that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct HttpRequest {
    /// Its id: the header `X-Request-Id` of its answer, and the job of its log lines.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::JobId))]
    pub id: String,
    /// When it has arrived.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub at: String,
    /// The method.
    pub method: String,
    /// The handler's path without its query, up to 256 bytes of it.
    pub path: String,
    /// The status of the answer; 499 if the client has left before its head.
    pub status: u16,
    /// The code of a refusal, or why an answer has broken off: `client_left`, `handler_failed`,
    /// `handler_timed_out`, `invalid_answer` or `unavailable`. Absent: the handler's whole answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Milliseconds until a worker began to answer it, or until its end.
    pub waited_ms: u64,
    /// Milliseconds in which the worker answered it.
    pub ran_ms: u64,
    /// Bytes of its body that the handler has taken.
    pub bytes_in: u64,
    /// Bytes of the handler's body that went to the client.
    pub bytes_out: u64,
    /// The worker. Absent: no worker has begun to answer it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// The version of the endpoint that the worker ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
}
