//! A nearly full disk: the store gives back the space of deleted jobs, whatever else is in the same
//! files, and loses nothing of the other jobs.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support;
use crate::support::on_disk::OnDisk;
use crate::support::{endpoint, json, submit, worker};
use gristmill_core::access::secrets::{RotateError, SecretsStore as _};
use gristmill_core::backup::BackupSource as _;
use gristmill_core::billing::usage::UsageStore as _;
use gristmill_core::id::{JobId, OwnerId};
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{NewJob, S3Config};
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::store::{JobStore as _, StoreError, StoreFull, SubmitAnswer};
use gristmill_store::{Settings, Store, check, repair};
use gristmill_test_support::ClaimEach as _;

/// More than any of these tests needs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store without caches, on a disk with much space.
fn store() -> (OnDisk, Arc<DiskSpaceGauge>) {
    let disk_space = Arc::new(DiskSpaceGauge::default());
    let settings = Settings {
        disk_space: disk_space.clone(),
        payload_cache_bytes: 0,
        ..Settings::with_journal(4 << 20)
    };
    (OnDisk::new(settings), disk_space)
}

/// The inputs of jobs whose payloads stay in the journal, of `endpoints` in turn.
type Inputs = HashMap<JobId, Json>;

async fn fill(store: &Store, endpoints: [&str; 2]) -> [Inputs; 2] {
    let mut inputs = [Inputs::new(), Inputs::new()];
    for number in 0..300 {
        let input = json(&format!("\"{number}{}\"", "x".repeat(30_000 + 100 * number)));
        for (name, inputs) in endpoints.into_iter().zip(&mut inputs) {
            let job = NewJob { input: input.clone(), ..support::job(name) };
            inputs.insert(submit(store, job).await, input.clone());
        }
    }
    inputs
}

/// Bytes that the journal takes on the disk.
fn journal_bytes(t: &OnDisk) -> u64 {
    let entries = std::fs::read_dir(t.dir.path().join("journal")).unwrap();
    entries.map(|entry| entry.unwrap().metadata().unwrap().blocks() * 512).sum()
}

/// Waits until the store has given back space, as the watch of the disk makes it do.
async fn gives_back(t: &OnDisk, is_enough: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_enough() {
        assert!(begun.elapsed() < PATIENCE, "{} bytes in the journal", journal_bytes(t));
        rounds(t, 1).await;
    }
}

/// Asks the thread that gives back space so often, and waits for an answer each time.
async fn rounds(t: &OnDisk, count: usize) {
    for _ in 0..count {
        t.store().give_back_space();
        t.store().usage(&support::all_usage()).await.unwrap();
    }
}

async fn assert_inputs(store: &Store, name: &str, expected: &Inputs) {
    let mut found = Inputs::new();
    let workers: Vec<_> = (0..50).map(|n| worker(&format!("w{n}"))).collect();
    while let claimed = store.claim_each(&endpoint(name), &workers).await.unwrap()
        && !claimed.is_empty()
    {
        found.extend(claimed.into_iter().map(|claimed| (claimed.lease.job, claimed.input)));
    }
    assert!(found == *expected, "{} of {} inputs", found.len(), expected.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_payloads_give_back_their_space_although_others_lie_between_them() {
    let (mut t, disk_space) = store();
    let [kept, deleted] = fill(t.store(), ["kept", "deleted"]).await;
    let before = journal_bytes(&t);
    assert_eq!(t.store().purge(&endpoint("deleted")).await.unwrap(), deleted.len() as u64);
    disk_space.set(11 << 20, 10 << 20);
    let half = kept.values().map(|input| input.as_bytes().len() as u64).sum::<u64>();
    gives_back(&t, || journal_bytes(&t) < half + (2 << 20)).await;
    println!("{before} bytes before, {} after, {half} are needed", journal_bytes(&t));
    assert!(half + (8 << 20) < before);

    // A start, a check, a repair and a backup find all that is needed, and no damage.
    let restored = support::restore(t.store().backup(true).await.unwrap());
    let signals = Arc::default();
    let (copy, _) = support::open_with(t.settings.clone(), restored.path(), &t.clock, &signals);
    assert_inputs(&copy, "kept", &kept).await;
    t.store = None;
    let mut damage = check(t.dir.path(), None).unwrap().damage;
    damage.retain(|damage| !damage.details.contains("no record in the catalog"));
    assert!(damage.is_empty(), "{damage:?}");
    let output = tempfile::tempdir().unwrap();
    let repaired = output.path().join("new");
    assert_eq!(repair(t.dir.path(), &repaired, None).unwrap().jobs, kept.len() as u64);
    t.restart();
    // Later deletions leave further holes.
    disk_space.set(1 << 30, 0);
    let more = fill(t.store(), ["more", "deleted"]).await;
    t.store().purge(&endpoint("deleted")).await.unwrap();
    disk_space.set(11 << 20, 10 << 20);
    let needed = kept.values().chain(more[0].values()).map(|input| input.as_bytes().len() as u64);
    let needed = needed.sum::<u64>();
    gives_back(&t, || journal_bytes(&t) < needed + (4 << 20)).await;
    assert_inputs(t.store(), "kept", &kept).await;
    assert_inputs(t.store(), "more", &more[0]).await;
}

#[tokio::test]
async fn a_full_disk_still_answers_repeated_submissions() {
    let (t, disk_space) = store();
    let with_key = |key: &str| {
        let owner = OwnerId::new("owner").unwrap();
        let idempotency = Some(Idempotency::new(&owner, key, "run", b"{}"));
        NewJob { idempotency, ..support::job("a") }
    };
    let first = submit(t.store(), with_key("k")).await;
    disk_space.set(0, 10 << 20);
    assert_eq!(t.store().submit(with_key("k")).await, Ok(SubmitAnswer::Repeated(first)));
    let refused = t.store().submit(with_key("l")).await;
    assert!(matches!(refused, Err(StoreError::Full(StoreFull::Disk(_)))), "{refused:?}");
}

/// Bytes of the tables and of their write-ahead log.
fn table_bytes(t: &OnDisk) -> u64 {
    let bytes = |name| std::fs::metadata(t.dir.path().join(name)).map_or(0, |file| file.len());
    bytes("store.db") + bytes("store.db-wal")
}

/// A move writes the payloads to the tables before their segment is free.
#[tokio::test(flavor = "multi_thread")]
async fn payloads_move_on_a_nearly_full_disk_only_if_that_gives_back_space() {
    let disk_space = Arc::new(DiskSpaceGauge::default());
    let settings = support::with_small_segments();
    let t = OnDisk::new(Settings { disk_space: disk_space.clone(), ..settings });
    for _ in 0..40 {
        let input = json(&format!("\"{}\"", "x".repeat(20_000)));
        submit(t.store(), NewJob { input, ..support::job("a") }).await;
    }
    disk_space.set(64 << 20, 60 << 20);
    assert!(disk_space.is_tight());
    gives_back(&t, || table_bytes(&t) < 500_000).await;
    rounds(&t, 100).await;
    assert!(table_bytes(&t) < 500_000, "{} bytes", table_bytes(&t));
}

/// Small inputs on a small disk would otherwise be refused until the whole segment is in the
/// tables.
#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_a_checkpoint_has_written_are_not_owed_until_its_end() {
    let disk_space = Arc::new(DiskSpaceGauge::default());
    let t = OnDisk::new(Settings { disk_space: disk_space.clone(), ..support::settings() });
    let input = json(&format!("\"{}\"", "x".repeat(12_000)));
    for _ in 0..20 {
        let jobs = (0..100).map(|n| support::job(["a", "b"][n % 2]));
        let submissions = jobs.map(|job| submit(t.store(), NewJob { input: input.clone(), ..job }));
        futures::future::join_all(submissions).await;
    }
    // A measurement contains all that was written.
    let owed = || {
        disk_space.set(1 << 30, 1 << 30);
        (1_u64 << 30) - disk_space.free_bytes()
    };
    let all = owed();
    assert!(all > 30 << 20, "{all} bytes are owed");
    let seen = RefCell::new(BTreeSet::new());
    gives_back(&t, || {
        let owed = owed();
        seen.borrow_mut().insert(owed);
        owed == 0
    })
    .await;
    let seen = seen.into_inner();
    assert!(seen.len() > 5, "{seen:?}");
}

/// A rotation of the key moves large inputs with settings to the tables, before their segment is
/// free.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_of_the_key_waits_below_the_reserve() {
    let (t, disk_space) = store();
    let mut ids = Vec::new();
    for _ in 0..40 {
        let input = json(&format!("\"{}\"", "x".repeat(1_000_000)));
        let s3_config =
            Some(Arc::new(S3Config { access_secret: "s".to_owned(), ..S3Config::default() }));
        ids.push(submit(t.store(), NewJob { input, s3_config, ..support::job("a") }).await);
    }
    disk_space.set(9 << 20, 10 << 20);
    let refused = t.store().rotate_secrets_key().await;
    assert!(matches!(refused, Err(RotateError::DiskFull)), "{refused:?}");
    disk_space.set(20 << 20, 10 << 20);
    let before = table_bytes(&t);
    let rotation = t.store().rotate_secrets_key();
    tokio::pin!(rotation);
    let waits = async {
        gives_back(&t, || !disk_space.admits_work()).await;
        rounds(&t, 100).await;
    };
    tokio::select! {
        rotated = &mut rotation => panic!("{rotated:?} without space for it"),
        () = waits => {}
    }
    let moved = table_bytes(&t) - before;
    assert!((1 << 20..20 << 20).contains(&moved), "{moved} bytes moved");
    // Other changes are not delayed.
    t.store().cancel(&endpoint("a"), ids[0]).await.unwrap();
    disk_space.set(1 << 30, 10 << 20);
    let rotated = rotation.await.unwrap();
    assert!((39..=40).contains(&rotated.jobs), "{rotated:?}");
}

/// The files of a backup are read long after its instant.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_has_the_payloads_that_are_deleted_while_it_is_read() {
    let (t, disk_space) = store();
    let [kept, deleted] = fill(t.store(), ["kept", "deleted"]).await;
    disk_space.set(11 << 20, 10 << 20);
    // Everything is checkpointed.
    gives_back(&t, || disk_space.free_bytes() > 10 << 20).await;
    let backup = t.store().backup(true).await.unwrap();
    t.store().purge(&endpoint("deleted")).await.unwrap();
    rounds(&t, 20).await;
    let restored = support::restore(backup);
    let signals = Arc::default();
    let (copy, _) = support::open_with(t.settings.clone(), restored.path(), &t.clock, &signals);
    assert_inputs(&copy, "kept", &kept).await;
    assert_inputs(&copy, "deleted", &deleted).await;
    let half = kept.values().map(|input| input.as_bytes().len() as u64).sum::<u64>();
    gives_back(&t, || journal_bytes(&t) < half + (2 << 20)).await;
    assert_inputs(t.store(), "kept", &kept).await;
}
