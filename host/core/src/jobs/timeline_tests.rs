//! Timelines as one line each: attempts with their ends, forgotten attempts, and webhooks.

use super::*;
use crate::billing::usage::JobUsage;
use crate::id::{EndpointId, JobId, ShardId, SubmissionKind};
use crate::job::record::PastAttempt;
use crate::job::state::Claim;
use crate::webhook::delivery::{AfterAttempt, DeliveryId, DeliveryOutcome};

fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}

fn record(attempt: u32, past_attempts: Vec<PastAttempt>) -> JobRecord {
    JobRecord {
        id: JobId::generate(SubmissionKind::Async, ShardId(1)),
        endpoint: EndpointId::new("e").unwrap(),
        status: JobStatus::Completed,
        created_at: at(10),
        queued_at: at(100),
        started_at: Some(at(110)),
        finished_at: Some(at(120)),
        worker: None,
        retries: 0,
        error: None,
        blocked: None,
        is_exhausted: false,
        progress: None,
        attempt: Claim(attempt),
        chunk_count: 0,
        result_bytes: 0,
        chunks_delivered: 0,
        purge_at: at(1_000),
        past_attempts,
        usage: JobUsage::default(),
        tags: None,
        trace: None,
    }
}

/// The timeline in one line: `time event`.
fn line(timeline: &Timeline) -> String {
    let text = |entry: &TimelineEntry| {
        let event = match &entry.event {
            TimelineEvent::Queued { cause: Some(cause) } => format!("{cause:?}"),
            TimelineEvent::Queued { cause: None } => "Queued".to_owned(),
            TimelineEvent::Started { attempt, .. } => format!("Start{attempt}"),
            TimelineEvent::Failed { attempt, error } => {
                format!("Fail{attempt}:{}", error.as_deref().unwrap_or_default())
            }
            TimelineEvent::Ended { status, .. } => status.to_string(),
            TimelineEvent::WebhookSent { attempt, status } => {
                format!("Sent{attempt}:{}", status.unwrap_or_default())
            }
            TimelineEvent::WebhookDelivered => "Delivered".to_owned(),
            TimelineEvent::WebhookGivenUp { .. } => "GivenUp".to_owned(),
        };
        format!("{} {event}", entry.at.as_millis())
    };
    timeline.entries.iter().map(text).collect::<Vec<_>>().join(", ")
}

fn past(from: u64, end: RequeueCause) -> PastAttempt {
    let (queued_at, started_at, ended_at) = (at(from), at(from + 1), at(from + 2));
    PastAttempt { queued_at, started_at, ended_at, end, error: Some("no".to_owned()) }
}

#[test]
fn attempts_are_numbered_and_say_why_the_job_was_queued() {
    let mut first = record(1, vec![]);
    for queued_at in [first.created_at, at(105)] {
        first.queued_at = queued_at;
        assert_eq!(line(&Timeline::of(&first, &[])), "10 Submitted, 110 Start1, 120 COMPLETED");
    }
    let mut waiting = record(1, vec![]);
    (waiting.status, waiting.queued_at) = (JobStatus::InQueue, at(10));
    (waiting.started_at, waiting.finished_at) = (None, None);
    assert_eq!(line(&Timeline::of(&waiting, &[])), "10 Submitted");
    let ends = [
        past(10, RequeueCause::HostLost),
        past(20, RequeueCause::TimedOut),
        past(30, RequeueCause::Released),
        past(40, RequeueCause::AttemptFailed),
    ];
    let timeline = Timeline::of(&record(5, ends.to_vec()), &[]);
    assert_eq!(timeline.attempts_omitted, 0);
    assert_eq!(
        line(&timeline),
        "10 Submitted, 11 Start1, 20 HostLost, 21 Start2, 22 TIMED_OUT, 30 Retried, \
         31 Start3, 40 Released, 41 Start4, 42 Fail4:no, 100 Failed, 110 Start5, 120 COMPLETED"
    );
}

#[test]
fn attempts_that_are_not_known_any_more_are_counted() {
    let timeline = Timeline::of(&record(7, vec![past(30, RequeueCause::Failed)]), &[]);
    assert_eq!(timeline.attempts_omitted, 5);
    assert_eq!(
        line(&timeline),
        "10 Submitted, 30 Queued, 31 Start6, 32 FAILED, 100 Retried, 110 Start7, 120 COMPLETED"
    );
}

#[test]
fn webhooks_stand_between_the_attempts_of_the_job() {
    let retried = record(2, vec![past(10, RequeueCause::Failed)]);
    let pending = |id| Delivery::pending(DeliveryId(id), &retried, "u".to_owned(), 1);
    let report = |status| DeliveryOutcome { status, error: Some("no".to_owned()) };
    let again = AfterAttempt::TryAgain { after_ms: 1 };
    let given_up = pending(1).after(report(None), again, at(13)).after(
        report(Some(500)),
        AfterAttempt::GiveUp,
        at(105),
    );
    let delivered = pending(2).after(
        DeliveryOutcome { status: Some(200), error: None },
        AfterAttempt::Delivered,
        at(121),
    );
    assert_eq!(
        line(&Timeline::of(&retried, &[given_up, delivered])),
        "10 Submitted, 11 Start1, 12 FAILED, 13 Sent1:0, 100 Retried, 105 Sent2:500, \
         105 GivenUp, 110 Start2, 120 COMPLETED, 121 Sent1:200, 121 Delivered"
    );
}
