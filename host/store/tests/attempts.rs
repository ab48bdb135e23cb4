//! What a job shows of its attempts, on every store and after every restart: the time since it was
//! last queued, its earlier attempts, the partial output of a failed attempt, and the read position
//! of each attempt's stream.

use std::sync::Arc;

use crate::support::fixture::{Fixture, contract};
use crate::support::{
    START, chunk, endpoint, job, json, low_priority, metered, open_with, settings, stream_position,
    submit, with_small_segments, worker,
};
use gristmill_core::catalog::CatalogStore as _;
use gristmill_core::id::JobId;
use gristmill_core::job::record::{JobRecord, Outcome, PastAttempt, RequeueCause};
use gristmill_core::job::retry::{FailedAttempt, FailureKind, Retry, RetryWish};
use gristmill_core::job::state::{Claim, JobStatus, ReleaseCause};
use gristmill_core::jobs::timeline::Timeline;
use gristmill_core::limits::{PARTIAL_OUTPUT_BYTES_MAX, PAST_ATTEMPTS_MAX, PAST_ERROR_BYTES_MAX};
use gristmill_core::signals::Signals;
use gristmill_core::store::{Fenced, JobStore, RetryAnswer, TriedAgain};
use gristmill_core::time::{Clock as _, ManualClock, Timestamp};
use gristmill_store::{Settings, Store};
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use tempfile::TempDir;

contract!(
    a_wait_begins_when_the_job_is_queued_again,
    demand_counts_from_when_its_first_job_was_queued,
    a_failed_attempt_leaves_its_own_output_and_no_other,
    the_read_position_only_grows,
    each_attempt_has_a_read_position_of_its_own,
    earlier_attempts_are_recorded_with_their_ends,
    the_newest_of_many_attempts_are_recorded,
    a_failed_attempt_is_repeated_as_the_rule_says,
    a_rule_of_the_submission_counts_before_that_of_the_endpoint,
);

/// The times in milliseconds since the start, and the end.
fn times(attempts: &[PastAttempt]) -> Vec<([u64; 3], RequeueCause)> {
    let since = |at: Timestamp| at.millis_since(START);
    let time = |it: &PastAttempt| [it.queued_at, it.started_at, it.ended_at].map(since);
    attempts.iter().map(|it| (time(it), it.end)).collect()
}

async fn earlier_attempts_are_recorded_with_their_ends(t: Fixture) {
    let a = endpoint("a");
    let id = t.submit("a").await;
    let past = async || {
        t.flush().await;
        times(&t.record("a", id).await.unwrap().past_attempts)
    };
    let run = async || {
        t.clock.advance(10);
        let lease = t.claim("a").await.lease;
        t.clock.advance(100);
        lease
    };
    let mut expected = vec![];
    for (at, cause, end) in [
        (0, ReleaseCause::Stopped, RequeueCause::Released),
        (110, ReleaseCause::NoMemory, RequeueCause::NoMemory),
    ] {
        assert_eq!(t.store.release(run().await, cause).await, Ok(Fenced::Applied));
        expected.push(([at, at + 10, at + 110], end));
        assert_eq!(past().await, expected);
    }
    let lease = run().await;
    assert_eq!(past().await, expected, "a running attempt is the last one");
    assert_eq!(t.store.finish(lease, Outcome::Failed("no".into())).await, Ok(Fenced::Applied));
    assert_eq!(past().await, expected, "an attempt that ended is the last one");
    t.clock.advance(1_000);
    assert_eq!(t.store.retry(&a, id, None).await, Ok(RetryAnswer::Queued));
    expected.push(([220, 230, 330], RequeueCause::Failed));
    assert_eq!(past().await, expected, "the attempt ended before the retry");
    assert_eq!(t.store.finish(run().await, Outcome::TimedOut).await, Ok(Fenced::Applied));
    assert_eq!(t.store.retry(&a, id, None).await, Ok(RetryAnswer::Queued));
    expected.push(([1_330, 1_340, 1_440], RequeueCause::TimedOut));
    assert_eq!(past().await, expected);
    t.store.cancel(&a, id).await.unwrap();
    assert_eq!(past().await, expected, "a wait is no attempt");
}

async fn the_newest_of_many_attempts_are_recorded(t: Fixture) {
    let a = endpoint("a");
    let id = t.submit("a").await;
    for _ in 0..PAST_ATTEMPTS_MAX + 3 {
        let lease = t.claim("a").await.lease;
        assert_eq!(t.store.finish(lease, Outcome::Failed("no".into())).await, Ok(Fenced::Applied));
        t.clock.advance(1_000);
        assert_eq!(t.store.retry(&a, id, None).await, Ok(RetryAnswer::Queued));
    }
    let record = t.record("a", id).await.unwrap();
    assert_eq!(record.past_attempts.len(), PAST_ATTEMPTS_MAX);
    assert_eq!(times(&record.past_attempts)[0], ([3_000; 3], RequeueCause::Failed));
    assert_eq!(Timeline::of(&record, &[]).attempts_omitted, 3);
}

/// A failure of the handler on an endpoint with this number of attempts, each 1 s after a failure.
fn failure(max_attempts: u32) -> FailedAttempt {
    let rule = Retry { max_attempts, jitter: 0, factor: 1, ..Retry::default() };
    let kind = FailureKind::Error;
    FailedAttempt { kind, error: "no".repeat(50), wish: None, endpoint_rule: rule, random: 0 }
}

async fn a_failed_attempt_is_repeated_as_the_rule_says(t: Fixture) {
    let a = endpoint("a");
    let id = t.submit("a").await;
    for failures in 1..=2 {
        let lease = t.claim("a").await.lease;
        let _ = t.store.append_chunks(lease, vec![chunk("1")]).await.unwrap();
        let tried = t.store.try_again(lease, &failure(3), &metered("t")).await;
        assert_eq!(tried, Ok(TriedAgain::Queued));
        let early = t.store.claim(&a, &worker("w")).await.unwrap();
        assert!(early.is_none(), "before its time");
        let tried = t.store.try_again(lease, &failure(3), &metered("t")).await;
        assert_eq!(tried, Ok(TriedAgain::Stale));
        t.flush().await;
        let record = t.record("a", id).await.unwrap();
        assert_eq!((record.status, record.retries), (JobStatus::InQueue, failures));
        assert_eq!((record.chunk_count, record.usage.billed.jobs), (0, failures.into()));
        let past = record.past_attempts.last().unwrap();
        assert_eq!(past.end, RequeueCause::AttemptFailed);
        assert_eq!(past.error, Some("no".repeat(PAST_ERROR_BYTES_MAX / 2)));
        assert_eq!(record.run_at(t.clock.now()), Some(t.clock.now().plus_millis(1_000)));
        t.clock.advance(1_000);
        assert_eq!(t.store.fire_due(), Ok(Timestamp::NEVER));
    }
    assert_eq!(t.store.counts(&a).await.unwrap().retried, 2);
    let lease = t.claim("a").await.lease;
    assert_eq!(t.store.release(lease, ReleaseCause::Stopped).await, Ok(Fenced::Applied));
    let lease = t.claim("a").await.lease;
    let tried = t.store.try_again(lease, &failure(3), &metered("t")).await;
    assert_eq!(tried, Ok(TriedAgain::Ends));
    assert_eq!(t.store.finish(lease, Outcome::Failed("end".into())).await, Ok(Fenced::Applied));
    let record = t.record("a", id).await.unwrap();
    assert_eq!((record.status, record.is_exhausted), (JobStatus::Failed, true));
    // A client's retry begins anew.
    assert_eq!(t.store.retry(&a, id, None).await, Ok(RetryAnswer::Queued));
    let lease = t.claim("a").await.lease;
    let tried = t.store.try_again(lease, &failure(3), &metered("t")).await;
    assert_eq!(tried, Ok(TriedAgain::Queued));
    assert!(!t.record("a", id).await.unwrap().is_exhausted);
}

async fn a_rule_of_the_submission_counts_before_that_of_the_endpoint(t: Fixture) {
    let mut new = job("a");
    new.policy.retry = Some(Retry { initial_delay_ms: 7, ..failure(2).endpoint_rule });
    let id = t.submit_job(new).await;
    let try_again = async || {
        let lease = t.claim("a").await.lease;
        (lease, t.store.try_again(lease, &failure(1), &metered("t")).await)
    };
    assert_eq!(try_again().await.1, Ok(TriedAgain::Queued));
    let run_at = t.record("a", id).await.unwrap().run_at(t.clock.now());
    assert_eq!(run_at, Some(t.clock.now().plus_millis(7)));
    t.clock.advance(7);
    assert_eq!(t.store.fire_due(), Ok(Timestamp::NEVER));
    let (lease, tried) = try_again().await;
    assert_eq!(tried, Ok(TriedAgain::Ends));
    let never = FailedAttempt { wish: Some(RetryWish::Never), ..failure(9) };
    assert_eq!(t.store.try_again(lease, &never, &metered("t")).await, Ok(TriedAgain::Ends));
    assert_eq!(t.store.finish(lease, Outcome::Failed("end".into())).await, Ok(Fenced::Applied));
    let record = t.record("a", id).await.unwrap();
    assert!(!record.is_exhausted, "the handler did not want another attempt");
}

async fn the_read_position_only_grows(t: Fixture) {
    let id = t.submit("a").await;
    let lease = t.claim("a").await.lease;
    let _ = t.store.append_chunks(lease, vec![chunk("1"), chunk("2"), chunk("3")]).await.unwrap();
    t.flush().await;
    for (next, expected) in [(2, 2), (1, 2), (3, 3), (0, 3), (99, 3)] {
        t.store.mark_delivered(id, stream_position(1, next)).await.unwrap();
        assert_eq!(t.record("a", id).await.unwrap().chunks_delivered, expected);
    }
    assert_eq!(t.store.release(lease, ReleaseCause::Stopped).await, Ok(Fenced::Applied));
    assert_eq!(t.record("a", id).await.unwrap().chunks_delivered, 0);
}

async fn each_attempt_has_a_read_position_of_its_own(t: Fixture) {
    let a = endpoint("a");
    let id = t.submit("a").await;
    let attempt = async || t.record("a", id).await.unwrap().attempt;
    assert_eq!(attempt().await, Claim(1), "that of the first attempt, before it begins");
    for number in 1..=3 {
        let lease = t.claim("a").await.lease;
        let _ = t.store.append_chunks(lease, vec![chunk("1"), chunk("2")]).await.unwrap();
        let _ = t.store.finish(lease, Outcome::Failed("x".into())).await.unwrap();
        let record = t.record("a", id).await.unwrap();
        assert_eq!((record.attempt, record.chunks_delivered), (Claim(number), 0));
        assert_eq!(t.store.chunks(id, 0, 99, 99).await.unwrap().end(), stream_position(number, 2));
        for other in [0, number - 1, number + 1, u32::MAX] {
            t.store.mark_delivered(id, stream_position(other, 2)).await.unwrap();
            assert_eq!(t.record("a", id).await.unwrap().chunks_delivered, 0, "{other}");
        }
        t.store.mark_delivered(id, stream_position(number, 1)).await.unwrap();
        assert_eq!(t.record("a", id).await.unwrap().chunks_delivered, 1);
        assert_eq!(t.store.retry(&a, id, None).await, Ok(RetryAnswer::Queued));
        assert_eq!(attempt().await, Claim(number + 1), "that of the next attempt, while it waits");
        assert_eq!(
            t.store.chunks(id, 0, 99, 99).await.unwrap().end(),
            stream_position(number + 1, 0)
        );
    }
    assert_eq!(t.store.cancel(&a, id).await, Ok(Some(JobStatus::Cancelled)));
    assert_eq!(attempt().await, Claim(4), "a cancel does not change it");
}

async fn a_wait_begins_when_the_job_is_queued_again(t: Fixture) {
    let a = endpoint("a");
    let delay = async |id| {
        t.flush().await;
        let record = t.record("a", id).await.unwrap();
        assert_eq!(record.created_at, START);
        record.delay_ms(t.store.now())
    };
    let id = t.submit("a").await;
    t.clock.advance(100);
    let lease = t.claim("a").await.lease;
    assert_eq!(delay(id).await, 100);
    t.clock.advance(1_000);
    assert_eq!(t.store.finish(lease, Outcome::Failed("no".into())).await, Ok(Fenced::Applied));
    t.clock.advance(5_000);
    assert_eq!(delay(id).await, 100, "of the attempt that has ended");
    assert_eq!(t.store.retry(&a, id, None).await, Ok(RetryAnswer::Queued));
    assert_eq!(delay(id).await, 0);
    t.clock.advance(70);
    assert_eq!(delay(id).await, 70);
    let lease = t.claim("a").await.lease;
    t.clock.advance(1_000);
    assert_eq!(delay(id).await, 70);
    // Released, as in a drain.
    assert_eq!(t.store.release(lease, ReleaseCause::Stopped).await, Ok(Fenced::Applied));
    t.clock.advance(30);
    assert_eq!(delay(id).await, 30);
    t.store.cancel(&a, id).await.unwrap();
    t.clock.advance(1_000);
    assert_eq!(delay(id).await, 30);
}

async fn demand_counts_from_when_its_first_job_was_queued(t: Fixture) {
    let a = endpoint("a");
    let id = t.submit("a").await;
    let low = t.submit_job(low_priority(job("a"))).await;
    let demand = t.store.demand(&a).await.unwrap();
    assert_eq!((demand.jobs, demand.claimable, demand.since), (1, 2, Some(START)));
    let lease = t.claim("a").await.lease;
    assert_eq!(lease.job, id);
    t.clock.advance(60_000);
    let demand = t.store.demand(&a).await.unwrap();
    assert_eq!((demand.jobs, demand.claimable, demand.since), (0, 1, None));
    assert_eq!(t.store.release(lease, ReleaseCause::Stopped).await, Ok(Fenced::Applied));
    let demand = t.store.demand(&a).await.unwrap();
    assert_eq!((demand.jobs, demand.claimable), (1, 2));
    assert_eq!(demand.since, Some(START.plus_millis(60_000)));
    t.store.cancel(&a, low).await.unwrap();
    assert_eq!(t.store.demand(&a).await.unwrap().claimable, 1);
}

fn failed_with(output: &str) -> Outcome {
    Outcome::FailedWith { error: "no".to_owned(), output: json(output) }
}

async fn a_failed_attempt_leaves_its_own_output_and_no_other(t: Fixture) {
    let a = endpoint("a");
    let id = t.submit("a").await;
    let attempt = async |outcome: Outcome| {
        let lease = t.claim("a").await.lease;
        assert_eq!(t.store.output(id).await, Ok(None), "of a running job");
        assert_eq!(t.store.finish(lease, outcome).await, Ok(Fenced::Applied));
        t.store.output(id).await.unwrap()
    };
    let retry = async || {
        assert_eq!(t.store.retry(&a, id, None).await, Ok(RetryAnswer::Queued));
        assert_eq!(t.store.output(id).await, Ok(None), "of a job that waits");
    };
    let part = r#"{"z":9007199254740993}"#;
    assert_eq!(attempt(failed_with(part)).await, Some(json(part)));
    assert_eq!(t.record("a", id).await.unwrap().error.as_deref(), Some("no"));
    retry().await;
    assert_eq!(attempt(Outcome::Failed("no".into())).await, None);
    retry().await;
    assert_eq!(attempt(failed_with("[1]")).await, Some(json("[1]")));
    retry().await;
    let lease = t.claim("a").await.lease;
    assert_eq!(t.store.append_chunks(lease, vec![chunk("4")]).await, Ok(Fenced::Applied));
    assert_eq!(t.store.finish(lease, Outcome::Failed("no".into())).await, Ok(Fenced::Applied));
    assert_eq!(t.store.output(id).await, Ok(None), "of an attempt with a chunk");
    retry().await;
    assert_eq!(attempt(failed_with("null")).await, None, "absent, never null");
    retry().await;
    let largest = format!("\"{}\"", "x".repeat(PARTIAL_OUTPUT_BYTES_MAX - 2));
    assert_eq!(attempt(failed_with(&largest)).await, Some(json(&largest)));
    retry().await;
    let larger = format!("[{largest}]");
    assert_eq!(attempt(failed_with(&larger)).await, None, "left out");
    retry().await;
    assert_eq!(attempt(failed_with("[2]")).await, Some(json("[2]")));
    retry().await;
    assert_eq!(attempt(Outcome::TimedOut).await, None);
    retry().await;
    assert_eq!(attempt(failed_with("[3]")).await, Some(json("[3]")));
    retry().await;
    assert_eq!(attempt(Outcome::Completed(json("null"))).await, Some(json("null")));
}

/// A store on a disk that can end as by a kill, or in order.
struct Disk {
    clock: Arc<ManualClock>,
    settings: fn() -> Settings,
    store: Option<Store>,
    /// Dropped last: the store may still write to it.
    dir: TempDir,
}

impl Disk {
    fn new(settings: fn() -> Settings) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let mut disk = Self { dir: tempfile::tempdir().unwrap(), clock, settings, store: None };
        disk.open();
        disk
    }

    fn open(&mut self) {
        self.store = None;
        let signals = Arc::new(Signals::default());
        let (store, _) = open_with((self.settings)(), self.dir.path(), &self.clock, &signals);
        self.store = Some(store);
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    async fn record(&self, id: JobId) -> JobRecord {
        *self.store().job(&endpoint("a"), id).await.unwrap().unwrap()
    }

    /// Claims the next job and lets it fail after a second.
    async fn fail(&self) {
        let claimed = self.store().claim_each(&endpoint("a"), &[worker("w")]).await.unwrap();
        self.clock.advance(1_000);
        let outcome = Outcome::Failed("no".into());
        assert_eq!(self.store().finish(claimed[0].lease, outcome).await, Ok(Fenced::Applied));
    }

    async fn retry(&self, id: JobId) {
        assert_eq!(self.store().retry(&endpoint("a"), id, None).await, Ok(RetryAnswer::Queued));
    }
}

#[tokio::test]
async fn the_time_survives_a_kill_wherever_it_is_kept() {
    // With the second settings everything is soon checkpointed.
    for settings in [settings, with_small_segments] {
        let mut disk = Disk::new(settings);
        let id = submit(disk.store(), job("a")).await;
        disk.fail().await;
        disk.clock.advance(5_000);
        disk.retry(id).await;
        disk.clock.advance(40);
        disk.open();
        assert_eq!(disk.record(id).await.delay_ms(disk.store().now()), 40);
        disk.fail().await;
        for _ in 0..3 {
            let record = disk.record(id).await;
            assert_eq!(
                (record.status, record.delay_ms(disk.store().now())),
                (JobStatus::Failed, 40)
            );
            assert_eq!(record.execution_ms(disk.store().now()), 1_000);
            // More batches, so that segments of the journal are checkpointed.
            for _ in 0..20 {
                submit(disk.store(), job("b")).await;
            }
            disk.open();
        }
        // A crash queues a running job again.
        disk.retry(id).await;
        disk.store().claim_each(&endpoint("a"), &[worker("w")]).await.unwrap();
        disk.store().write_catalog(Vec::new()).await.unwrap();
        disk.clock.advance(9_000);
        disk.open();
        disk.clock.advance(7);
        let record = disk.record(id).await;
        assert_eq!((record.status, record.delay_ms(disk.store().now())), (JobStatus::InQueue, 7));
        for _ in 0..3 {
            let past = disk.record(id).await.past_attempts;
            let expected = vec![
                ([0, 0, 1_000], RequeueCause::Failed),
                ([6_000, 6_040, 7_040], RequeueCause::Failed),
                ([7_040, 7_040, 16_040], RequeueCause::HostLost),
            ];
            assert_eq!(times(&past), expected);
            for _ in 0..20 {
                submit(disk.store(), job("b")).await;
            }
            disk.open();
        }
    }
}

#[tokio::test]
async fn a_partial_output_survives_a_kill_and_is_deleted_with_its_job() {
    for settings in [settings, with_small_segments] {
        let mut disk = Disk::new(settings);
        let a = endpoint("a");
        let id = submit(disk.store(), job("a")).await;
        for (outcome, output) in [
            (failed_with("[1]"), Some(json("[1]"))),
            (Outcome::Failed("no".into()), None),
            (failed_with("[2]"), Some(json("[2]"))),
        ] {
            let claimed = disk.store().claim_each(&a, &[worker("w")]).await.unwrap();
            assert_eq!(disk.store().finish(claimed[0].lease, outcome).await, Ok(Fenced::Applied));
            for _ in 0..3 {
                for _ in 0..10 {
                    submit(disk.store(), job("b")).await;
                }
                disk.open();
                assert_eq!(disk.store().output(id).await.unwrap(), output);
            }
            disk.retry(id).await;
            disk.open();
            assert_eq!(disk.store().output(id).await.unwrap(), None);
        }
        assert_eq!(disk.store().purge(&a).await, Ok(1));
        disk.store().delete_endpoint(&endpoint("b")).await.unwrap();
        disk.store().close().await;
        disk.store = None;
        let db = rusqlite::Connection::open(disk.dir.path().join("store.db")).unwrap();
        let rows = "SELECT count(*) FROM (SELECT seq FROM output UNION SELECT seq FROM kept) \
             WHERE seq NOT IN (SELECT seq FROM job)";
        let orphans: i64 = db.query_row(rows, (), |row| row.get(0)).unwrap();
        assert_eq!(orphans, 0, "an output is deleted with its job");
    }
}
