//! The audit: every job that was acknowledged recently has ended once, as requested, and the host's
//! lists and counters match the ledger.

use futures::{StreamExt as _, stream};
use gristmill_tests::eventually;
use reqwest::Method;
use serde_json::Value;

use super::ledger::is_final;
use super::session::Session;
use super::streams::check_replay;
use super::submission::{Kind, MILL};
use super::webhooks::ReceivedWebhooks;

/// Calls at one time.
const CALLS: usize = 8;

/// Audits a host without other callers. Jobs in their second audit are removed by ending their ttl.
pub(crate) async fn audit(session: &Session, received: &mut ReceivedWebhooks) {
    session.settle().await.unwrap();
    eventually("stuck: every job of the endpoint to end", async || {
        let jobs = &session.client.health(MILL).await["jobs"];
        (jobs["inQueue"] == 0 && jobs["inProgress"] == 0).then_some(())
    })
    .await;
    let jobs = session.ledger.jobs();
    each(&jobs, async |job| check_job(session, job).await).await;
    let listed = listed(session).await;
    for job in &jobs {
        assert!(listed.contains(job), "lost: {job} is not in the list");
    }
    for job in listed.iter().filter(|job| !jobs.contains(job)) {
        session.ledger.adopt(job);
        let document = session.read(job).await.unwrap();
        assert!(is_final(&document), "stuck: {document}");
    }
    for job in &jobs {
        let entry = session.ledger.entry(job);
        if entry.submission.as_ref().is_some_and(|submission| submission.webhook.is_some()) {
            received.expect(job, &entry).await;
        }
    }
    check_counters(session).await;
    check_bill(session).await;
    let leaving = session.ledger.next_round();
    for (job, entry) in &leaving {
        received.forget(job, entry);
    }
    let leaving: Vec<_> = leaving.into_keys().collect();
    each(&leaving, async |job| remove(session, job).await).await;
}

async fn each(jobs: &[String], check: impl AsyncFn(&str)) {
    stream::iter(jobs).for_each_concurrent(CALLS, |job| check(job)).await;
}

async fn check_job(session: &Session, job: &str) {
    let document = session.read(job).await.unwrap();
    assert!(is_final(&document), "stuck: {document}");
    let Some(submission) = session.ledger.entry(job).submission else { return };
    if submission.kind == Kind::Stream && document["status"] == "COMPLETED" {
        let path = session.path(&format!("stream/{job}?from=0"));
        check_replay(&session.get("stream", &path).await.unwrap(), &submission.chunks());
    }
    if submission.has_key {
        let request = submission.request(&session.client);
        let answer = session.call("repeat", request).await.unwrap();
        assert_eq!(answer.header("idempotent-replayed"), Some("true"), "double: {answer:?}");
        assert_eq!(answer.ok()["id"], job, "double: {answer:?}");
    }
}

/// All jobs in the host's lists.
async fn listed(session: &Session) -> Vec<String> {
    let (mut jobs, mut cursor) = (vec![], String::new());
    loop {
        let path = session.path(&format!("requests?limit=1000{cursor}"));
        let page = session.get("requests", &path).await.unwrap().ok();
        let requests = page["requests"].as_array().unwrap();
        jobs.extend(requests.iter().map(|job| job["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["cursor"].as_str() else { return jobs };
        cursor = format!("&cursor={next}");
    }
}

async fn check_counters(session: &Session) {
    let health = session.client.health(MILL).await;
    let totals = session.ledger.totals();
    let expected = [totals.completed, totals.failed, totals.retried];
    let shown = ["completed", "failed", "retried"].map(|field| &health["jobs"][field]);
    let shown = shown.map(|count: &Value| count.as_u64().unwrap());
    assert_eq!(shown, expected, "wrong: completed, failed, retried of {health}");
}

/// The bill has each result once, and no attempt that a kill interrupted.
async fn check_bill(session: &Session) {
    let path = format!("/v1/billing/endpoints?bucketSize=year&endpointId={MILL}");
    let records = session.client.get(&path).await.ok();
    let sum = |field: &str| {
        let values = records.as_array().unwrap().iter().map(|record| record[field].as_u64());
        values.map(Option::unwrap).sum::<u64>()
    };
    let totals = session.ledger.totals();
    let results = totals.completed + totals.failed - totals.given_up;
    let (billed, ms) = (sum("jobs"), sum("timeBilledMs"));
    println!("{billed} attempts are billed, {results} have results, {totals:?}");
    assert!(billed >= results, "lost: {billed} billed of {results} results");
    let without_result = billed - results;
    assert!(without_result <= totals.stopped, "double: {without_result} too many are billed");
    assert!(ms >= totals.execution_ms, "lost: {ms} ms billed of {totals:?}");
    if without_result == 0 {
        assert_eq!(ms, totals.execution_ms, "double: more time is billed than was used");
    }
}

async fn remove(session: &Session, job: &str) {
    let path = session.path(&format!("status/{job}?ttl=0"));
    let request = session.client.request(Method::GET, &path);
    let status = session.call("ttl", request).await.unwrap().status;
    assert!(matches!(status, 200 | 404), "wrong: {status} for a ttl of {job}");
    eventually(&format!("lost: a ttl: {job} to go"), async || {
        let path = session.path(&format!("status/{job}"));
        (session.get("status", &path).await.unwrap().status == 404).then_some(())
    })
    .await;
}
