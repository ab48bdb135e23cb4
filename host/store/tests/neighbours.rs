//! Owners with large payloads beside owners with small ones: the order in which their calls end
//! shows who waits for whom.

use std::sync::Arc;

use gristmill_core::id::OwnerId;
use gristmill_core::job::record::NewJob;
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore as _;
use gristmill_core::time::ManualClock;
use gristmill_store::{Settings, Store};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::support::{self, START, endpoint, job, json, submit};

/// Calls at one time. On the only thread of a test they end in the order of their commits.
struct Calls {
    store: Arc<Store>,
    ended: Arc<Mutex<Vec<&'static str>>>,
    tasks: JoinSet<()>,
    _dir: TempDir,
}

impl Calls {
    fn new(settings: Settings) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
        let store = support::open_with(settings, dir.path(), &clock, &signals).0;
        Self { store: Arc::new(store), ended: Arc::default(), tasks: JoinSet::new(), _dir: dir }
    }

    fn submit(&mut self, owner: &'static str, endpoint: &str, bytes: usize) {
        let (store, ended) = (self.store.clone(), self.ended.clone());
        let new = new(owner, endpoint, bytes);
        self.tasks.spawn(async move {
            submit(&*store, new).await;
            ended.lock().push(owner);
        });
    }

    /// The number of calls that have ended before the first one of this owner.
    async fn ended_before(mut self, owner: &str) -> usize {
        while self.tasks.join_next().await.transpose().unwrap().is_some() {}
        let ended = self.ended.lock();
        ended.iter().position(|it| *it == owner).unwrap()
    }
}

fn new(owner: &str, endpoint: &str, bytes: usize) -> NewJob {
    let input = json(&format!("\"{}\"", "x".repeat(bytes)));
    NewJob { owner: OwnerId::new(owner).unwrap(), input, ..job(endpoint) }
}

/// 4 batches have room in the write buffer at one time.
fn settings() -> Settings {
    Settings { write_buffer_bytes: 1 << 20, batch_bytes_max: 256 << 10, ..support::settings() }
}

#[tokio::test]
async fn large_submissions_of_an_owner_delay_no_small_one_of_another() {
    let mut calls = Calls::new(settings());
    for n in 0..40 {
        calls.submit("alice", ["a", "b", "c", "d"][n % 4], 300_000);
    }
    calls.submit("bob", "bobs", 10);
    let before = calls.ended_before("bob").await;
    // Those that were in the write buffer already.
    assert!(before <= 3, "{before} large submissions were written first");
}

#[tokio::test]
async fn large_submissions_of_owners_take_turns() {
    let mut calls = Calls::new(settings());
    for n in 0..40 {
        calls.submit("alice", ["a", "b", "c", "d"][n % 4], 300_000);
    }
    calls.submit("bob", "bobs", 300_000);
    let before = calls.ended_before("bob").await;
    assert!(before <= 4, "{before} submissions of the other owner were written first");
}

#[tokio::test]
async fn webhooks_of_many_cancelled_jobs_delay_no_small_submission() {
    let mut calls = Calls::new(settings());
    let mut ids = Vec::new();
    for _ in 0..40 {
        let webhook = Some("https://example.com/".to_owned());
        ids.push(submit(&*calls.store, NewJob { webhook, ..new("alice", "a", 300_000) }).await);
    }
    for id in ids {
        let (store, ended) = (calls.store.clone(), calls.ended.clone());
        calls.tasks.spawn(async move {
            store.cancel(&endpoint("a"), id).await.unwrap();
            ended.lock().push("alice");
        });
    }
    calls.submit("bob", "bobs", 10);
    let before = calls.ended_before("bob").await;
    assert!(before <= 2, "{before} webhooks were written first");
}
