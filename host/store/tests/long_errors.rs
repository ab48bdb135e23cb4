//! Errors of FAILED jobs that are longer than the part in memory.

use crate::support;
use crate::support::fixture::{Fixture, contract};
use crate::support::on_disk::OnDisk;
use crate::support::{endpoint, job, json, submit};
use gristmill_core::job::record::{NewJob, Outcome};
use gristmill_core::job::state::JobStatus;
use gristmill_core::limits::{ERROR_BYTES_MAX, ERROR_IN_MEMORY_BYTES_MAX};
use gristmill_core::store::{Fenced, JobStore as _, RetryAnswer};
use gristmill_core::webhook::delivery::DeliveryStore as _;
use gristmill_test_support::EndAttempt as _;

contract!(long_errors_are_whole, a_retry_forgets_a_long_error);

/// Texts around the bound of errors in memory, and the longest text.
fn errors() -> Vec<String> {
    let lengths = [0, 1, ERROR_IN_MEMORY_BYTES_MAX, ERROR_IN_MEMORY_BYTES_MAX + 1, ERROR_BYTES_MAX];
    let mut errors: Vec<_> = lengths.map(|len| "x".repeat(len)).into();
    errors.push("é\n\"\u{1f33e}".repeat(ERROR_BYTES_MAX / 8));
    errors
}

async fn long_errors_are_whole(t: Fixture) {
    for error in errors() {
        let id = t.submit("a").await;
        let lease = t.claim("a").await.lease;
        let outcome = Outcome::Failed(error.clone());
        assert_eq!(t.store.finish(lease, outcome).await, Ok(Fenced::Applied));
        let record = t.record("a", id).await.unwrap();
        assert_eq!(record.status, JobStatus::Failed);
        assert_eq!(record.error, Some(error));
        assert_eq!(t.store.output(id).await, Ok(None), "an error is no output");
    }
}

async fn a_retry_forgets_a_long_error(t: Fixture) {
    // The next output is a text, as a long error is on disk, with the same beginning.
    let output = format!("\"{}\"", "x".repeat(ERROR_IN_MEMORY_BYTES_MAX));
    for error in errors() {
        let id = t.submit("a").await;
        for _ in 0..2 {
            let lease = t.claim("a").await.lease;
            let outcome = Outcome::Failed(error.clone());
            assert_eq!(t.store.finish(lease, outcome).await, Ok(Fenced::Applied));
            assert_eq!(t.store.retry(&endpoint("a"), id, None).await, Ok(RetryAnswer::Queued));
            assert_eq!(t.record("a", id).await.unwrap().error, None);
        }
        let lease = t.claim("a").await.lease;
        let outcome = Outcome::Completed(json(&output));
        assert_eq!(t.store.finish(lease, outcome).await, Ok(Fenced::Applied));
        assert_eq!(t.record("a", id).await.unwrap().error, None);
        assert_eq!(t.store.output(id).await.unwrap(), Some(json(&output)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_errors_outlive_a_start() {
    for settings in [support::settings(), support::with_small_segments()] {
        let mut t = OnDisk::new(settings);
        let mut failed = Vec::new();
        for error in errors() {
            let id = submit(t.store(), job("a")).await;
            let (lease, outcome) = (t.claim().await, Outcome::Failed(error.clone()));
            assert_eq!(t.store().finish(lease, outcome).await, Ok(Fenced::Applied));
            failed.push((id, error));
        }
        for _ in 0..2 {
            t.restart();
            for (id, error) in &failed {
                assert_eq!(t.error(*id).await.as_ref(), Some(error));
            }
        }
        let (id, _) = failed.pop().unwrap();
        assert_eq!(t.store().retry(&endpoint("a"), id, None).await, Ok(RetryAnswer::Queued));
        t.restart();
        assert_eq!(t.error(id).await, None);
        for (id, error) in &failed {
            assert_eq!(t.error(*id).await.as_ref(), Some(error));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_carries_a_long_error() {
    let t = OnDisk::new(support::settings());
    let webhook = Some("https://example.com/".to_owned());
    submit(t.store(), NewJob { webhook, ..job("a") }).await;
    let error = "x".repeat(ERROR_BYTES_MAX);
    let (lease, outcome) = (t.claim().await, Outcome::Failed(error.clone()));
    assert_eq!(t.store().finish(lease, outcome).await, Ok(Fenced::Applied));
    let log = t.store().deliveries(&endpoint("a"), 1).await.unwrap();
    let body = t.store().delivery_body(log[0].id).await.unwrap().unwrap();
    let body: serde_json::Value = serde_json::from_slice(body.as_bytes()).unwrap();
    assert_eq!((&body["status"], &body["error"]), (&"FAILED".into(), &error.into()));
    assert!(body["output"].is_null());
}
