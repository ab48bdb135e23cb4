//! The audit at the end: the lists, the counters, the timelines, the streams and the webhooks match
//! the ledger.

use std::collections::BTreeMap;

use futures::{StreamExt as _, stream};
use gristmill_tests::eventually;
use serde_json::{Value, json};

use super::clients::Clients;
use super::ledger::Entry;
use super::webhooks::ReceivedWebhooks;

/// Calls at one time.
const CALLS: usize = 8;

/// The expected counters of `/health`, and the effort for the jobs.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    completed: u64,
    failed: u64,
    /// Further ends after retries whose outcome is unknown.
    failed_in_doubt: u64,
    retried: u64,
    /// The most attempts of one job. Many of them are no broken promise, but a waste.
    attempts_max: u64,
}

/// Checks all jobs. Each of them has ended, and no client is left.
pub(crate) async fn audit(clients: &Clients, received: &mut ReceivedWebhooks) {
    let entries = clients.ledger.entries();
    check_list(clients, &entries).await;
    let mut totals = Totals::default();
    let mut checks = stream::iter(entries.keys())
        .map(async |job| check_job(clients, job).await)
        .buffer_unordered(CALLS);
    while let Some(of_job) = checks.next().await {
        totals.completed += of_job.completed;
        totals.failed += of_job.failed;
        totals.failed_in_doubt += of_job.failed_in_doubt;
        totals.retried += of_job.retried;
        totals.attempts_max = totals.attempts_max.max(of_job.attempts_max);
    }
    check_counters(clients, &totals).await;
    println!("{totals:?}");
    for (job, entry) in &entries {
        if entry.submission.webhook.is_some() {
            received.expect(job, entry).await;
        }
    }
}

async fn check_counters(clients: &Clients, totals: &Totals) {
    let jobs = clients.get("health", "health").await.answer.ok()["jobs"].clone();
    let failed = jobs["failed"].as_u64().unwrap();
    let possible = totals.failed..=totals.failed + totals.failed_in_doubt;
    assert!(possible.contains(&failed), "wrong: {jobs}, not {totals:?}");
    let expected = json!({
        "completed": totals.completed, "failed": failed, "retried": totals.retried,
        "inQueue": 0, "inProgress": 0,
    });
    assert_eq!(jobs, expected, "wrong: the counters");
}

/// The list has each job once, with the status of its last end.
async fn check_list(clients: &Clients, entries: &BTreeMap<String, Entry>) {
    let (mut listed, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let path = format!("requests?limit=1000{cursor}");
        let page = clients.get("requests", &path).await.answer.ok();
        for job in page["requests"].as_array().unwrap() {
            let text = |field: &str| job[field].as_str().unwrap().to_owned();
            assert_eq!(listed.insert(text("id"), text("status")), None, "double: {job}");
        }
        let Some(next) = page["cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    for (job, entry) in entries {
        let status = listed.remove(job);
        assert_eq!(status.as_ref(), Some(&entry.ends.last().unwrap().status), "lost: {entry:?}");
    }
    assert!(listed.is_empty(), "double: no number has these jobs: {listed:?}");
}

/// Checks the document, the chunks and the timeline of a job, and returns what it adds to the
/// counters.
async fn check_job(clients: &Clients, job: &str) -> Totals {
    // A retry whose outcome was unknown may have arrived late.
    eventually(&format!("stuck: the end of {job}"), async || clients.read(job).await.then_some(()))
        .await;
    let entry = &clients.ledger.entry(job);
    let last = entry.ends.last().unwrap();
    let chunks = entry.submission.chunks();
    if !chunks.is_empty() {
        clients.check_replay(job, &chunks).await;
    }
    let timeline = clients.get("timeline", &format!("timeline/{job}")).await.answer.ok();
    let events = timeline["events"].as_array().unwrap();
    let count = |field: &str, value: &str| {
        events.iter().filter(|event| event[field] == value).count() as u64
    };
    let (mut retried, mut in_doubt) = (count("cause", "retried"), 0);
    let possible = entry.retries_acknowledged..=entry.retries_possible;
    if timeline["attemptsOmitted"] == 0 {
        assert!(possible.contains(&retried), "lost: a retry: {timeline}: {entry:?}");
        let lost = count("cause", "hostLost");
        assert_eq!(last.retries, retried + lost, "wrong: {timeline}: {entry:?}");
        assert_eq!(count("event", "ended"), 1 + retried, "wrong: {timeline}: {entry:?}");
        check_ends(entry, events);
    } else {
        // The host keeps the newest attempts, which may be without the retries.
        retried = entry.retries_acknowledged;
        in_doubt = entry.retries_possible - retried;
    }
    // All ends of a job have the same status.
    let ends = |status: &str| if last.status == status { 1 + retried } else { 0 };
    Totals {
        completed: ends("COMPLETED"),
        failed: ends("FAILED"),
        failed_in_doubt: in_doubt,
        retried: last.retries,
        attempts_max: timeline["attemptsOmitted"].as_u64().unwrap() + count("event", "started"),
    }
}

/// The ends that clients have seen are in the timeline, in their order.
fn check_ends(entry: &Entry, events: &[Value]) {
    let mut ended = events.iter().filter(|event| event["event"] == "ended");
    for end in &entry.ends {
        let is_listed = ended.any(|event| event["status"] == end.status);
        assert!(is_listed, "lost: {end:?} is not among {events:?}");
    }
}
