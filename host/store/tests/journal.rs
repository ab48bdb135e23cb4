//! The journal and its checkpoints: nothing is lost or duplicated, damage is refused, and the disk
//! stays bounded.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    START, TTL_MS, chunk, endpoint, job, json, settings, submit, with_small_segments, worker,
};
use futures::FutureExt as _;
use gristmill_core::id::JobId;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Lease, NewJob, Outcome};
use gristmill_core::job::state::JobStatus;
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore;
use gristmill_core::time::ManualClock;
use gristmill_store::{OpenError, Settings, Store};
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::task::JoinSet;

/// A first poll of a read of small chunks is its last; large ones are read on a thread that may
/// block, so that the calling task waits meanwhile.
#[tokio::test]
async fn large_pages_of_chunks_are_read_apart_from_the_calling_task() {
    let disk = Disk::new(Settings { chunk_cache_bytes: 0, ..settings() });
    let store = disk.store();
    let large = format!("\"{}\"", "x".repeat(900 << 10));
    for (text, count, is_ready) in [("1", 9, true), (large.as_str(), 9, false)] {
        let id = submit(&*store, job("a")).await;
        let claimed = store.claim_each(&endpoint("a"), &[worker("w")]).await.unwrap();
        let chunks = vec![chunk(text); count];
        let _ = store.append_chunks(claimed[0].lease, chunks).await.unwrap();
        let _ = store.finish(claimed[0].lease, Outcome::Completed(json("null"))).await.unwrap();
        let mut read = store.chunks(id, 0, 8 << 20, 99);
        let first = read.as_mut().now_or_never();
        assert_eq!(first.is_some(), is_ready, "{} bytes", text.len());
        let page = match first {
            Some(page) => page,
            None => read.await,
        };
        assert!(page.unwrap().chunks.len() > 7);
    }
}

struct Disk {
    clock: Arc<ManualClock>,
    settings: Settings,
    store: Option<Arc<Store>>,
    /// Dropped last: the store may still write to it.
    dir: TempDir,
}

impl Disk {
    fn new(settings: Settings) -> Self {
        let (dir, clock) = (tempfile::tempdir().unwrap(), Arc::new(ManualClock::new(START)));
        let mut disk = Self { dir, clock, settings, store: None };
        disk.reopen();
        disk
    }

    fn open(&self) -> Result<Store, OpenError> {
        let signals = Arc::new(Signals::default());
        let settings = self.settings.clone();
        Ok(Store::open(self.dir.path(), self.clock.clone(), signals, settings)?.0)
    }

    /// Ends the store without closing it, and opens it again.
    fn reopen(&mut self) {
        self.store = None;
        self.store = Some(Arc::new(self.open().unwrap()));
    }

    fn store(&self) -> Arc<Store> {
        self.store.clone().unwrap()
    }

    async fn submit(&self, input: &Json) -> JobId {
        submit(&*self.store(), NewJob { input: input.clone(), ..job("a") }).await
    }

    async fn claim(&self) -> Lease {
        claim(&self.store()).await
    }

    async fn finish(&self, outcome: Outcome) -> JobId {
        let lease = self.claim().await;
        let _ = self.store().finish(lease, outcome).await.unwrap();
        lease.job
    }

    fn segments(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.dir.path().join("journal")).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }

    fn journal_bytes(&self) -> u64 {
        self.segments().iter().map(|file| fs::metadata(file).unwrap().len()).sum()
    }

    /// Number of rows of a table, while no store has the database open.
    fn rows(&mut self, table: &str) -> i64 {
        self.store = None;
        let db = rusqlite::Connection::open(self.dir.path().join("store.db")).unwrap();
        db.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get(0)).unwrap()
    }
}

async fn claim(store: &Store) -> Lease {
    store.claim(&endpoint("a"), &worker("w")).await.unwrap().unwrap().lease
}

/// A unique text of about `bytes`.
fn text(n: usize, bytes: usize) -> Json {
    json(&format!("\"{n} {}\"", "x".repeat(bytes)))
}

/// Waits for work that the database's thread does by itself.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("not after a minute: {what}");
}

#[tokio::test]
async fn jobs_deleted_within_the_journal_never_reach_the_database() {
    let mut disk = Disk::new(settings());
    for n in 0..50 {
        disk.submit(&text(n, 100)).await;
        disk.finish(Outcome::Completed(json("1"))).await;
    }
    disk.clock.advance(TTL_MS);
    let _ = disk.store().expire().await.unwrap();
    assert_eq!(disk.store().stats().jobs, 0);
    disk.reopen();
    assert_eq!(disk.store().stats().jobs, 0);
    for table in ["job", "input", "output"] {
        assert_eq!(disk.rows(table), 0, "{table}");
    }
}

#[tokio::test]
async fn remaining_data_is_checkpointed_and_the_journal_does_not_grow() {
    let mut disk = Disk::new(Settings { segment_bytes: 8 << 10, ..with_small_segments() });
    let mut ids = Vec::new();
    for n in 0..300 {
        ids.push(disk.submit(&text(n, 200)).await);
    }
    // Two segments wait, as many again while the database is slow, and one is written; all their
    // files are reused.
    assert!(disk.segments().len() <= 6, "{:?}", disk.segments());
    assert!(disk.journal_bytes() <= 6 * (8 << 10), "{}", disk.journal_bytes());
    for _ in 0..2 {
        for (n, id) in ids.iter().enumerate() {
            assert_eq!(disk.store().input(*id).await.unwrap(), Some(text(n, 200)));
        }
        disk.reopen();
    }
    assert!(disk.rows("job") >= 200);
}

#[tokio::test]
async fn large_payloads_stay_in_the_journal_as_long_as_their_job() {
    let mut disk = Disk::new(with_small_segments());
    let large = text(1, 40_000);
    let (mut failed, mut completed) = (Vec::new(), Vec::new());
    for _ in 0..8 {
        failed.push(disk.submit(&large).await);
        disk.finish(Outcome::Failed("for now".to_owned())).await;
        completed.push(disk.submit(&large).await);
        disk.finish(Outcome::Completed(large.clone())).await;
    }
    for _ in 0..2 {
        for id in &failed {
            assert_eq!(disk.store().input(*id).await.unwrap().as_ref(), Some(&large));
        }
        for id in &completed {
            assert_eq!(disk.store().input(*id).await, Ok(None));
            assert_eq!(disk.store().output(*id).await.unwrap().as_ref(), Some(&large));
        }
        disk.reopen();
    }
    assert!(disk.journal_bytes() > 8 * 2 * 40_000);
    assert_eq!((disk.rows("input"), disk.rows("output")), (0, 0));
    disk.reopen();
    disk.clock.advance(TTL_MS);
    let _ = disk.store().expire().await.unwrap();
    // The files are removed once there is no other work.
    until("the files are given back", || disk.segments().len() <= 4).await;
    disk.reopen();
    assert_eq!(disk.store().stats().jobs, 0);
}

#[tokio::test]
async fn the_input_of_a_job_that_can_never_run_again_is_deleted() {
    for (size, table) in [(200, "input"), (40_000, "kept")] {
        let mut disk = Disk::new(with_small_segments());
        for _ in 0..12 {
            disk.submit(&text(1, size)).await;
        }
        assert!(disk.rows(table) >= 8, "what waits is taken over");
        disk.reopen();
        for _ in 0..12 {
            disk.finish(Outcome::Completed(text(2, 10))).await;
        }
        // Later frames allow a checkpoint of all of it.
        disk.reopen();
        for _ in 0..20 {
            disk.submit(&text(3, 500)).await;
            disk.finish(Outcome::Completed(text(3, 500))).await;
        }
        assert_eq!(disk.rows(table), 0, "{table}");
        disk.reopen();
        assert_eq!(disk.store().stats().jobs, 32);
    }
}

#[tokio::test]
async fn a_few_large_payloads_do_not_keep_many_files() {
    let mut disk = Disk::new(Settings { segment_bytes: 128 << 10, ..with_small_segments() });
    let mut kept = Vec::new();
    for n in 0..60 {
        let id = disk.submit(&text(n, 20_000)).await;
        if n % 20 == 0 {
            kept.push((n, id));
        } else {
            let _ = disk.store().cancel(&endpoint("a"), id).await.unwrap();
        }
    }
    disk.clock.advance(TTL_MS / 2);
    let _ = disk.store().expire().await.unwrap();
    until("the files are emptied", || disk.segments().len() <= 4).await;
    for _ in 0..2 {
        for (n, id) in &kept {
            assert_eq!(disk.store().input(*id).await.unwrap(), Some(text(*n, 20_000)));
        }
        disk.reopen();
    }
}

#[tokio::test]
async fn an_incomplete_frame_is_dropped_and_a_damaged_one_is_refused() {
    let mut disk = Disk::new(settings());
    let first = disk.submit(&text(1, 100)).await;
    let second = disk.submit(&text(2, 100)).await;
    disk.store = None;
    let segment = disk.segments().pop().unwrap();
    let whole = fs::read(&segment).unwrap();
    let at = |needle: &[u8]| whole.windows(needle.len()).position(|part| part == needle).unwrap();
    let damage = |path: &Path, at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    };
    // In the last frame: the state after a crash.
    damage(&segment, at(b"2 xxx"));
    disk.reopen();
    assert!(disk.store().job(&endpoint("a"), first).await.unwrap().is_some());
    assert!(disk.store().job(&endpoint("a"), second).await.unwrap().is_none());
    // In the middle: a later segment records where this one ended.
    disk.submit(&text(3, 100)).await;
    disk.store = None;
    damage(&segment, at(b"1 xxx"));
    let refused = disk.open().unwrap_err();
    assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
    assert!(refused.to_string().contains("segment 1 ended at byte"), "{refused}");
    fs::remove_file(&segment).unwrap();
    let refused = disk.open().unwrap_err().to_string();
    assert!(refused.contains("segment 1 of the journal is missing"), "{refused}");
}

/// Jobs run while checkpoints copy their results; then the store ends in the middle.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn acknowledged_changes_survive_a_journal_of_small_segments() {
    let mut disk = Disk::new(Settings { segment_bytes: 4 << 10, ..with_small_segments() });
    for round in 0..4 {
        let acknowledged = Arc::new(Mutex::new(Vec::new()));
        let mut lives = JoinSet::new();
        for n in 0..8 {
            let (store, acknowledged) = (disk.store(), acknowledged.clone());
            lives.spawn(async move {
                for turn in 0.. {
                    let bytes = if turn % 5 == 0 { 20_000 } else { 50 };
                    let input = text(n, bytes);
                    let Ok(_) = store.submit(NewJob { input, ..job("a") }).await else { return };
                    let Ok(claimed) = store.claim_each(&endpoint("a"), &[worker("w")]).await else {
                        return;
                    };
                    let Some(claimed) = claimed.into_iter().next() else { continue };
                    let (lease, output) = (claimed.lease, claimed.input);
                    let chunks = (0..3).map(|n| chunk(&n.to_string())).collect();
                    let Ok(_) = store.append_chunks(lease, chunks).await else { return };
                    if turn % 3 == 0 {
                        let _ = store.finish(lease, Outcome::Failed("no".into())).await;
                        let _ = store.retry(&endpoint("a"), lease.job, None).await;
                        continue;
                    }
                    let finished = store.finish(lease, Outcome::Completed(output.clone())).await;
                    if finished.is_ok() {
                        acknowledged.lock().push((lease.job, output));
                    }
                    let read = store.output(lease.job).await;
                    assert!(read.is_err() || read.unwrap().is_some());
                }
            });
        }
        while acknowledged.lock().len() < 150 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let before = acknowledged.lock().clone();
        lives.shutdown().await;
        disk.reopen();
        for (id, output) in before {
            let record = disk.store().job(&endpoint("a"), id).await.unwrap().unwrap();
            assert_eq!(record.status, JobStatus::Completed, "round {round}");
            assert_eq!(disk.store().output(id).await.unwrap().as_ref(), Some(&output));
            let chunks = disk.store().chunks(id, 0, 99, 99).await.unwrap().chunks;
            assert_eq!(chunks.len(), 3, "round {round}");
        }
        let counts = disk.store().counts(&endpoint("a")).await.unwrap();
        assert_eq!(counts.in_progress, 0);
    }
}
