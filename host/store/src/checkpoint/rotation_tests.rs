//! Rotations that a crash interrupts at each step: the test copies the data directory there, and
//! opens the copy.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use gristmill_core::access::secrets::{RotateError, Rotated, SecretsStore as _};
use gristmill_core::backup::{BackupError, BackupSource as _};
use gristmill_core::catalog::Image;
use gristmill_core::catalog::{CatalogChange, CatalogEntry, CatalogStore as _};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::id::{EndpointId, OwnerId, ShardId, WorkerId};
use gristmill_core::job::listing::JobQuery;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{NewJob, Outcome, S3Config};
use gristmill_core::signals::Signals;
use gristmill_core::store::{JobStore as _, StoreError};
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_test_support::new_job;
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::error::OpenError;
use crate::format::payload::s3_place;
use crate::seal::Seal;
use crate::state::requests::DbRequest;
use crate::tables::catalog;
use crate::{Settings, Store, check, repair};

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// More than one slice of the catalog.
const IMAGES: usize = 300;

fn try_open(dir: &Path, settings: Settings) -> Result<Store, OpenError> {
    let signals = Arc::new(Signals::default());
    Store::open(dir, Arc::new(ManualClock::new(START)), signals, settings).map(|it| it.0)
}

fn open(dir: &Path) -> Store {
    try_open(dir, Settings::default()).unwrap()
}

fn endpoint() -> EndpointId {
    EndpointId::new("e").unwrap()
}

fn secret(number: usize) -> Arc<S3Config> {
    Arc::new(S3Config { access_secret: format!("secret {number}"), ..S3Config::default() })
}

/// A job whose input has `bytes` bytes, with a secret.
fn job(number: usize, bytes: usize) -> NewJob {
    NewJob {
        input: Json::parse(format!("\"{}\"", "x".repeat(bytes))).unwrap(),
        s3_config: Some(secret(number)),
        ..new_job(ShardId(0), OwnerId::new("o").unwrap(), endpoint())
    }
}

fn image(number: usize) -> CatalogEntry {
    CatalogEntry::Image(Image {
        name: format!("image{number}"),
        tag: "latest".to_owned(),
        digest: ComponentDigest::of(b"component"),
        manifest: None,
        owner: OwnerId::new("o").unwrap(),
        updated_at: START,
    })
}

/// Sizes of inputs in the tables, and, from 16 KiB on, in the journal.
const SIZES: [usize; 6] = [10, 20_000, 15_000, 300_000, 10, 40_000];

/// A directory with secrets in all places: in the tables, in segments that are checkpointed, and in
/// segments that are not. Jobs without a secret lie between them.
async fn fill(dir: &Path) {
    let small = Settings { journal_bytes: 0, segment_bytes: 512, ..Settings::default() };
    for settings in [small, Settings::default()] {
        let store = try_open(dir, settings).unwrap();
        for (number, bytes) in SIZES.into_iter().enumerate() {
            let _ = store.submit(job(number, bytes)).await.unwrap();
            let _ = store.submit(NewJob { s3_config: None, ..job(number, bytes) }).await.unwrap();
        }
        let images = (0..IMAGES).map(|number| CatalogChange::Put(image(number)));
        store.write_catalog(images.collect()).await.unwrap();
    }
}

/// Claims all jobs, and checks their secrets and the catalog.
async fn assert_secrets_are_readable(store: &Store) {
    assert_eq!(store.load_catalog().await.unwrap().len(), IMAGES);
    let workers: Vec<_> = (0..100).map(|n| WorkerId::new(&format!("w{n}")).unwrap()).collect();
    let claimed = store.claim_each(&endpoint(), &workers).await.unwrap();
    assert_eq!(claimed.len(), 4 * SIZES.len());
    for (place, claimed) in claimed.into_iter().enumerate() {
        let number = place / 2 % SIZES.len();
        let expected = place.is_multiple_of(2).then(|| secret(number));
        assert_eq!(claimed.s3_config, expected, "{place}");
    }
}

fn key_file(dir: &Path) -> PathBuf {
    dir.join("secrets.key")
}

fn keys(dir: &Path) -> Vec<String> {
    let text = fs::read_to_string(key_file(dir)).unwrap();
    text.lines().map(str::to_owned).collect()
}

fn copy(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    fs::create_dir(to.path().join("journal")).unwrap();
    for part in ["", "journal"] {
        for entry in fs::read_dir(from.join(part)).unwrap() {
            let entry = entry.unwrap();
            if entry.path().is_file() {
                fs::copy(entry.path(), to.path().join(part).join(entry.file_name())).unwrap();
            }
        }
    }
    to
}

/// The number of texts in the tables that this key decrypts, and of all texts.
fn texts_of(dir: &Path, key: &str) -> (usize, usize) {
    let file = dir.join("one.key");
    fs::write(&file, key).unwrap();
    let seal = Seal::open(&file, false).unwrap();
    let db = Connection::open(dir.join("store.db")).unwrap();
    let (mut opened, mut all) = (0, 0);
    catalog::each(&db, &seal, |_, _, body| {
        opened += usize::from(body.is_some());
        all += 1;
        Ok(())
    })
    .unwrap();
    let mut rows = db.prepare("SELECT seq, s3 FROM input WHERE s3 IS NOT NULL").unwrap();
    let rows = rows.query_map((), |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    for (seq, s3) in rows.map(rusqlite::Result::unwrap) {
        let (seq, s3): (i64, Vec<u8>) = (seq, s3);
        opened += usize::from(seal.open_text(&s3, &s3_place(seq.unsigned_abs())).is_some());
        all += 1;
    }
    (opened, all)
}

/// Waits until a start has completed the rotation.
async fn until_one_key_is_left(dir: &Path) {
    let begun = Instant::now();
    while keys(dir).len() > 1 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the rotation does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Opens the copy of a directory with the new key alone, the old key alone, and the keys that it
/// has, beside a torn new key file.
async fn assert_it_opens(step: &str, image: &TempDir, old: &str) {
    let dir = image.path();
    let found = keys(dir);
    for key in [&found[0], old] {
        let one = copy(dir);
        fs::write(key_file(one.path()), key).unwrap();
        // Either key that suffices alone has encrypted every text.
        if let Ok(store) = try_open(one.path(), Settings::default()) {
            assert_secrets_are_readable(&store).await;
        } else {
            assert!(found.len() > 1 || key == old, "{step}: the key of the file does not suffice");
            let damage = check(one.path(), None).unwrap().damage;
            let is_named = |text: &str| damage.iter().any(|damage| damage.details.contains(text));
            assert!(is_named("key of the stored secrets"), "{step}: {damage:?}");
            let output = tempfile::tempdir().unwrap();
            let refused = repair(one.path(), &output.path().join("new"), None).unwrap_err();
            assert!(matches!(refused, OpenError::SecretsKey { .. }), "{step}: {refused}");
        }
    }
    if step.starts_with("Inputs") {
        let output = tempfile::tempdir().unwrap();
        let repaired = output.path().join("new");
        repair(dir, &repaired, None).unwrap();
        let store = open(&repaired);
        until_one_key_is_left(&repaired).await;
        // A repair adds the missing endpoint and its template.
        assert_eq!(store.load_catalog().await.unwrap().len(), IMAGES + 2, "{step}");
    }
    fs::write(dir.join("secrets.key.tmp"), "torn").unwrap();
    // The test has no records of endpoints.
    let mut damage = check(dir, None).unwrap().damage;
    damage.retain(|damage| !damage.details.contains("no record in the catalog"));
    assert!(damage.is_empty(), "{step}: {damage:?}");
    let store = open(dir);
    assert_secrets_are_readable(&store).await;
    until_one_key_is_left(dir).await;
    assert_eq!(keys(dir), found[..1], "{step}");
    store.close().await;
    drop(store);
    let is_new = found[0] != old;
    let one = copy(dir);
    fs::write(key_file(one.path()), old).unwrap();
    assert_eq!(try_open(one.path(), Settings::default()).is_err(), is_new, "{step}");
    if is_new {
        assert_eq!(texts_of(dir, old).0, 0, "{step}");
    }
    let (opened, all) = texts_of(dir, &found[0]);
    assert!(opened == all && all >= IMAGES, "{step}: {opened} of {all}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rotation_that_is_interrupted_at_any_step_is_completed_by_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fill(dir).await;
    let old = keys(dir).remove(0);
    let store = Arc::new(open(dir));
    let cursor = JobQuery { count_max: 1, ..JobQuery::default() };
    let cursor = store.list(&endpoint(), &cursor).await.unwrap().next;
    let (steps, step) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    store.shared.request(DbRequest::WatchRotation { steps, go: may_go }).unwrap();
    let rotating = store.clone();
    let rotating = tokio::spawn(async move { rotating.rotate_secrets_key().await });
    let mut images = Vec::new();
    tokio::task::block_in_place(|| {
        while let Ok(name) = step.recv_timeout(Duration::from_secs(60)) {
            let is_last = name == "KeyFile";
            images.push((name, copy(dir)));
            go.send(()).unwrap();
            if is_last {
                break;
            }
        }
    });
    let rotated = rotating.await.unwrap().unwrap();
    assert_eq!(rotated, Rotated { records: IMAGES as u64, jobs: 2 * SIZES.len() as u64 });

    // A cursor stays valid until the host restarts.
    let after = JobQuery { after: cursor, count_max: 1, status: None };
    assert_eq!(store.list(&endpoint(), &after).await.unwrap().jobs.len(), 1);
    assert_secrets_are_readable(&store).await;
    drop(store);
    images.push(("the end".to_owned(), copy(dir)));
    let store = open(dir);
    assert_eq!(store.list(&endpoint(), &after).await.unwrap_err(), StoreError::UnknownCursor);

    // States between two writes of one step.
    let (_, begun) = &images[0];
    let (recorded, last) = (copy(begun.path()), copy(images.iter().rev().nth(1).unwrap().1.path()));
    fs::write(key_file(recorded.path()), &old).unwrap();
    fs::write(key_file(last.path()), &keys(dir)[0]).unwrap();
    images.push(("recorded".to_owned(), recorded));
    images.push(("with the new key alone".to_owned(), last));

    let names: Vec<_> = images.iter().map(|(name, _)| &name[..4]).collect();
    for expected in ["Begi", "Chec", "Move", "Cata", "Inpu", "Encr", "KeyF"] {
        assert!(names.contains(&expected), "{expected} is not in {names:?}");
    }
    for (step, image) in &images {
        assert_it_opens(step, image, &old).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_and_the_catalog_change_during_rotations() {
    let dir = tempfile::tempdir().unwrap();
    let settings = Settings { journal_bytes: 0, segment_bytes: 4_096, ..Settings::default() };
    let store = Arc::new(try_open(dir.path(), settings).unwrap());
    let submitting = store.clone();
    let submitting = tokio::spawn(async move {
        for number in 0..400 {
            let bytes = SIZES[number % SIZES.len()];
            let _ = submitting.submit(job(number, bytes)).await.unwrap();
            let image = CatalogChange::Put(image(number % 50));
            submitting.write_catalog(vec![image]).await.unwrap();
        }
    });
    let mut rotations = 0;
    while !submitting.is_finished() || rotations < 3 {
        store.rotate_secrets_key().await.unwrap();
        rotations += 1;
    }
    submitting.await.unwrap();
    store.rotate_secrets_key().await.unwrap();
    drop(store);
    let store = open(dir.path());
    let workers: Vec<_> = (0..400).map(|n| WorkerId::new(&format!("w{n}")).unwrap()).collect();
    let mut claimed = Vec::new();
    for workers in workers.chunks(50) {
        claimed.extend(store.claim_each(&endpoint(), workers).await.unwrap());
    }
    assert_eq!(claimed.len(), 400);
    for (number, claimed) in claimed.into_iter().enumerate() {
        assert_eq!(claimed.s3_config, Some(secret(number)));
        let output = Outcome::Completed(Json::null());
        let _ = store.finish(claimed.lease, output).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_rotation_and_a_backup_without_keys_wait_for_the_first_rotation() {
    let dir = tempfile::tempdir().unwrap();
    fill(dir.path()).await;
    let old = copy(dir.path());
    let store = Arc::new(open(dir.path()));
    let (steps, step) = mpsc::channel();
    let (go, may_go) = mpsc::channel();
    store.shared.request(DbRequest::WatchRotation { steps, go: may_go }).unwrap();
    let [first, second, without, with] = [0, 1, 2, 3].map(|kind| {
        let store = store.clone();
        tokio::spawn(async move {
            match kind {
                0 | 1 => store.rotate_secrets_key().await.map(drop).map_err(|it| it.to_string()),
                _ => store.backup(kind == 3).await.map(drop).map_err(|it| it.to_string()),
            }
        })
    });
    tokio::task::block_in_place(|| {
        while let Ok(name) = step.recv_timeout(Duration::from_secs(60)) {
            while name == "Encrypted" && !(second.is_finished() || first.is_finished()) {
                std::thread::yield_now();
            }
            go.send(()).unwrap();
            if name == "KeyFile" {
                break;
            }
        }
    });
    let mut rotated = [first.await.unwrap(), second.await.unwrap()];
    rotated.sort();
    let busy = Err(RotateError::Busy.to_string());
    assert_eq!(rotated, [Ok(()), busy]);
    if let Err(refused) = without.await.unwrap() {
        assert_eq!(refused, BackupError::Rotating.to_string());
    }
    with.await.unwrap().unwrap();

    // An old copy opens with its own key.
    assert_secrets_are_readable(&open(old.path())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operator_may_put_a_key_in_front_and_the_file_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fill(dir).await;
    let (old, new) = (keys(dir).remove(0), "07".repeat(32));
    let text = format!("{new}\n{old}\n");
    fs::write(key_file(dir), &text).unwrap();
    let store = open(dir);
    let begun = Instant::now();
    // A backup without its key is refused until the rotation has ended.
    while matches!(store.backup(false).await, Err(BackupError::Rotating | BackupError::Busy)) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the rotation does not end");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_secrets_are_readable(&store).await;
    drop(store);
    assert_eq!(fs::read_to_string(key_file(dir)).unwrap(), text);
    fs::write(key_file(dir), &old).unwrap();
    let refused = try_open(dir, Settings::default()).unwrap_err();
    assert!(matches!(refused, OpenError::SecretsKey { .. }), "{refused}");
    fs::write(key_file(dir), &new).unwrap();
    open(dir);
    assert_eq!(texts_of(dir, &old).0, 0);
}

#[tokio::test]
async fn a_key_file_that_cannot_be_replaced_is_refused_and_nothing_changes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let store = open(dir);
    let old = keys(dir);
    let other = dir.join("elsewhere.key");
    fs::rename(key_file(dir), &other).unwrap();
    let refused = async |reason: &str| {
        let refused = store.rotate_secrets_key().await.unwrap_err();
        assert!(matches!(refused, RotateError::KeyFile(_)), "{refused}");
        let refused = refused.to_string();
        assert!(refused.contains(reason) && refused.contains("secrets.key"), "{refused}");
    };
    refused("No such file").await;
    std::os::unix::fs::symlink(&other, key_file(dir)).unwrap();
    refused("symbolic link").await;
    fs::remove_file(key_file(dir)).unwrap();
    fs::write(key_file(dir), "07".repeat(32)).unwrap();
    refused("have changed").await;
    fs::rename(&other, key_file(dir)).unwrap();
    // The name of the new file is taken by a directory.
    fs::create_dir(dir.join("secrets.key.tmp")).unwrap();
    refused("directory").await;
    assert_eq!(keys(dir), old);
    drop(store);
    let store = open(dir);
    fs::remove_dir(dir.join("secrets.key.tmp")).unwrap();
    store.rotate_secrets_key().await.unwrap();
    assert_ne!(keys(dir), old);
    assert_eq!(keys(dir).len(), 1);
}
