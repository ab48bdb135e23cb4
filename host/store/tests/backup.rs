//! Backups of a store during writes: they equal the state that a crash at their instant would have
//! left, and no caller waits for them.

#![allow(clippy::disallowed_methods, reason = "a variable names the file of another process")]

use std::collections::HashMap;
use std::fs;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    START, chunk, endpoint, job, json, open_with, restore, settings, submit, with_small_segments,
    worker,
};
use gristmill_core::backup::{BackupError, BackupFile, BackupSource as _, DATABASE, SECRETS_KEY};
use gristmill_core::id::JobId;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{NewJob, Outcome};
use gristmill_core::job::state::JobStatus;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore;
use gristmill_core::time::ManualClock;
use gristmill_store::{Settings, Store};
use gristmill_test_support::EndAttempt as _;
use parking_lot::Mutex;
use tempfile::TempDir;
use tokio::task::JoinSet;

/// More bytes than the write-ahead log holds before it is moved to the file.
const WAL_BYTES: u64 = 48 << 20;

struct Disk {
    clock: Arc<ManualClock>,
    store: Arc<Store>,
    /// Dropped last: the store may still write to it.
    dir: TempDir,
}

impl Disk {
    fn new(settings: Settings) -> Self {
        Self::of(tempfile::tempdir().unwrap(), settings)
    }

    fn of(dir: TempDir, settings: Settings) -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let (store, _) = open_with(settings, dir.path(), &clock, &Arc::new(Signals::default()));
        Self { dir, clock, store: Arc::new(store) }
    }

    fn bytes_of(&self, name: &str) -> u64 {
        fs::metadata(self.dir.path().join(name)).unwrap().len()
    }

    /// Claims a job, emits a chunk and completes it with its own input.
    async fn complete_one(&self) -> Option<JobId> {
        let claimed = self.store.claim(&endpoint("a"), &worker("w")).await.unwrap()?;
        let _ = self.store.append_chunks(claimed.lease, vec![chunk("7")]).await.unwrap();
        let outcome = Outcome::Completed(claimed.input.clone());
        let _ = self.store.finish(claimed.lease, outcome).await.unwrap();
        Some(claimed.lease.job)
    }
}

/// An input that contains its number, with a length that depends on it: some inputs are
/// checkpointed, and some stay in the journal.
fn input(n: usize) -> Json {
    let length = [10, 15_000, 20_000, 15_000, 300_000][n % 5];
    json(&format!("[{}{n}]", " ".repeat(length)))
}

/// The state of the jobs, as their submitters know it.
#[derive(Debug, Default, Clone)]
struct Ledger {
    begun: HashMap<JobId, usize>,
    acknowledged: Vec<JobId>,
}

async fn submit_without_end(store: Arc<Store>, ledger: Arc<Mutex<Ledger>>, from: usize) {
    for n in (from..).step_by(8) {
        let new = NewJob { input: input(n), ..job("b") };
        ledger.lock().begun.insert(new.id, n);
        let id = submit(&*store, new).await;
        ledger.lock().acknowledged.push(id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_has_every_change_acknowledged_before_it() {
    for settings in [with_small_segments(), Settings { segment_bytes: 1 << 20, ..settings() }] {
        let settings = Settings { queue_jobs_max: 1_000_000, ..settings };
        let disk = Disk::new(settings.clone());
        let mut completed = Vec::new();
        for n in 0..40 {
            submit(&*disk.store, NewJob { input: input(n), ..job("a") }).await;
            completed.extend(disk.complete_one().await);
        }
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let mut submitters = JoinSet::new();
        for from in 0..8 {
            submitters.spawn(submit_without_end(disk.store.clone(), ledger.clone(), from));
        }
        while ledger.lock().acknowledged.len() < 200 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let before = ledger.lock().clone();
        let files = disk.store.backup(true).await.unwrap();
        let begun = ledger.lock().begun.clone();
        // Much later, as with a slow reader.
        let many = before.acknowledged.len() + 400;
        while ledger.lock().acknowledged.len() < many {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let restored = Disk::of(restore(files), settings);
        submitters.shutdown().await;

        let store = &restored.store;
        for id in &before.acknowledged {
            let record =
                store.job(&endpoint("b"), *id).await.unwrap().expect("it was acknowledged");
            assert_eq!(record.status, JobStatus::InQueue);
        }
        let mut found = 0;
        for (id, n) in &begun {
            if let Some(kept) = store.input(*id).await.unwrap() {
                assert_eq!(kept, input(*n), "{n}");
                found += 1;
            }
        }
        assert_eq!(store.counts(&endpoint("b")).await.unwrap().in_queue, found, "of no later job");
        for (n, id) in completed.iter().enumerate() {
            assert_eq!(store.output(*id).await.unwrap(), Some(input(n)));
            assert_eq!(store.chunks(*id, 0, 99, 99).await.unwrap().chunks, [chunk("7")]);
        }
        // It is a store like any other.
        let again = submit(&**store, job("a")).await;
        assert_eq!(restored.complete_one().await, Some(again));
    }
}

/// Fills the write-ahead log beyond the length at which it is usually moved to the file.
async fn write_much(disk: &Disk) {
    let mut submitters = JoinSet::new();
    for _ in 0..16 {
        let store = disk.store.clone();
        submitters.spawn(async move {
            for _ in 0..250 {
                submit(&*store, NewJob { input: input(1), ..job("c") }).await;
            }
        });
    }
    submitters.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_stay_as_they_are_while_they_are_read() {
    let settings = Settings { queue_jobs_max: 1_000_000, ..with_small_segments() };
    let disk = Disk::new(settings.clone());
    let id = submit(&*disk.store, NewJob { input: input(2), ..job("a") }).await;
    let mut files = disk.store.backup(true).await.unwrap();
    let file = disk.dir.path().join(DATABASE);
    let frozen = fs::read(&file).unwrap();
    let refused = disk.store.backup(true).await.unwrap_err();
    assert!(matches!(refused, BackupError::Busy), "{refused}");

    write_much(&disk).await;
    assert!(disk.bytes_of("store.db-wal") > WAL_BYTES, "{}", disk.bytes_of("store.db-wal"));
    assert!(fs::read(&file).unwrap() == frozen, "the file of the tables has changed");
    let mut copy = Vec::new();
    files[0].content.read_to_end(&mut copy).unwrap();
    assert_eq!(files[0].name, DATABASE);
    assert!(copy == frozen);
    files[0].content = Box::new(std::io::Cursor::new(copy));
    let restored = Disk::of(restore(files), settings);
    assert_eq!(restored.store.input(id).await.unwrap(), Some(input(2)));
    assert_eq!(restored.store.counts(&endpoint("c")).await.unwrap().in_queue, 0);

    // There is no reader any more, so the log is moved to the file, and another backup can be made.
    for _ in 0..1_000 {
        if disk.bytes_of(DATABASE) > WAL_BYTES {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(disk.bytes_of(DATABASE) > WAL_BYTES);
    drop(disk.store.backup(false).await.unwrap());
}

/// The pages of the log are written to the file when the copy ends, so they need as much space
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_ends_before_the_log_takes_half_of_the_free_space() {
    let disk_space = Arc::new(DiskSpaceGauge::default());
    let settings = Settings { disk_space: disk_space.clone(), ..with_small_segments() };
    let disk = Disk::new(Settings { queue_jobs_max: 1_000_000, ..settings });
    submit(&*disk.store, NewJob { input: input(2), ..job("a") }).await;
    let mut files = disk.store.backup(true).await.unwrap();
    // The bytes that are written count as used: no measurement follows.
    disk_space.set(120 << 20, 0);
    write_much(&disk).await;
    let read = files[0].content.read_to_end(&mut Vec::new());
    assert!(read.is_err(), "{read:?}, and the log has {}", disk.bytes_of("store.db-wal"));
}

/// The journal's files are reused as soon as no reader needs them, and a backup is a reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn segments_are_not_written_over_while_they_are_read() {
    let disk = Disk::new(with_small_segments());
    let mut completed = Vec::new();
    for n in 0..20 {
        submit(&*disk.store, NewJob { input: input(n), ..job("a") }).await;
        completed.extend(disk.complete_one().await);
    }
    let files = disk.store.backup(true).await.unwrap();
    // Deleting the endpoint releases all bytes that the journal holds for these jobs.
    disk.store.delete_endpoint(&endpoint("a")).await.unwrap();
    for n in 0..100 {
        submit(&*disk.store, NewJob { input: input(n), ..job("b") }).await;
        disk.store.purge(&endpoint("b")).await.unwrap();
    }
    let restored = Disk::of(restore(files), with_small_segments());
    for (n, id) in completed.iter().enumerate() {
        assert_eq!(restored.store.output(*id).await.unwrap(), Some(input(n)), "{n}");
    }
}

/// Reads the tables as any other program would, in a separate process.
#[test]
#[ignore = "a process of its own, which another test starts"]
fn another_program() {
    let file = std::env::var_os("STORE_DB").unwrap();
    let db = rusqlite::Connection::open(file).unwrap();
    let counted = db.query_row("SELECT count(*) FROM job", (), |row| row.get::<_, i64>(0));
    println!("the other program: {counted:?}");
}

/// The tables as another program reads them.
fn read_by_another_program(dir: &TempDir) -> String {
    let mut program = std::process::Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "backup::another_program", "--ignored", "--nocapture"]);
    let output = program.env("STORE_DB", dir.path().join(DATABASE)).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Closing any descriptor of the file would drop `SQLite`'s lock, and the next program that reads
/// the file would delete the write-ahead log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_leaves_the_lock_on_the_tables() {
    let mut disk = Disk::new(settings());
    let id = submit(&*disk.store, job("a")).await;
    let is_kept_out = |when: &str, dir: &TempDir| {
        let said = read_by_another_program(dir);
        assert!(said.contains("database is locked"), "{when}: {said}");
    };
    is_kept_out("before a backup", &disk.dir);
    let mut whole = disk.store.backup(true).await.unwrap();
    is_kept_out("during a backup", &disk.dir);
    whole[0].content.read_to_end(&mut Vec::new()).unwrap();
    drop(whole);
    is_kept_out("after a backup", &disk.dir);
    // A copy that is never read to its end outlives the store, and the next store.
    let abandoned = tables(disk.store.backup(false).await.unwrap());
    disk.store.close().await;
    disk = {
        let Disk { dir, store, .. } = disk;
        drop(store);
        Disk::of(dir, settings())
    };
    is_kept_out("with the copy of an earlier store", &disk.dir);
    drop(abandoned);
    is_kept_out("after the copy of an earlier store", &disk.dir);
    assert!(disk.store.job(&endpoint("a"), id).await.unwrap().is_some());
}

fn tables(mut files: Vec<BackupFile>) -> BackupFile {
    files.swap_remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_closed_cuts_the_copy() {
    let disk = Disk::new(settings());
    let id = submit(&*disk.store, job("a")).await;
    let mut copy = tables(disk.store.backup(false).await.unwrap());
    disk.store.close().await;
    assert!(copy.content.read_to_end(&mut Vec::new()).is_err(), "it is not what it was");
    let late = disk.store.backup(false).await.unwrap_err();
    assert!(matches!(late, BackupError::Closed), "{late}");
    let Disk { dir, clock, store } = disk;
    drop(store);
    let (store, recovery) =
        open_with(settings(), dir.path(), &clock, &Arc::new(Signals::default()));
    assert!(recovery.was_clean);
    assert!(store.job(&endpoint("a"), id).await.unwrap().is_some());
}

#[tokio::test]
async fn a_backup_has_the_secrets_key_only_on_request() {
    let disk = Disk::new(settings());
    let names = |files: &[BackupFile]| files.iter().any(|file| file.name == SECRETS_KEY);
    let without = disk.store.backup(false).await.unwrap();
    assert!(!names(&without));
    let dir = restore(without);
    let open = |dir: &TempDir| {
        Store::open(dir.path(), disk.clock.clone(), Arc::default(), settings()).map(drop)
    };
    let refused = open(&dir).unwrap_err().to_string();
    assert!(refused.contains("secrets.key"), "{refused}");
    fs::copy(disk.dir.path().join(SECRETS_KEY), dir.path().join(SECRETS_KEY)).unwrap();
    open(&dir).unwrap();

    let with = disk.store.backup(true).await.unwrap();
    assert!(names(&with));
    open(&restore(with)).unwrap();
}
