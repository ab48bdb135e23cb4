//! What keeps the store's memory and its batches bounded, as its callers see it: long errors, and
//! the repair of many jobs with large payloads.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test that meets the unexpected has failed"
)]

mod support;

use std::sync::Arc;

use gristmill_core::delivery::DeliveryStore;
use gristmill_core::id::JobId;
use gristmill_core::job::JobStatus;
use gristmill_core::limits::{CRASHES_MAX, ERROR_BYTES_MAX, ERROR_IN_MEMORY_BYTES_MAX};
use gristmill_core::record::{Lease, NewJob, Outcome};
use gristmill_core::signals::Signals;
use gristmill_core::store::{Fenced, JobStore, RetryAnswer};
use gristmill_core::time::ManualClock;
use gristmill_store::{Settings, SqliteStore};
use support::fixture::{Fixture, contract};
use support::{START, chunk, endpoint, job, json, open_with, submit, worker};
use tempfile::TempDir;

contract!(long_errors_are_whole, a_retry_forgets_a_long_error);

/// Texts around the bound of what stays in memory, and the longest.
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
    // The next output is a text, as a long error is on disk, and begins in the same way.
    let output = format!("\"{}\"", "x".repeat(ERROR_IN_MEMORY_BYTES_MAX));
    for error in errors() {
        let id = t.submit("a").await;
        for _ in 0..2 {
            let lease = t.claim("a").await.lease;
            let outcome = Outcome::Failed(error.clone());
            assert_eq!(t.store.finish(lease, outcome).await, Ok(Fenced::Applied));
            assert_eq!(t.store.retry(&endpoint("a"), id).await, Ok(RetryAnswer::Queued));
            assert_eq!(t.record("a", id).await.unwrap().error, None);
        }
        let lease = t.claim("a").await.lease;
        let outcome = Outcome::Completed(json(&output));
        assert_eq!(t.store.finish(lease, outcome).await, Ok(Fenced::Applied));
        assert_eq!(t.record("a", id).await.unwrap().error, None);
        assert_eq!(t.store.output(id).await.unwrap(), Some(json(&output)));
    }
}

/// A store in a directory, which can end without being closed.
struct OnDisk {
    dir: TempDir,
    settings: Settings,
    store: Option<SqliteStore>,
    clock: Arc<ManualClock>,
}

impl OnDisk {
    fn new(settings: Settings) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let mut new = Self { dir: tempfile::tempdir().unwrap(), settings, store: None, clock };
        new.restart();
        new
    }

    fn restart(&mut self) {
        self.store = None;
        let signals = Arc::new(Signals::default());
        let opened = open_with(self.settings.clone(), self.dir.path(), &self.clock, &signals);
        self.store = Some(opened.0);
    }

    fn store(&self) -> &SqliteStore {
        self.store.as_ref().unwrap()
    }

    async fn claim(&self) -> Lease {
        let claimed = self.store().claim(&endpoint("a"), &[worker("w")]).await.unwrap();
        let lease = claimed[0].lease;
        self.store().flush().await.unwrap();
        lease
    }

    async fn error(&self, id: JobId) -> Option<String> {
        self.store().job(&endpoint("a"), id).await.unwrap().unwrap().error
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn long_errors_outlive_a_start() {
    for settings in [support::settings(), support::restless()] {
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
        assert_eq!(t.store().retry(&endpoint("a"), id).await, Ok(RetryAnswer::Queued));
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

/// Jobs that ran in three crashes are FAILED by the next start, and all their webhooks are written
/// before anybody is served.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_divides_the_webhooks_that_it_writes_among_batches() {
    const JOBS: u64 = 30;
    let settings = Settings { batch_bytes_max: 256 << 10, ..support::settings() };
    let mut t = OnDisk::new(settings);
    let input = json(&format!("{{\"x\":\"{}\"}}", "x".repeat(100_000)));
    for _ in 0..JOBS {
        let webhook = Some("https://example.com/".to_owned());
        submit(t.store(), NewJob { webhook, input: input.clone(), ..job("a") }).await;
    }
    for _ in 0..CRASHES_MAX {
        assert!(t.store().deliveries(&endpoint("a"), 1).await.unwrap().is_empty());
        for _ in 0..JOBS {
            let lease = t.claim().await;
            let chunks = vec![chunk("1")];
            assert_eq!(t.store().append_chunks(lease, chunks).await, Ok(Fenced::Applied));
        }
        t.store().flush().await.unwrap();
        t.restart();
    }
    let log = t.store().deliveries(&endpoint("a"), 100).await.unwrap();
    assert_eq!(log.len() as u64, JOBS);
    assert!(log.iter().all(|delivery| delivery.body_bytes > 100_000));
    let commits = t.store().stats().commits;
    assert!((10..=JOBS).contains(&commits), "{commits} batches of 256 KiB");
}
