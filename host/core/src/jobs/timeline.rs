//! The timeline of a job: what happened to it, and when.
//!
//! Made from times that the store has anyway, so that a job costs nothing more for it: the job's
//! record, its [earlier attempts](crate::job::record::PastAttempt) if it was queued again, and its
//! [deliveries](crate::webhook::delivery) if it has a webhook.

pub use gristmill_wire::queue::QueueCause;

use crate::id::WorkerId;
use crate::job::record::{JobRecord, RequeueCause};
use crate::job::state::JobStatus;
use crate::time::Timestamp;
use crate::webhook::delivery::{Delivery, DeliveryState};

/// One event of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineEntry {
    /// When it happened.
    pub at: Timestamp,
    /// The event.
    pub event: TimelineEvent,
}

/// The event of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TimelineEvent {
    /// The job waits for a worker.
    Queued {
        /// Why; `None` if the attempt before is not known any more.
        cause: Option<QueueCause>,
    },
    /// A worker took the job, and its handler began.
    Started {
        /// The number of the attempt, from 1 on.
        attempt: u32,
        /// The worker; known for the last attempt only.
        worker: Option<WorkerId>,
    },
    /// An attempt failed, and the job runs again.
    Failed {
        /// The number of the attempt, from 1 on.
        attempt: u32,
        /// The beginning of its error.
        error: Option<String>,
    },
    /// The job ended.
    Ended {
        /// How.
        status: JobStatus,
        /// Why it is FAILED or TIMED_OUT; of an earlier attempt the beginning.
        error: Option<String>,
    },
    /// The host tried to send the job's webhook.
    WebhookSent {
        /// The number of the attempt to send it, from 1 on.
        attempt: u32,
        /// The status code of the answer, if there was one.
        status: Option<u16>,
    },
    /// The receiver has accepted the webhook.
    WebhookDelivered,
    /// The host does not try to send the webhook any more.
    WebhookGivenUp {
        /// Why.
        error: Option<String>,
    },
}

/// The events of a job, and the number of its attempts that are not among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// The events, oldest first.
    pub entries: Vec<TimelineEntry>,
    /// The number of the oldest attempts, whose times are not known any more.
    pub attempts_omitted: u32,
}

impl Timeline {
    /// The timeline of a job with these deliveries.
    pub fn of(record: &JobRecord, deliveries: &[Delivery]) -> Self {
        let past = &record.past_attempts;
        // The last attempt, or the next one, has the number `record.attempt`.
        let known = u32::try_from(past.len()).unwrap_or(u32::MAX);
        let attempts_omitted = record.attempt.0.saturating_sub(1).saturating_sub(known);
        let mut entries = Vec::new();
        let mut add = |at, event| entries.push(TimelineEntry { at, event });
        let mut cause = Some(QueueCause::Submitted);
        // A job that starts later is submitted before it may run.
        let queued = |cause, queued_at| {
            let is_first = cause == Some(QueueCause::Submitted);
            (if is_first { record.created_at } else { queued_at }, TimelineEvent::Queued { cause })
        };
        if attempts_omitted > 0 {
            let (at, event) = queued(cause, record.created_at);
            add(at, event);
            cause = None;
        }
        let mut attempt = attempts_omitted;
        for ended in past {
            attempt += 1;
            let (at, event) = queued(cause, ended.queued_at);
            add(at, event);
            add(ended.started_at, TimelineEvent::Started { attempt, worker: None });
            let error = ended.error.clone();
            let event = match ended.end {
                RequeueCause::Failed => {
                    Some(TimelineEvent::Ended { status: JobStatus::Failed, error })
                }
                RequeueCause::TimedOut => {
                    Some(TimelineEvent::Ended { status: JobStatus::TimedOut, error })
                }
                RequeueCause::AttemptFailed => Some(TimelineEvent::Failed { attempt, error }),
                RequeueCause::Released | RequeueCause::NoMemory | RequeueCause::HostLost => None,
            };
            if let Some(event) = event {
                add(ended.ended_at, event);
            }
            cause = Some(cause_after(ended.end));
        }
        let (at, event) = queued(cause, record.queued_at);
        add(at, event);
        if let Some(started_at) = record.started_at {
            let worker = record.worker.clone();
            add(started_at, TimelineEvent::Started { attempt: attempt + 1, worker });
        }
        if let Some(finished_at) = record.finished_at {
            let (status, error) = (record.status, record.error.clone());
            add(finished_at, TimelineEvent::Ended { status, error });
        }
        for delivery in deliveries {
            add_delivery(delivery, &mut add);
        }
        // Stable: events of one millisecond stay in the order in which they happened.
        entries.sort_by_key(|entry| entry.at);
        Self { entries, attempts_omitted }
    }
}

fn add_delivery(delivery: &Delivery, add: &mut impl FnMut(Timestamp, TimelineEvent)) {
    for (attempt, made) in (1..).zip(&delivery.made) {
        add(made.at, TimelineEvent::WebhookSent { attempt, status: made.status });
    }
    match delivery.state {
        DeliveryState::Pending { .. } => {}
        DeliveryState::Delivered { at } => add(at, TimelineEvent::WebhookDelivered),
        DeliveryState::GivenUp { at } => {
            add(at, TimelineEvent::WebhookGivenUp { error: delivery.last.error.clone() });
        }
    }
}

/// Why a job is queued again after an attempt that ended like this.
fn cause_after(end: RequeueCause) -> QueueCause {
    match end {
        RequeueCause::Failed | RequeueCause::TimedOut => QueueCause::Retried,
        RequeueCause::Released => QueueCause::Released,
        RequeueCause::NoMemory => QueueCause::NoMemory,
        RequeueCause::HostLost => QueueCause::HostLost,
        RequeueCause::AttemptFailed => QueueCause::Failed,
    }
}

#[cfg(test)]
#[path = "timeline_tests.rs"]
mod tests;
