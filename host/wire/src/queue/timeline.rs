//! The timeline of a job.

use serde::{Deserialize, Serialize};

use crate::JobStatus;
use crate::id::WorkerId;
use crate::management::Amount;
#[cfg(feature = "openapi")]
use crate::schema;

/// What happened to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// The job's id.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::JobId))]
    pub id: String,
    /// Its status.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Status))]
    pub status: JobStatus,
    /// Oldest first. Those of webhooks are of the endpoint's 1,000 newest deliveries.
    pub events: Vec<TimelineEvent>,
    /// The number of the oldest attempts that are not among the events: the host keeps the last
    /// attempt and the 32 before it. The first known attempt has no `cause` then.
    pub attempts_omitted: u32,
    /// The trace of the job, in hexadecimal digits. Absent when the submission had no `traceparent`
    /// and the host does not trace the job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub trace_id: Option<String>,
    /// Absent while no attempt has ended with a result, and for jobs of a host that did not keep
    /// it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub usage: Option<JobUsage>,
}

/// The usage of a job: the sum of its attempts that ended with a result, and of the attempt that a
/// cancel stopped. The latter is added some hundredths of a second after the cancel, and is missing
/// if the host crashes before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobUsage {
    /// Number of those attempts.
    pub attempts: u64,
    /// The sum of their `executionTime`.
    pub time_billed_ms: u64,
    /// Milliseconds of processor time, with thousandths.
    pub cpu_ms: f64,
    /// Instructions, on an endpoint that meters them.
    pub fuel: u64,
    /// The largest memory of one attempt.
    pub memory_bytes_peak: u64,
    /// Memory of the attempts, each in whole MiB, times their time in milliseconds.
    pub memory_mib_ms: u64,
    /// Bytes of the input, for each attempt.
    pub bytes_in: u64,
    /// Bytes of outputs and chunks.
    pub bytes_out: u64,
    /// Number of emitted chunks.
    pub chunks: u64,
    /// Bytes of the bodies of requests that the handler made, and of their answers.
    pub egress_bytes: u64,
    /// Credits, by the current prices; at most six digits after the decimal point.
    #[cfg_attr(feature = "openapi", schema(value_type = f64))]
    pub amount: Amount,
}

/// An event of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimelineEvent {
    /// When it happened.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub at: String,
    /// Its kind.
    pub event: TimelineEventKind,
    /// Why the job was queued; for `queued`. `submitted` and `retried` by a client; `failed`: an
    /// attempt failed, and the next one begins at the time of this event or later; `released`: the
    /// host stops, or the sandbox that was free is kept for jobs that are deeper in a chain of
    /// calls; `noMemory`: the host had no memory for the attempt; `hostLost`: the host died while
    /// it ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub cause: Option<QueueCause>,
    /// The number of the job's attempt or of the webhook's, from 1 on; for `started`,
    /// `failed` and `webhookSent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub attempt: Option<u32>,
    /// For `started`, in the last attempt.
    #[serde(skip_serializing_if = "Option::is_none", rename = "workerId")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, nullable = false))]
    pub worker_id: Option<WorkerId>,
    /// The job's final status; for `ended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Status>, nullable = false))]
    pub status: Option<JobStatus>,
    /// The status code of the receiver's answer, if there was one; for `webhookSent`.
    #[serde(skip_serializing_if = "Option::is_none", rename = "httpStatus")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub http_status: Option<u16>,
    /// For `ended` and `webhookGivenUp`, and for `failed` its beginning. Of an attempt before the
    /// last one, at most 64 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub error: Option<String>,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum TimelineEventKind {
    /// The job waits for a worker.
    Queued,
    /// A worker took the job, and its handler began.
    Started,
    /// An attempt failed, and the job runs again.
    Failed,
    /// The job ended.
    Ended,
    /// The host tried to send the job's webhook.
    WebhookSent,
    /// The receiver accepted the webhook.
    WebhookDelivered,
    /// The host does not try again.
    WebhookGivenUp,
}

/// Why a job was queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub enum QueueCause {
    /// A client submitted it.
    Submitted,
    /// A client retried it.
    Retried,
    /// Its attempt failed.
    Failed,
    /// The host stops, or the sandbox that was free is kept for jobs that are deeper in a chain of
    /// calls.
    Released,
    /// The host had no memory for its attempt.
    NoMemory,
    /// The host died while it ran.
    HostLost,
}

impl TimelineEventKind {
    /// The kind as documents have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Started => "started",
            Self::Failed => "failed",
            Self::Ended => "ended",
            Self::WebhookSent => "webhookSent",
            Self::WebhookDelivered => "webhookDelivered",
            Self::WebhookGivenUp => "webhookGivenUp",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_written_as_documents_have_them() {
        for kind in [
            TimelineEventKind::Queued,
            TimelineEventKind::Started,
            TimelineEventKind::Failed,
            TimelineEventKind::Ended,
            TimelineEventKind::WebhookSent,
            TimelineEventKind::WebhookDelivered,
            TimelineEventKind::WebhookGivenUp,
        ] {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
