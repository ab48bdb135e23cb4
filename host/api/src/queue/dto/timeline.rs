//! The timeline of a job.

use gristmill_core::id::{JobId, WorkerId};
use gristmill_core::record::JobRecord;
use gristmill_core::timeline::{self, QueueCause, TimelineEntry, TimelineEvent};
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::wire_time::rfc3339;

/// What happened to a job.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Timeline {
    #[schema(value_type = schema::JobId)]
    id: JobId,
    #[schema(value_type = schema::Status)]
    status: &'static str,
    /// Oldest first.
    events: Vec<Event>,
    /// The number of the oldest attempts that are not among the events.
    attempts_omitted: u32,
}

/// An event of a job.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TimelineEvent)]
struct Event {
    #[schema(value_type = schema::Time)]
    at: String,
    event: Kind,
    /// Why the job was queued; for `queued`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    cause: Option<Cause>,
    /// The number of the job's attempt or of the webhook's, from 1 on; for `started` and
    /// `webhookSent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    attempt: Option<u32>,
    /// For `started`, in the last attempt.
    #[serde(skip_serializing_if = "Option::is_none", rename = "workerId")]
    #[schema(value_type = Option<String>, nullable = false)]
    worker_id: Option<WorkerId>,
    /// The job's final status; for `ended`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema::Status>, nullable = false)]
    status: Option<&'static str>,
    /// The status code of the receiver's answer, if there was one; for `webhookSent`.
    #[serde(skip_serializing_if = "Option::is_none", rename = "httpStatus")]
    #[schema(nullable = false)]
    http_status: Option<u16>,
    /// For `ended` in the last attempt, and for `webhookGivenUp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    error: Option<String>,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = TimelineEventKind)]
enum Kind {
    Queued,
    Started,
    Ended,
    WebhookSent,
    WebhookDelivered,
    WebhookGivenUp,
}

/// Why a job was queued.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = QueueCause)]
enum Cause {
    Submitted,
    Retried,
    Released,
    HostLost,
}

impl Timeline {
    pub(crate) fn new(record: &JobRecord, timeline: timeline::Timeline) -> Self {
        let timeline::Timeline { entries, attempts_omitted } = timeline;
        let events = entries.into_iter().map(Event::from).collect();
        Self { id: record.id, status: record.status.as_str(), events, attempts_omitted }
    }
}

impl From<TimelineEntry> for Event {
    fn from(TimelineEntry { at, event }: TimelineEntry) -> Self {
        let kind = match &event {
            TimelineEvent::Queued { .. } => Kind::Queued,
            TimelineEvent::Started { .. } => Kind::Started,
            TimelineEvent::Ended { .. } => Kind::Ended,
            TimelineEvent::WebhookSent { .. } => Kind::WebhookSent,
            TimelineEvent::WebhookDelivered => Kind::WebhookDelivered,
            TimelineEvent::WebhookGivenUp { .. } => Kind::WebhookGivenUp,
        };
        let plain = Self {
            at: rfc3339(at),
            event: kind,
            cause: None,
            attempt: None,
            worker_id: None,
            status: None,
            http_status: None,
            error: None,
        };
        match event {
            TimelineEvent::Queued { cause } => Self { cause: cause.map(Cause::from), ..plain },
            TimelineEvent::Started { attempt, worker } => {
                Self { attempt: Some(attempt), worker_id: worker, ..plain }
            }
            TimelineEvent::Ended { status, error } => {
                Self { status: Some(status.as_str()), error, ..plain }
            }
            TimelineEvent::WebhookSent { attempt, status } => {
                Self { attempt: Some(attempt), http_status: status, ..plain }
            }
            TimelineEvent::WebhookDelivered => plain,
            TimelineEvent::WebhookGivenUp { error } => Self { error, ..plain },
        }
    }
}

impl From<QueueCause> for Cause {
    fn from(cause: QueueCause) -> Self {
        match cause {
            QueueCause::Submitted => Self::Submitted,
            QueueCause::Retried => Self::Retried,
            QueueCause::Released => Self::Released,
            QueueCause::HostLost => Self::HostLost,
        }
    }
}
