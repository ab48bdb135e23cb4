//! The state between a decision and its commit. The tests stop the writer to examine it.

use std::sync::Arc;
use std::sync::mpsc;

use gristmill_core::catalog::CatalogStore;
use gristmill_core::id::{EndpointId, JobId, OwnerId, ShardId, WorkerId};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::payload::Json;
use gristmill_core::job::policy::{Policy, Start};
use gristmill_core::job::record::{Chunk, CompletedJob, NewJob, Outcome};
use gristmill_core::job::state::{Claim, JobStatus};
use gristmill_core::signals::Signals;
use gristmill_core::store::{Fenced, JobStore, StoreError, SubmitAnswer};
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_core::webhook::delivery::{DeliveryState, DeliveryStore};
use gristmill_test_support::new_job;
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::Settings;
use crate::Store;
use crate::state::backlog::Write;
use crate::state::job::COMPLETED_BYTES_MAX;
use crate::state::requests::DbRequest;

struct Held {
    store: Arc<Store>,
    dir: TempDir,
}

fn open(settings: Settings) -> Held {
    let dir = tempfile::tempdir().unwrap();
    let store = reopen(&dir, settings);
    Held { store, dir }
}

fn reopen(dir: &TempDir, settings: Settings) -> Arc<Store> {
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000)));
    let signals = Arc::new(Signals::default());
    Arc::new(Store::open(dir.path(), clock, signals, settings).unwrap().0)
}

impl Held {
    fn push(&self, write: Write) {
        self.store.shared.change(|index, _| index.push_last(write)).unwrap();
    }

    /// Stops the writer before its next commit, until the returned value is dropped.
    async fn hold(&self) -> mpsc::Sender<()> {
        let (release, until) = mpsc::channel();
        self.push(Write::Hold(until));
        while !self.store.shared.index().is_backlog_empty() {
            tokio::task::yield_now().await;
        }
        release
    }

    /// Submits without waiting for the disk.
    async fn submit(&self, job: &NewJob) -> JoinHandle<Result<SubmitAnswer, StoreError>> {
        let (store, job) = (self.store.clone(), job.clone());
        start(async move { store.submit(job).await }).await
    }

    async fn status(&self, id: JobId) -> Option<JobStatus> {
        Some(self.store.job(&endpoint(), id).await.unwrap()?.status)
    }

    async fn job_rows(&self) -> u64 {
        let (answer, rows) = oneshot::channel();
        self.store.shared.request(DbRequest::JobRows { answer }).unwrap();
        rows.await.unwrap()
    }
}

/// Runs a future until it waits.
async fn start<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> JoinHandle<T> {
    let task = tokio::spawn(future);
    tokio::task::yield_now().await;
    task
}

fn endpoint() -> EndpointId {
    EndpointId::new("a").unwrap()
}

fn workers() -> [WorkerId; 1] {
    [WorkerId::new("w").unwrap()]
}

fn job() -> NewJob {
    let policy = Policy {
        execution_timeout_ms: Some(5_000),
        ttl_ms: 10_000,
        low_priority: false,
        start: Start::Now,
        retry: None,
    };
    NewJob { policy, ..new_job(ShardId(1), OwnerId::new("o").unwrap(), endpoint()) }
}

fn chunk(bytes: usize) -> Chunk {
    let output = Json::parse(format!("\"{}\"", "x".repeat(bytes))).unwrap();
    Chunk { output, metrics: None, part: None }
}

/// The key of a job belongs to another job once the removal is written.
#[tokio::test]
async fn a_shorter_ttl_of_a_job_that_is_being_removed_touches_no_other_job() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000)));
    let opened = Store::open(dir.path(), clock.clone(), Arc::default(), Settings::default());
    let t = Held { store: Arc::new(opened.unwrap().0), dir };
    let removed = job();
    assert_eq!(t.store.submit(removed.clone()).await, Ok(SubmitAnswer::Queued));
    let held = t.hold().await;
    let store = t.store.clone();
    let purged = start(async move { store.purge(&endpoint()).await }).await;
    let store = t.store.clone();
    let shortened =
        start(async move { store.shorten_ttl(&endpoint(), removed.id, 1_000).await }).await;
    drop(held);
    assert_eq!(purged.await.unwrap(), Ok(1));
    assert_eq!(shortened.await.unwrap(), Ok(()));

    let kept = job();
    assert_eq!(t.store.submit(kept.clone()).await, Ok(SubmitAnswer::Queued));
    let claimed = t.store.claim_each(&endpoint(), &workers()).await.unwrap();
    let done = Outcome::Completed(Json::null());
    assert_eq!(t.store.finish(claimed[0].lease, done).await, Ok(Fenced::Applied));
    clock.advance(2_000);
    t.store.expire().await.unwrap();
    assert_eq!(t.status(kept.id).await, Some(JobStatus::Completed));
}

#[tokio::test]
async fn nothing_is_visible_before_it_is_on_disk_but_it_can_be_claimed() {
    let t = open(Settings::default());
    let held = t.hold().await;
    let new = job();
    let submitted = t.submit(&new).await;
    assert_eq!(t.status(new.id).await, None);
    assert_eq!(t.store.counts(&endpoint()).await.unwrap().in_queue, 0);
    assert_eq!(t.store.input(new.id).await, Ok(None));
    assert_eq!(t.store.stats().jobs, 0);
    let claimed = t.store.claim_each(&endpoint(), &workers()).await.unwrap();
    assert_eq!(claimed[0].lease.job, new.id);
    let chunks = vec![chunk(1)];
    assert_eq!(t.store.append_chunks(claimed[0].lease, chunks).await, Ok(Fenced::Applied));
    assert!(t.store.chunks(new.id, 0, 9, 9).await.unwrap().chunks.is_empty());
    assert!(!submitted.is_finished());
    drop(held);
    assert_eq!(submitted.await.unwrap(), Ok(SubmitAnswer::Queued));
    assert_eq!(t.status(new.id).await, Some(JobStatus::InProgress));
    assert_eq!(t.store.chunks(new.id, 0, 9, 9).await.unwrap().chunks.len(), 1);
}

#[tokio::test]
async fn a_job_that_ends_within_one_commit_is_one_frame_and_no_row() {
    let t = open(Settings::default());
    let before = t.store.stats();
    let held = t.hold().await;
    let new = job();
    let submitted = t.submit(&new).await;
    let lease = t.store.claim_each(&endpoint(), &workers()).await.unwrap()[0].lease;
    let store = t.store.clone();
    let finished =
        start(async move { store.finish(lease, Outcome::Completed(Json::null())).await }).await;
    drop(held);
    assert_eq!(submitted.await.unwrap(), Ok(SubmitAnswer::Queued));
    assert_eq!(finished.await.unwrap(), Ok(Fenced::Applied));
    assert_eq!(t.status(new.id).await, Some(JobStatus::Completed));
    let after = t.store.stats();
    assert_eq!(after.commits - before.commits, 1);
    assert_eq!(after.operations - before.operations, 3);
    assert_eq!(t.job_rows().await, 0, "a checkpoint copies what outlives the journal");
}

#[tokio::test]
async fn a_job_removed_within_the_commit_of_its_submission_leaves_nothing() {
    let t = open(Settings::default());
    let held = t.hold().await;
    let new = job();
    let submitted = t.submit(&new).await;
    let store = t.store.clone();
    let forgotten = start(async move { store.delete_endpoint(&endpoint()).await }).await;
    drop(held);
    assert_eq!(submitted.await.unwrap(), Ok(SubmitAnswer::Queued));
    assert_eq!(forgotten.await.unwrap(), Ok(()));
    assert_eq!(t.status(new.id).await, None);
    assert_eq!(t.store.stats().jobs, 0);
}

#[tokio::test]
async fn jobs_share_a_webhook_url_until_they_end() {
    let t = open(Settings::default());
    let webhook = Some(format!("https://hooks.example/{}", "x".repeat(2_000)));
    let mut ids = Vec::new();
    for _ in 0..3 {
        let new = NewJob { webhook: webhook.clone(), ..job() };
        ids.push(new.id);
        assert_eq!(t.store.submit(new).await, Ok(SubmitAnswer::Queued));
    }
    let urls = || -> Vec<_> {
        let index = t.store.shared.index();
        let jobs = ids.iter().filter_map(|id| index.find(*id));
        jobs.filter_map(|(_, job)| job.webhook.clone()).collect()
    };
    let held = urls();
    assert_eq!(held.len(), 3);
    assert!(held.iter().all(|url| Arc::ptr_eq(url, &held[0])));
    drop(held);
    t.store.cancel(&endpoint(), ids[0]).await.unwrap();
    let lease = t.store.claim_each(&endpoint(), &workers()).await.unwrap()[0].lease;
    assert_eq!(t.store.finish(lease, Outcome::Completed(Json::null())).await, Ok(Fenced::Applied));
    let held = urls();
    assert_eq!(held.len(), 1, "one job still waits");
    let weak = Arc::downgrade(&held[0]);
    drop(held);
    assert!(weak.upgrade().is_some());
    t.store.purge(&endpoint()).await.unwrap();
    assert!(weak.upgrade().is_none(), "no job has the URL any more");
}

#[tokio::test]
async fn the_loser_of_a_race_waits_for_the_winner() {
    let t = open(Settings::default());
    let new = job();
    assert_eq!(t.store.submit(new.clone()).await, Ok(SubmitAnswer::Queued));
    let lease = t.store.claim_each(&endpoint(), &workers()).await.unwrap()[0].lease;
    t.store.write_catalog(Vec::new()).await.unwrap();
    let held = t.hold().await;
    let (store, id) = (t.store.clone(), new.id);
    let finished =
        start(async move { store.finish(lease, Outcome::Completed(Json::null())).await }).await;
    let store = t.store.clone();
    let cancelled = start(async move { store.cancel(&endpoint(), id).await }).await;
    let store = t.store.clone();
    let again = start(async move { store.finish(lease, Outcome::TimedOut).await }).await;
    assert_eq!(t.status(id).await, Some(JobStatus::InProgress));
    assert!(!finished.is_finished() && !cancelled.is_finished() && !again.is_finished());
    drop(held);
    assert_eq!(cancelled.await.unwrap(), Ok(Some(JobStatus::Completed)));
    assert_eq!(t.status(id).await, Some(JobStatus::Completed));
    assert_eq!(finished.await.unwrap(), Ok(Fenced::Applied));
    assert_eq!(again.await.unwrap(), Ok(Fenced::Stale));
}

#[tokio::test]
async fn a_change_during_a_commit_is_part_of_the_next() {
    let t = open(Settings::default());
    let first = t.hold().await;
    let new = job();
    let submitted = t.submit(&new).await;
    let (release, until) = mpsc::channel();
    t.push(Write::Hold(until));
    drop(first);
    while !t.store.shared.index().is_backlog_empty() {
        tokio::task::yield_now().await;
    }
    // The submission is being written now.
    let (store, id) = (t.store.clone(), new.id);
    let cancelled = start(async move { store.cancel(&endpoint(), id).await }).await;
    assert_eq!(t.status(id).await, None);
    drop(release);
    assert_eq!(submitted.await.unwrap(), Ok(SubmitAnswer::Queued));
    assert_eq!(cancelled.await.unwrap(), Ok(Some(JobStatus::Cancelled)));
    assert_eq!(t.status(id).await, Some(JobStatus::Cancelled));
    assert_eq!(t.store.counts(&endpoint()).await.unwrap().in_queue, 0);
}

#[tokio::test]
async fn chunks_wait_for_buffer_space_and_not_for_the_disk() {
    let t = open(Settings { write_buffer_bytes: 4_096, ..Settings::default() });
    assert_eq!(t.store.submit(job()).await, Ok(SubmitAnswer::Queued));
    let lease = t.store.claim_each(&endpoint(), &workers()).await.unwrap()[0].lease;
    let held = t.hold().await;
    let first = t.store.append_chunks(lease, vec![chunk(1_000)]).await;
    assert_eq!(first, Ok(Fenced::Applied));
    let store = t.store.clone();
    // A payload larger than the whole buffer is written too, alone.
    let second = start(async move { store.append_chunks(lease, vec![chunk(9_000)]).await }).await;
    assert!(!second.is_finished());
    drop(held);
    assert_eq!(second.await.unwrap(), Ok(Fenced::Applied));
}

#[tokio::test]
async fn a_failed_commit_is_fatal_and_nothing_of_it_is_acknowledged() {
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let seen = reasons.clone();
    let on_fatal = Arc::new(move |reason: &str| seen.lock().push(reason.to_owned()));
    let t = open(Settings { on_fatal, ..Settings::default() });
    let kept = job();
    assert_eq!(t.store.submit(kept.clone()).await, Ok(SubmitAnswer::Queued));
    let held = t.hold().await;
    let lost = job();
    let submitted = t.submit(&lost).await;
    t.push(Write::Break);
    let store = t.store.clone();
    let cancelled = start(async move { store.cancel(&endpoint(), kept.id).await }).await;
    drop(held);
    assert_eq!(submitted.await.unwrap(), Err(StoreError::Closed));
    assert_eq!(cancelled.await.unwrap(), Err(StoreError::Closed));
    assert_eq!(t.store.submit(job()).await, Err(StoreError::Closed));
    assert_eq!(t.store.stats().jobs, 0);
    t.store.close().await;
    let Held { store, dir } = t;
    drop(store);
    assert_eq!(reasons.lock().len(), 1);
    let store = reopen(&dir, Settings::default());
    let record = store.job(&endpoint(), kept.id).await.unwrap().unwrap();
    assert_eq!(record.status, JobStatus::InQueue);
    assert!(store.job(&endpoint(), lost.id).await.unwrap().is_none());
}

#[tokio::test]
async fn a_delivery_beyond_the_bound_is_given_up_at_once() {
    let t = open(Settings::default());
    t.store.shared.index().outbox_mut().pending_max = 1;
    for _ in 0..2 {
        let new = NewJob { webhook: Some("https://example.com/".to_owned()), ..job() };
        assert_eq!(t.store.submit(new).await, Ok(SubmitAnswer::Queued));
        let claimed = t.store.claim_each(&endpoint(), &workers()).await.unwrap();
        let finished = t.store.finish(claimed[0].lease, Outcome::TimedOut).await;
        assert_eq!(finished, Ok(Fenced::Applied));
    }
    let log = t.store.deliveries(&endpoint(), 9).await.unwrap();
    assert!(matches!(log[0].state, DeliveryState::GivenUp { .. }), "{log:?}");
    assert!(log[0].last.error.as_ref().unwrap().starts_with("not sent: "), "{log:?}");
    assert!(matches!(log[1].state, DeliveryState::Pending { .. }), "{log:?}");
    assert_eq!(t.store.delivery_body(log[0].id).await, Ok(None));
}

#[tokio::test]
async fn a_submission_that_may_linger_is_written_with_or_without_a_result() {
    let t = open(Settings::default());
    let new = NewJob { may_linger: true, ..job() };
    let submitted = t.submit(&new).await;
    let claimed = t.store.claim_each(&endpoint(), &workers()).await.unwrap();
    let finished = t.store.finish(claimed[0].lease, Outcome::Completed(Json::null())).await;
    assert_eq!(finished, Ok(Fenced::Applied));
    let submitted = submitted.await.unwrap().unwrap();
    assert!(matches!(submitted, SubmitAnswer::Queued | SubmitAnswer::Completed(_)));
    let alone = NewJob { may_linger: true, ..job() };
    assert_eq!(t.store.submit(alone.clone()).await, Ok(SubmitAnswer::Queued));
    assert_eq!(t.status(alone.id).await, Some(JobStatus::InQueue));
}

#[tokio::test]
async fn the_caller_that_waits_for_a_job_gets_it_with_the_acknowledgement() {
    let completed = |bytes: usize| Outcome::Completed(chunk(bytes).output);
    let cases = [
        (true, completed(0), 0, true),
        (true, completed(COMPLETED_BYTES_MAX - 2), 0, true),
        (true, completed(COMPLETED_BYTES_MAX - 1), 0, false),
        // The list of its chunks stands for the output.
        (true, Outcome::Completed(Json::null()), 1, false),
        (true, Outcome::Failed("no".to_owned()), 0, false),
        (false, completed(0), 0, false),
    ];
    let t = open(Settings::default());
    for (may_linger, outcome, chunks, is_returned) in cases {
        let held = t.hold().await;
        let new = NewJob { may_linger, ..job() };
        let submitted = t.submit(&new).await;
        let lease = t.store.claim_each(&endpoint(), &workers()).await.unwrap()[0].lease;
        let emitted = t.store.append_chunks(lease, vec![chunk(1); chunks]).await;
        assert_eq!(emitted, Ok(Fenced::Applied));
        let store = t.store.clone();
        let finished = start(async move { store.finish(lease, outcome).await }).await;
        drop(held);
        let submitted = submitted.await.unwrap().unwrap();
        assert_eq!(finished.await.unwrap(), Ok(Fenced::Applied));
        let record = t.store.job(&endpoint(), new.id).await.unwrap().unwrap();
        let output = t.store.output(new.id).await.unwrap();
        let expected = output.filter(|_| is_returned).map(|output| CompletedJob { record, output });
        assert_eq!(submitted, expected.map_or(SubmitAnswer::Queued, SubmitAnswer::Completed));
    }
}

#[tokio::test]
async fn an_abandoned_claim_releases_its_jobs() {
    let t = open(Settings { payload_cache_bytes: 0, ..Settings::default() });
    let input = Json::parse(format!("\"{}\"", "x".repeat(100_000))).unwrap();
    let new = NewJob { input, ..job() };
    assert_eq!(t.store.submit(new.clone()).await, Ok(SubmitAnswer::Queued));
    {
        let (endpoint, workers) = (endpoint(), workers());
        let mut claim = t.store.claim_each(&endpoint, &workers);
        let waker = std::task::Waker::noop();
        let polled = claim.as_mut().poll(&mut std::task::Context::from_waker(waker));
        assert!(polled.is_pending(), "the input is on disk only");
    }
    let claimed = t.store.claim_each(&endpoint(), &workers()).await.unwrap();
    assert_eq!((claimed[0].lease.job, claimed[0].lease.claim), (new.id, Claim(2)));
}

#[tokio::test]
async fn idempotency_records_count_for_the_owner_of_the_endpoint() {
    let t = open(Settings::default());
    let of_endpoint = OwnerId::new("of-endpoint").unwrap();
    for key in 0..3 {
        let idempotency = Some(Idempotency { key: [key; 16], content: [0; 16] });
        let incarnation = EndpointIncarnation::new(of_endpoint.clone());
        let new = NewJob { idempotency, incarnation, ..job() };
        assert_eq!(t.store.submit(new).await, Ok(SubmitAnswer::Queued));
    }
    let records = |owner: &OwnerId| {
        let mut index = t.store.shared.index();
        index.idempotency_records_of(owner)
    };
    assert_eq!((records(&of_endpoint), records(&job().owner)), (3, 0));
    t.store.delete_endpoint(&endpoint()).await.unwrap();
    assert_eq!(records(&of_endpoint), 0);
}

/// Ends `jobs` jobs with a webhook of this size each, all while the writer is stopped. Returns the
/// number of commits that wrote their ends.
async fn commits_of_ends(t: &Held, jobs: usize, bytes: usize) -> u64 {
    let webhook = Some("https://example.com/".to_owned());
    let mut leases = Vec::new();
    for _ in 0..jobs {
        let new = NewJob { webhook: webhook.clone(), ..job() };
        assert_eq!(t.store.submit(new).await, Ok(SubmitAnswer::Queued));
        let lease = t.store.claim_each(&endpoint(), &workers()).await.unwrap()[0].lease;
        let chunks = vec![chunk(bytes / 2), chunk(bytes / 2)];
        assert_eq!(t.store.append_chunks(lease, chunks).await, Ok(Fenced::Applied));
        leases.push(lease);
    }
    t.store.write_catalog(Vec::new()).await.unwrap();
    let before = t.store.stats().commits;
    let held = t.hold().await;
    let mut ends = Vec::new();
    for lease in leases {
        let store = t.store.clone();
        // A null after chunks: the output is the list of them.
        let end = async move { store.finish(lease, Outcome::Completed(Json::null())).await };
        ends.push(start(end).await);
    }
    drop(held);
    for end in ends {
        assert_eq!(end.await.unwrap(), Ok(Fenced::Applied));
    }
    t.store.stats().commits - before
}

#[tokio::test]
async fn webhooks_that_end_together_are_divided_among_batches() {
    let t = open(Settings { batch_bytes_max: 256 << 10, ..Settings::default() });
    let commits = commits_of_ends(&t, 40, 100_000).await;
    assert!((13..=40).contains(&commits), "40 bodies of 100 kB in {commits} batches of 256 KiB");
    let log = t.store.deliveries(&endpoint(), 100).await.unwrap();
    assert!(log.len() == 40 && log.iter().all(|delivery| delivery.body_bytes > 100_000));
}

#[tokio::test]
async fn a_webhook_larger_than_a_batch_is_written_alone() {
    let settings =
        Settings { batch_bytes_max: 1, write_buffer_bytes: 10_000, ..Settings::default() };
    let t = open(settings);
    assert_eq!(commits_of_ends(&t, 5, 100_000).await, 5);
}

#[tokio::test]
async fn cancelled_jobs_with_large_inputs_are_divided_among_batches() {
    let t = open(Settings { batch_bytes_max: 256 << 10, ..Settings::default() });
    let input = Json::parse(format!("\"{}\"", "x".repeat(100_000))).unwrap();
    let mut ids = Vec::new();
    for _ in 0..40 {
        let webhook = Some("https://example.com/".to_owned());
        let new = NewJob { webhook, input: input.clone(), ..job() };
        ids.push(new.id);
        assert_eq!(t.store.submit(new).await, Ok(SubmitAnswer::Queued));
    }
    let before = t.store.stats().commits;
    let held = t.hold().await;
    let mut cancels = Vec::new();
    for id in ids {
        let store = t.store.clone();
        cancels.push(start(async move { store.cancel(&endpoint(), id).await }).await);
    }
    drop(held);
    for cancel in cancels {
        assert_eq!(cancel.await.unwrap(), Ok(Some(JobStatus::Cancelled)));
    }
    let commits = t.store.stats().commits - before;
    assert!((13..=40).contains(&commits), "{commits} batches");
}

#[tokio::test]
async fn space_for_a_webhook_is_reserved_before_its_job_ends() {
    let t = open(Settings { write_buffer_bytes: 64 << 10, ..Settings::default() });
    let new = NewJob { webhook: Some("https://example.com/".to_owned()), ..job() };
    assert_eq!(t.store.submit(new).await, Ok(SubmitAnswer::Queued));
    let lease = t.store.claim_each(&endpoint(), &workers()).await.unwrap()[0].lease;
    assert_eq!(t.store.append_chunks(lease, vec![chunk(40_000)]).await, Ok(Fenced::Applied));
    t.store.write_catalog(Vec::new()).await.unwrap();
    assert_eq!(t.store.submit(job()).await, Ok(SubmitAnswer::Queued));
    let other = t.store.claim_each(&endpoint(), &workers()).await.unwrap()[0].lease;
    t.store.write_catalog(Vec::new()).await.unwrap();
    let held = t.hold().await;
    assert_eq!(t.store.append_chunks(other, vec![chunk(40_000)]).await, Ok(Fenced::Applied));
    let store = t.store.clone();
    let end = async move { store.finish(lease, Outcome::Completed(Json::null())).await };
    let end = start(end).await;
    let is_taken = t.store.shared.index().leased(lease, Timestamp::from_millis(1_000)).is_none();
    assert!(!is_taken, "its webhook has no room beside the chunks of another job");
    drop(held);
    assert_eq!(end.await.unwrap(), Ok(Fenced::Applied));
}
