//! The state of a store that ended without being closed, and the cost of commits.
//!
//! Dropping a store is like killing its process between two transactions: the write-ahead log
//! stays, and the file is not marked as clean.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use crate::support::{
    START, TTL_MS, all_usage, chunk, endpoint, job, json, low_priority, metered, open, settings,
    submit, with_ttl, worker,
};
use gristmill_core::billing::usage::UsageStore as _;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogStore, Image};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::id::{JobId, OwnerId};
use gristmill_core::job::idempotency::{Idempotency, KEY_LIFETIME_MS};
use gristmill_core::job::listing::{Cursor, JobQuery};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Lease, NewJob, Outcome, S3Config};
use gristmill_core::job::retention::{ChosenRetention, Retention};
use gristmill_core::job::state::{Claim, JobStatus};
use gristmill_core::limits::RETENTION_ASYNC_MS;
use gristmill_core::signals::Signals;
use gristmill_core::store::{Fenced, JobStore, RetryAnswer, SubmitAnswer};
use gristmill_core::time::{Clock as _, ManualClock, Timestamp};
use gristmill_store::{OpenError, Recovery, Settings, Store};
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::task::JoinSet;

/// A data directory with a store that can be ended and opened again.
struct Disk {
    clock: Arc<ManualClock>,
    signals: Arc<Signals>,
    store: Option<Store>,
    /// Dropped last: the store may still write to it.
    dir: TempDir,
}

impl Disk {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let signals = Arc::new(Signals::default());
        let mut disk = Self { dir: tempfile::tempdir().unwrap(), clock, signals, store: None };
        let recovery = disk.reopen();
        assert_eq!(recovery, Recovery { was_clean: true, ..Recovery::default() });
        disk
    }

    fn store(&self) -> &Store {
        self.store.as_ref().unwrap()
    }

    /// Ends the store without closing it, and opens it again.
    fn reopen(&mut self) -> Recovery {
        self.store = None;
        let (store, recovery) = open(self.dir.path(), &self.clock, &self.signals);
        self.store = Some(store);
        recovery
    }

    async fn submit(&self, job: NewJob) -> JobId {
        submit(self.store(), job).await
    }

    /// Claims the next job, and waits until the claim is on disk.
    async fn claim(&self) -> Lease {
        let claimed = self.store().claim_each(&endpoint("a"), &[worker("w")]).await.unwrap();
        self.flush().await;
        claimed[0].lease
    }

    async fn flush(&self) {
        self.store().write_catalog(Vec::new()).await.unwrap();
    }

    async fn status(&self, id: JobId) -> Option<JobStatus> {
        Some(self.store().job(&endpoint("a"), id).await.unwrap()?.status)
    }
}

#[tokio::test]
async fn acknowledged_changes_survive() {
    let mut disk = Disk::new();
    let shard = disk.store().shard();
    let a = endpoint("a");
    let s3_config = Some(Arc::new(S3Config { access_id: "id".into(), ..S3Config::default() }));
    let webhook = Some("https://example.com/hook".to_owned());
    let input = json(r#"{"n":9007199254740993}"#);
    let new = NewJob { input: input.clone(), s3_config: s3_config.clone(), webhook, ..job("a") };
    let done = disk.submit(new.clone()).await;
    let lease = disk.claim().await;
    let chunks = vec![chunk("1"), chunk("2")];
    assert_eq!(disk.store().append_chunks(lease, chunks.clone()).await, Ok(Fenced::Applied));
    disk.clock.advance(5);
    let finished = disk.store().finish(lease, Outcome::Completed(json("[8]"))).await;
    assert_eq!(finished, Ok(Fenced::Applied));
    let failed = disk.submit(job("a")).await;
    let lease = disk.claim().await;
    let _ = disk.store().finish(lease, Outcome::Failed("no".into())).await.unwrap();
    let cancelled = disk.submit(job("a")).await;
    disk.store().cancel(&a, cancelled).await.unwrap();
    let purged = disk.submit(job("a")).await;
    assert_eq!(disk.store().purge(&a).await, Ok(1));
    let waiting = disk.submit(NewJob { id: job("a").id, ..new }).await;
    disk.store().shorten_ttl(&a, waiting, 60_000).await.unwrap();

    let mut before = Vec::new();
    for id in [done, failed, cancelled, purged, waiting] {
        before.push(format!("{:?}", disk.store().job(&a, id).await.unwrap()));
    }
    let counts = disk.store().counts(&a).await.unwrap();
    let recovery = disk.reopen();
    assert_eq!(recovery, Recovery { waiting: 1, ..Recovery::default() });
    assert_eq!(disk.store().shard(), shard);
    let mut after = Vec::new();
    for id in [done, failed, cancelled, purged, waiting] {
        after.push(format!("{:?}", disk.store().job(&a, id).await.unwrap()));
    }
    assert_eq!(after, before);
    assert_eq!(disk.store().counts(&a).await.unwrap(), counts);
    assert_eq!(disk.store().output(done).await.unwrap(), Some(json("[8]")));
    assert_eq!(disk.store().chunks(done, 0, 99, 99).await.unwrap().chunks, chunks);
    assert_eq!(disk.store().input(waiting).await.unwrap(), Some(input.clone()));
    let claimed = disk.store().claim_each(&a, &[worker("w")]).await.unwrap();
    assert_eq!((&claimed[0].input, &claimed[0].s3_config), (&input, &s3_config));
}

/// The note about the ttl is in the journal, and in the row of a job that was never claimed.
#[tokio::test]
async fn a_shortened_ttl_stays_shortened_after_a_restart() {
    let a = endpoint("a");
    let chosen = ChosenRetention { completed_ms: Some(3_600_000), ..ChosenRetention::NONE };
    for is_closed in [false, true] {
        let mut disk = Disk::new();
        let retention = Retention { chosen, ..job("a").retention };
        let id = disk.submit(NewJob { retention, ..job("a") }).await;
        disk.store().shorten_ttl(&a, id, 20_000).await.unwrap();
        let ends_at = disk.store().job(&a, id).await.unwrap().unwrap().purge_at;
        if is_closed {
            disk.store().close().await;
        }
        disk.reopen();
        let lease = disk.claim().await;
        let finished = disk.store().finish(lease, Outcome::Completed(json("1"))).await;
        assert_eq!(finished, Ok(Fenced::Applied));
        let record = disk.store().job(&a, id).await.unwrap().unwrap();
        assert_eq!((record.status, record.purge_at), (JobStatus::Completed, ends_at));
    }
}

#[tokio::test]
async fn a_lease_of_an_earlier_start_is_stale() {
    let mut disk = Disk::new();
    let mut lost: Option<Lease> = None;
    for start in 0..4 {
        let id = disk.submit(job("a")).await;
        let lease = disk.claim().await;
        if let Some(lost) = lost {
            assert!(lease.epoch > lost.epoch, "{lease:?} {lost:?}");
            // The crash may have forgotten the claim, so that the next one has its number.
            let of_before = Lease { epoch: lost.epoch, ..lease };
            assert_eq!(disk.store().holds_lease(of_before).await, Ok(false));
            let late = disk.store().finish(of_before, Outcome::Completed(json("1"))).await;
            assert_eq!(late, Ok(Fenced::Stale));
        }
        let on_time = disk.store().finish(lease, Outcome::Completed(json("2"))).await;
        assert_eq!((lease.job, on_time), (id, Ok(Fenced::Applied)));
        lost = Some(lease);
        if start % 2 == 0 {
            disk.store().close().await;
        }
        disk.reopen();
    }
}

#[tokio::test]
async fn interrupted_jobs_are_requeued_and_fail_after_the_last_crash() {
    let mut disk = Disk::new();
    let a = endpoint("a");
    let id = disk.submit(job("a")).await;
    let later = disk.submit(job("a")).await;
    for crash in 1..=2 {
        let lease = disk.claim().await;
        assert_eq!((lease.job, lease.claim), (id, Claim(crash)), "it keeps its place");
        let _ = disk.store().append_chunks(lease, vec![chunk("1")]).await.unwrap();
        disk.flush().await;
        let expected = Recovery { waiting: 2, requeued: 1, ..Recovery::default() };
        assert_eq!(disk.reopen(), expected);
        let record = disk.store().job(&a, id).await.unwrap().unwrap();
        assert_eq!((record.status, record.retries), (JobStatus::InQueue, crash));
        assert_eq!((record.started_at, record.worker, record.chunk_count), (None, None, 0));
        assert!(disk.store().chunks(id, 0, 99, 99).await.unwrap().chunks.is_empty());
        let late = disk.store().finish(lease, Outcome::Completed(json("1"))).await;
        assert_eq!(late, Ok(Fenced::Stale), "a result from before the crash is refused");
    }
    let lease = disk.claim().await;
    let _ = disk.store().append_chunks(lease, vec![chunk("1"), chunk("2")]).await.unwrap();
    disk.flush().await;
    disk.clock.advance(50);
    let expected = Recovery { waiting: 1, given_up: 1, ..Recovery::default() };
    assert_eq!(disk.reopen(), expected);
    let record = disk.store().job(&a, id).await.unwrap().unwrap();
    assert_eq!((record.status, record.retries), (JobStatus::Failed, 2));
    assert_eq!(
        record.error.as_deref(),
        Some("the host died while the job ran, 3 times (--max-crashes)")
    );
    assert_eq!(record.purge_at, START.plus_millis(50 + RETENTION_ASYNC_MS));
    assert_eq!(record.chunk_count, 2, "what it emitted last stays readable");
    assert_eq!(disk.store().chunks(id, 1, 99, 99).await.unwrap().chunks, [chunk("2")]);
    let counts = disk.store().counts(&a).await.unwrap();
    assert_eq!((counts.in_queue, counts.failed, counts.retried), (1, 1, 2));

    // Everything is on disk already, and a retry starts from the beginning.
    assert_eq!(disk.reopen(), Recovery { waiting: 1, ..Recovery::default() });
    assert_eq!(disk.store().retry(&a, id, None).await, Ok(RetryAnswer::Queued));
    assert_eq!(disk.claim().await.job, later, "a retry goes to the end of the queue");
    let lease = disk.claim().await;
    assert_eq!((lease.job, lease.claim), (id, Claim(4)));
    assert!(disk.store().chunks(id, 0, 99, 99).await.unwrap().chunks.is_empty());
    let _ = disk.store().append_chunks(lease, vec![chunk("3")]).await.unwrap();
    disk.flush().await;
    assert_eq!(disk.reopen().requeued, 2);
}

#[tokio::test]
async fn the_queue_keeps_its_order() {
    let mut disk = Disk::new();
    let mut jobs = Vec::new();
    for n in 0..6 {
        let new = if n % 3 == 0 { low_priority(job("a")) } else { job("a") };
        jobs.push(disk.submit(new).await);
    }
    disk.reopen();
    let workers: Vec<_> = (0..6).map(|n| worker(&n.to_string())).collect();
    let claimed = disk.store().claim_each(&endpoint("a"), &workers).await.unwrap();
    let order: Vec<_> = claimed.iter().map(|claimed| claimed.lease.job).collect();
    assert_eq!(order, [jobs[1], jobs[2], jobs[4], jobs[5], jobs[0], jobs[3]]);
}

#[tokio::test]
async fn time_passes_while_the_host_is_down() {
    let mut disk = Disk::new();
    let waiting = disk.submit(with_ttl(job("a"), 10_000)).await;
    let done = disk.submit(job("a")).await;
    let running = disk.submit(with_ttl(job("a"), 10_000)).await;
    disk.store().cancel(&endpoint("a"), done).await.unwrap();
    disk.claim().await;
    disk.claim().await;
    let kept = disk.submit(job("a")).await;
    disk.store = None;
    disk.clock.advance(RETENTION_ASYNC_MS);
    let expected = Recovery { waiting: 1, expired: 3, ..Recovery::default() };
    assert_eq!(disk.reopen(), expected);
    for id in [waiting, done, running] {
        assert_eq!(disk.status(id).await, None);
    }
    assert_eq!(disk.status(kept).await, Some(JobStatus::InQueue));
    assert_eq!(disk.reopen(), Recovery { waiting: 1, ..Recovery::default() });
}

#[tokio::test]
async fn a_closed_store_is_clean() {
    let mut disk = Disk::new();
    let id = disk.submit(job("a")).await;
    disk.store().close().await;
    let expected = Recovery { was_clean: true, waiting: 1, ..Recovery::default() };
    assert_eq!(disk.reopen(), expected);
    assert_eq!(disk.status(id).await, Some(JobStatus::InQueue));
    assert!(!disk.reopen().was_clean);
}

#[tokio::test]
async fn closing_writes_every_requested_change() {
    let mut disk = Disk::new();
    let store = Arc::new(disk.store.take().unwrap());
    let mut submits = JoinSet::new();
    let mut ids = Vec::new();
    for _ in 0..200 {
        let (store, new) = (store.clone(), job("a"));
        ids.push(new.id);
        submits.spawn(async move { store.submit(new).await });
    }
    tokio::task::yield_now().await;
    store.close().await;
    let answers = submits.join_all().await;
    let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
    drop(store);
    let recovery = disk.reopen();
    assert!(recovery.was_clean);
    assert_eq!(recovery.waiting, accepted as u64, "acknowledged and nothing else");
}

#[tokio::test]
async fn a_directory_has_one_store() {
    let disk = Disk::new();
    let second = Store::open(disk.dir.path(), disk.clock.clone(), disk.signals.clone(), settings());
    let error = second.expect_err("the directory is in use");
    assert!(matches!(error, OpenError::InUse { .. }));
    assert!(error.to_string().ends_with("is in use by another process"), "{error}");
    disk.store().close().await;
    open(disk.dir.path(), &disk.clock, &disk.signals);
}

#[test]
fn foreign_files_and_versions_are_refused_and_left_alone() {
    let clock = Arc::new(ManualClock::new(START));
    let open = |dir: &TempDir| {
        let signals = Arc::new(Signals::default());
        Store::open(dir.path(), clock.clone(), signals, settings()).err()
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("store.db");
    let text = "not a database, but long enough to have a header".repeat(40);
    std::fs::write(&file, &text).unwrap();
    assert!(matches!(open(&dir), Some(OpenError::NotAStore { .. })));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);

    let dir = tempfile::tempdir().unwrap();
    let db = rusqlite::Connection::open(dir.path().join("store.db")).unwrap();
    db.execute_batch("CREATE TABLE other (x)").unwrap();
    drop(db);
    assert!(matches!(open(&dir), Some(OpenError::NotAStore { .. })));

    let dir = tempfile::tempdir().unwrap();
    assert!(open(&dir).is_none());
    let db = rusqlite::Connection::open(dir.path().join("store.db")).unwrap();
    db.pragma_update(None, "user_version", 99).unwrap();
    drop(db);
    let error = open(&dir).unwrap();
    assert!(
        matches!(&error, OpenError::UnknownSchema { found: 99, reads, .. } if *reads == (1..=1)),
        "{error}"
    );
}

/// Writes `count` jobs as fast as the store accepts them.
async fn submit_many(store: &Arc<Store>, count: usize, submitters: usize) {
    let mut tasks = JoinSet::new();
    for _ in 0..submitters {
        let store = store.clone();
        tasks.spawn(async move {
            for _ in 0..count / submitters {
                submit(&*store, job("a")).await;
            }
        });
    }
    tasks.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_submitters_share_their_commits() {
    let disk = Disk::new();
    let settings = Settings::default();
    let dir = disk.dir.path().join("own");
    let (store, _) = Store::open(&dir, disk.clock.clone(), disk.signals.clone(), settings).unwrap();
    let store = Arc::new(store);
    submit_many(&store, 6_400, 64).await;
    let stats = store.stats();
    assert_eq!((stats.jobs, stats.operations), (6_400, 6_400));
    let per_job = stats.commits as f64 / stats.jobs as f64;
    println!("64 submitters: {per_job:.3} commits for each job");
    assert!(per_job < 0.5, "{per_job}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_with_many_jobs_is_quick() {
    const JOBS: usize = 100_000;
    let clock = Arc::new(ManualClock::new(START));
    let signals = Arc::new(Signals::default());
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let settings = Settings { queue_jobs_max: JOBS, ..Settings::default() };
        let started = Instant::now();
        let (store, recovery) =
            Store::open(dir.path(), clock.clone(), signals.clone(), settings).unwrap();
        (store, recovery, started.elapsed())
    };
    let (store, ..) = open();
    let store = Arc::new(store);
    submit_many(&store, JOBS, 500).await;
    drop(store);
    let (store, recovery, unclean) = open();
    assert_eq!((recovery.waiting, recovery.was_clean), (JOBS as u64, false));
    store.close().await;
    let (store, recovery, clean) = open();
    assert_eq!((recovery.waiting, recovery.was_clean), (JOBS as u64, true));
    println!("start with {JOBS} jobs: {clean:.2?}, after a crash {unclean:.2?}");

    // A purge of all of them, while other calls continue.
    let started = Instant::now();
    let purge = async {
        let removed = store.purge(&endpoint("a")).await.unwrap();
        (removed, started.elapsed())
    };
    let submit = async {
        submit(&store, job("b")).await;
        submit(&store, job("a")).await;
        started.elapsed()
    };
    let ((removed, purged), submitted) = tokio::join!(purge, submit);
    println!("purge of {removed} jobs: {purged:.2?}; two submissions meanwhile: {submitted:.2?}");
    assert_eq!(removed, JOBS as u64);
    assert_eq!(store.counts(&endpoint("a")).await.unwrap().in_queue, 1);
    drop(store);

    // All jobs are deleted if the host was stopped for too long.
    clock.advance(TTL_MS);
    let (store, recovery, _) = open();
    assert_eq!((recovery.waiting, recovery.expired), (0, 2));
    assert_eq!(store.stats().jobs, 0);
}

/// A segment is written from front to back, so a copy at any moment equals the state after a crash
/// at that moment, including a half-written frame at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_copy_of_the_journal_has_the_changes_acknowledged_before() {
    let disk = Disk::new();
    let dir = disk.dir.path().join("own");
    let store = Arc::new(open(&dir, &disk.clock, &disk.signals).0);
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let mut lives = JoinSet::new();
    for n in 0..16 {
        let (store, acknowledged) = (store.clone(), acknowledged.clone());
        lives.spawn(async move {
            for _ in 0..40 {
                let new = job("a");
                let id = new.id;
                submit(&*store, new).await;
                acknowledged.lock().push((id, false));
                let claimed =
                    store.claim_each(&endpoint("a"), &[worker(&n.to_string())]).await.unwrap();
                let lease = claimed[0].lease;
                let _ = store.append_chunks(lease, vec![chunk("1"), chunk("2")]).await.unwrap();
                let _ = store.finish(lease, Outcome::Completed(json("[1]"))).await.unwrap();
                acknowledged.lock().push((lease.job, true));
            }
        });
    }
    for round in 0..8 {
        while acknowledged.lock().len() < round * 150 {
            tokio::task::yield_now().await;
        }
        let before = acknowledged.lock().clone();
        let copy = disk.dir.path().join(format!("copy{round}"));
        std::fs::create_dir(&copy).unwrap();
        std::fs::create_dir(copy.join("journal")).unwrap();
        for file in ["journal/000001.seg", "store.db", "store.db-wal", "secrets.key"] {
            std::fs::copy(dir.join(file), copy.join(file)).unwrap();
        }
        let (copy, recovery) = open(&copy, &disk.clock, &disk.signals);
        assert!(!recovery.was_clean);
        let mut completed = 0;
        for (id, is_finished) in before {
            let record = copy.job(&endpoint("a"), id).await.unwrap().expect("it was acknowledged");
            assert_eq!(record.status == JobStatus::InQueue, record.chunk_count == 0);
            if is_finished {
                completed += 1;
                assert_eq!(record.status, JobStatus::Completed);
                assert_eq!(copy.output(id).await.unwrap(), Some(json("[1]")));
                assert_eq!(copy.chunks(id, 0, 99, 99).await.unwrap().chunks.len(), 2);
            }
        }
        let counts = copy.counts(&endpoint("a")).await.unwrap();
        assert!(counts.completed >= completed);
        assert_eq!(counts.completed + counts.in_queue, copy.stats().jobs);
    }
    lives.join_all().await;
}

#[tokio::test]
async fn the_log_stays_bounded() {
    let disk = Disk::new();
    let input = json(&format!("\"{}\"", "x".repeat(4 << 20)));
    let log = disk.dir.path().join("store.db-wal");
    for _ in 0..20 {
        disk.submit(NewJob { input: input.clone(), ..job("a") }).await;
        // 32 MiB, the size of one batch, and the overhead of each page.
        assert!(std::fs::metadata(&log).unwrap().len() < 48 << 20);
    }
}

#[tokio::test]
async fn an_endpoint_in_deletion_stays_deleted_after_a_restart() {
    let mut disk = Disk::new();
    disk.submit(job("a")).await;
    disk.store().close().await;
    disk.store = None;
    // A crash between the slices of a deletion, after the name was used again.
    let db = rusqlite::Connection::open(disk.dir.path().join("store.db")).unwrap();
    db.execute("INSERT INTO endpoint VALUES (99, 'a', 5, 0, 0)", ()).unwrap();
    db.close().unwrap();
    disk.reopen();
    while disk.store().stats().jobs > 0 {
        tokio::task::yield_now().await;
    }
    let counts = disk.store().counts(&endpoint("a")).await.unwrap();
    assert_eq!((counts.in_queue, counts.completed), (0, 5));
    disk.submit(job("a")).await;
    disk.claim().await;
}

#[tokio::test]
async fn inputs_beyond_the_cache_come_from_the_disk() {
    let clock = Arc::new(ManualClock::new(START));
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { payload_cache_bytes: 0, chunk_cache_bytes: 0, ..settings() };
    let (store, _) =
        Store::open(dir.path(), clock, Arc::new(Signals::default()), settings).unwrap();
    let inputs: Vec<_> = (0..20).map(|n| json(&format!("[{n}]"))).collect();
    for input in &inputs {
        submit(&store, NewJob { input: input.clone(), ..job("a") }).await;
    }
    let workers: Vec<_> = (0..20).map(|n| worker(&n.to_string())).collect();
    let claimed = store.claim_each(&endpoint("a"), &workers).await.unwrap();
    let read: Vec<Json> = claimed.iter().map(|claimed| claimed.input.clone()).collect();
    assert_eq!(read, inputs);
    for claimed in claimed {
        let _ = store.append_chunks(claimed.lease, vec![chunk("1"), chunk("2")]).await.unwrap();
        let _ = store.finish(claimed.lease, Outcome::Completed(claimed.input)).await.unwrap();
        let id = claimed.lease.job;
        assert!(store.output(id).await.unwrap().is_some());
        assert_eq!(store.chunks(id, 1, 99, 99).await.unwrap().chunks, [chunk("2")]);
    }
}

#[tokio::test]
async fn a_repeated_submission_is_known_after_a_crash_too() {
    let mut disk = Disk::new();
    let idempotency = Some(Idempotency { key: [1; 16], content: [2; 16] });
    let with_key = || NewJob { idempotency, ..job("a") };
    let first = disk.submit(with_key()).await;
    disk.store().purge(&endpoint("a")).await.unwrap();
    disk.reopen();
    assert_eq!(disk.store().submit(with_key()).await, Ok(SubmitAnswer::Repeated(first)));
    // The rows of the job are deleted, and their number is not used again.
    disk.submit(NewJob { idempotency: None, ..job("a") }).await;
    disk.reopen();
    disk.clock.advance(KEY_LIFETIME_MS);
    disk.store().expire().await.unwrap();
    disk.flush().await;
    disk.reopen();
    disk.submit(with_key()).await;
}

/// The content of all files of the data directory, except the key.
fn bytes_on_disk(dir: &Path) -> Vec<u8> {
    let files = [dir.to_owned(), dir.join("journal")];
    let files = files.iter().flat_map(|dir| std::fs::read_dir(dir).unwrap());
    let files = files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let files = files.filter(|path| path.file_name().unwrap() != "secrets.key");
    files.flat_map(|path| std::fs::read(path).unwrap()).collect()
}

#[tokio::test]
async fn secrets_are_not_on_disk_in_clear() {
    let mut disk = Disk::new();
    let access_secret = "wJalrXUtnFEMI-in-clear".to_owned();
    let s3_config =
        Some(Arc::new(S3Config { access_secret: access_secret.clone(), ..S3Config::default() }));
    disk.submit(NewJob { s3_config: s3_config.clone(), ..job("a") }).await;
    let entry = CatalogEntry::Image(Image {
        name: "image".to_owned(),
        tag: "tag-in-clear".to_owned(),
        digest: ComponentDigest::of(b"component"),
        manifest: None,
        owner: OwnerId::new("owner").unwrap(),
        updated_at: START,
    });
    disk.store().write_catalog(vec![CatalogChange::Put(entry.clone())]).await.unwrap();
    disk.reopen();
    let bytes = bytes_on_disk(disk.dir.path());
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("owner"), "the rows are there");
    assert!(!holds(&access_secret) && !holds("updated_at"));
    let claimed = disk.store().claim_each(&endpoint("a"), &[worker("w")]).await.unwrap();
    assert_eq!(claimed[0].s3_config, s3_config);
    assert_eq!(disk.store().load_catalog().await.unwrap(), [entry]);
}

#[tokio::test]
async fn a_store_opens_with_its_own_key_only() {
    let mut disk = Disk::new();
    disk.submit(job("a")).await;
    disk.store = None;
    let key = disk.dir.path().join("secrets.key");
    let kept = disk.dir.path().join("elsewhere");
    std::fs::rename(&key, &kept).unwrap();
    let open = |settings: Settings| {
        Store::open(disk.dir.path(), disk.clock.clone(), disk.signals.clone(), settings)
    };
    let refused = open(settings()).unwrap_err();
    assert!(matches!(refused, OpenError::SecretsKey { .. }), "{refused}");
    assert!(!key.exists(), "a new key would open nothing");
    std::fs::write(&key, "00".repeat(32)).unwrap();
    let refused = open(settings()).unwrap_err().to_string();
    assert!(refused.contains("not the key"), "{refused}");
    let (store, recovery) = open(Settings { secrets_key: Some(kept), ..settings() }).unwrap();
    assert_eq!(recovery.waiting, 1);
    drop(store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_shrinks_on_a_host_that_only_expires_jobs() {
    let disk = Disk::new();
    let input = json(&format!("\"{}\"", "x".repeat(4 << 20)));
    for _ in 0..10 {
        disk.submit(NewJob { input: input.clone(), ..job("a") }).await;
    }
    disk.store().purge(&endpoint("a")).await.unwrap();
    let files = ["store.db", "store.db-wal"].map(|name| disk.dir.path().join(name));
    let size = || files.iter().map(|file| std::fs::metadata(file).unwrap().len()).sum::<u64>();
    let started = Instant::now();
    while std::fs::metadata(&files[0]).unwrap().len() > 12 << 20 {
        assert!(started.elapsed().as_secs() < 60, "{} bytes", size());
        disk.store().expire().await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn keys_of_deleted_endpoints_leave_no_rows() {
    let mut disk = Disk::new();
    for round in 0..3 {
        let idempotency = Some(Idempotency { key: [round; 16], content: [0; 16] });
        disk.submit(NewJob { idempotency, ..job("a") }).await;
        disk.store().delete_endpoint(&endpoint("a")).await.unwrap();
        disk.submit(job("b")).await;
        disk.reopen();
    }
    disk.flush().await;
    disk.store = None;
    let db = rusqlite::Connection::open(disk.dir.path().join("store.db")).unwrap();
    let rows: i64 = db.query_row("SELECT count(*) FROM repeat", (), |row| row.get(0)).unwrap();
    assert_eq!(rows, 0);
}

/// A result that is being written when the store ends is present together with its bill, or neither
/// is; changes of the clock have no influence.
#[tokio::test]
async fn exactly_the_stored_results_are_billed() {
    const HOUR_MS: u64 = 3_600_000;
    let mut disk = Disk::new();
    let mut lost = 0;
    for round in 0..30 {
        for _ in 0..10 {
            disk.submit(job("a")).await;
        }
        let workers: Vec<_> = (0..10).map(|n| worker(&n.to_string())).collect();
        for claimed in disk.store().claim_each(&endpoint("a"), &workers).await.unwrap() {
            let outcome = Outcome::Completed(json("1"));
            let finished = disk.store().finish_deferred(claimed.lease, outcome, metered("t")).await;
            assert_eq!(finished, Ok(Fenced::Applied));
        }
        let at = disk.clock.now();
        match round % 5 {
            0 => disk.flush().await,
            1 => disk.clock.advance(HOUR_MS),
            2 => {
                disk.clock =
                    Arc::new(ManualClock::new(Timestamp::from_millis(at.as_millis() - HOUR_MS)))
            }
            3 => assert!(!disk.store().usage(&all_usage()).await.unwrap().is_empty()),
            _ => {}
        }
        lost += disk.reopen().requeued;
        let completed = disk.store().counts(&endpoint("a")).await.unwrap().completed;
        let rows = disk.store().usage(&all_usage()).await.unwrap();
        assert_eq!(rows.iter().map(|row| row.sum.jobs).sum::<u64>(), completed, "{rows:?}");
        assert_eq!(rows.iter().map(|row| row.sum.fuel).sum::<u64>(), 1_000 * completed);
    }
    println!("{lost} results were lost on their way");
}

#[tokio::test]
async fn a_clock_that_jumped_before_a_start_deletes_nothing_until_it_is_accepted() {
    let dir = tempfile::tempdir().unwrap();
    let hour_ms = 3_600_000;
    let open_at = |now_ms: u64, clock_jump_max_ms| {
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(now_ms)));
        let settings = Settings { clock_jump_max_ms, ..settings() };
        Store::open(dir.path(), clock, Arc::default(), settings).map(|(store, _)| store)
    };
    let start_ms = START.as_millis();
    let store = open_at(start_ms, None).unwrap();
    let id = submit(&store, job("a")).await;
    drop(store);
    for guard in [Some(hour_ms), Some(TTL_MS)] {
        for (jump, way) in [(100 * TTL_MS, "ahead"), (TTL_MS + 1, "ahead")] {
            let refused = open_at(start_ms + jump, guard).map(drop).unwrap_err();
            assert!(matches!(refused, OpenError::ClockJumped { jobs: 1, .. }), "{refused}");
            assert!(refused.to_string().contains(way), "{refused}");
        }
    }
    let behind = open_at(start_ms - 2 * hour_ms, Some(hour_ms)).map(drop).unwrap_err();
    assert!(behind.to_string().contains("7200 s behind"), "{behind}");
    // No job would be deleted, or the clock is corrected, or it is accepted.
    let a = endpoint("a");
    for (now_ms, guard) in [
        (start_ms + 2 * hour_ms, Some(hour_ms)),
        (start_ms + hour_ms, Some(hour_ms)),
        (start_ms - 99 * hour_ms, None),
        (start_ms - 98 * hour_ms, Some(hour_ms)),
    ] {
        let store = open_at(now_ms, guard).unwrap();
        assert!(store.job(&a, id).await.unwrap().is_some(), "{now_ms}");
        store.close().await;
    }
    assert_eq!(open_at(start_ms + TTL_MS, None).unwrap().stats().jobs, 0);
}

#[tokio::test]
async fn a_cursor_shows_nothing_of_other_endpoints_and_holds_over_a_restart() {
    let mut disk = Disk::new();
    let mut jobs = vec![];
    for _ in 0..4 {
        jobs.insert(0, disk.submit(job("a")).await);
        for _ in 0..10 {
            disk.submit(job("b")).await;
        }
    }
    let list = async |disk: &Disk, after| {
        let query = JobQuery { count_max: 1, after, ..JobQuery::default() };
        let page = disk.store().list(&endpoint("a"), &query).await.unwrap();
        (page.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), page.next)
    };
    let (first, one) = list(&disk, None).await;
    let (second, two) = list(&disk, one).await;
    assert_eq!([first, second].concat(), jobs[..2]);
    let (Some(Cursor(one)), Some(Cursor(two))) = (one, two) else { panic!("{one:?} {two:?}") };
    assert!(one.abs_diff(two) > 1 << 32, "eleven jobs lie between {one} and {two}");
    disk.reopen();
    let (third, next) = list(&disk, Some(Cursor(two))).await;
    let (fourth, end) = list(&disk, next).await;
    assert_eq!(([third, fourth].concat(), end), (jobs[2..].to_vec(), None));
}
