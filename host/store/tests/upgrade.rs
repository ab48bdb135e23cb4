//! Upgrades of data directories, under a fictitious later schema: this program has only one
//! version.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gristmill_core::id::JobId;
use gristmill_core::job::record::Outcome;
use gristmill_core::job::state::JobStatus;
use gristmill_core::signals::Signals;
use gristmill_core::store::{Fenced, JobStore as _};
use gristmill_core::time::ManualClock;
use gristmill_store::{OpenError, Recovery, Schema, SchemaUpgrade, Settings, Store, check};
use gristmill_test_support::EndAttempt as _;
use rusqlite::Connection;

use crate::damage::copy_of;
use crate::support::{START, endpoint, job, json, settings, submit, with_small_segments, worker};

/// The second version has a column more, a table more, and a value in each row.
const LATER: Schema = Schema {
    newest: 2,
    migrations: &[
        Schema::PRODUCT.migrations[0],
        (
            "V2__weight",
            "ALTER TABLE job ADD COLUMN weight INTEGER; UPDATE job SET weight = seq + 7; \
             CREATE TABLE sack (seq INTEGER PRIMARY KEY) STRICT; PRAGMA user_version = 2;",
        ),
    ],
    ..Schema::PRODUCT
};

/// A program that cannot read the first version any more.
const LATEST: Schema = Schema { oldest: 2, ..LATER };

const UPGRADE: SchemaUpgrade = SchemaUpgrade { from: 1, to: 2 };

fn open(dir: &Path, schema: Schema) -> Result<(Store, Recovery), OpenError> {
    let clock = Arc::new(ManualClock::new(START));
    Store::open_with_schema(dir, clock, Arc::new(Signals::default()), settings(), schema)
}

/// The files of the tables and the journal. SQLite's index of its log has nothing that it could not
/// make again.
fn tables_and_journal(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir.join("journal")).unwrap() {
        let name = Path::new("journal").join(entry.unwrap().file_name());
        found.insert(name.clone(), fs::read(dir.join(name)).unwrap());
    }
    for name in ["store.db", "store.db-wal"] {
        if let Ok(bytes) = fs::read(dir.join(name)) {
            found.insert(name.into(), bytes);
        }
    }
    found
}

/// A directory of the first version: some jobs are in its tables, and some in its journal only.
async fn directory(is_closed: bool) -> (tempfile::TempDir, Vec<JobId>) {
    let dir = tempfile::tempdir().unwrap();
    let mut jobs = Vec::new();
    for settings in [with_small_segments(), settings()] {
        let store = open_with(dir.path(), settings);
        for _ in 0..20 {
            jobs.push(submit(&store, job("a")).await);
        }
        let lease = store.claim(&endpoint("a"), &worker("w")).await.unwrap().unwrap().lease;
        assert_eq!(store.finish(lease, Outcome::Completed(json("1"))).await, Ok(Fenced::Applied));
        if is_closed {
            store.close().await;
        }
    }
    (dir, jobs)
}

fn open_with(dir: &Path, settings: Settings) -> Store {
    let clock = Arc::new(ManualClock::new(START));
    Store::open(dir, clock, Arc::new(Signals::default()), settings).unwrap().0
}

async fn has_jobs(store: &Store, jobs: &[JobId]) {
    let mut ended = 0;
    for id in jobs {
        let record = store.job(&endpoint("a"), *id).await.unwrap().unwrap();
        let has_ended = record.status == JobStatus::Completed;
        ended += usize::from(has_ended);
        let (payload, expected) = match has_ended {
            true => (store.output(*id).await, "1"),
            false => (store.input(*id).await, r#"{"n":1}"#),
        };
        assert_eq!(payload.unwrap(), Some(json(expected)), "{id}");
    }
    assert_eq!((store.stats().jobs, ended), (jobs.len() as u64, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_keeps_all_jobs_and_a_way_back() {
    for is_closed in [true, false] {
        let (dir, jobs) = directory(is_closed).await;
        let before = tables_and_journal(dir.path());
        let (store, recovery) = open(dir.path(), LATER).unwrap();
        assert_eq!((recovery.upgraded, recovery.was_clean), (Some(UPGRADE), is_closed));
        has_jobs(&store, &jobs).await;
        let copy = dir.path().join(UPGRADE.copy());
        assert_eq!(tables_and_journal(&copy), before);
        submit(&store, job("a")).await;
        store.close().await;
        let db = Connection::open(dir.path().join("store.db")).unwrap();
        let weights = "SELECT count(*) FROM job WHERE weight = seq + 7";
        let upgraded: i64 = db.query_row(weights, (), |row| row.get(0)).unwrap();
        assert!((1..=40).contains(&upgraded), "{upgraded} jobs were in the tables");
        assert!(db.table_exists(None, "sack").unwrap());
        drop(db);

        // The next start finds a directory of the newest version, and leaves the copy alone.
        let (store, recovery) = open(dir.path(), LATER).unwrap();
        assert_eq!((recovery.upgraded, store.stats().jobs), (None, 41));
        drop(store);
        assert_eq!(tables_and_journal(&copy), before);

        // The program of the first version refuses it, and changes nothing.
        let after = tables_and_journal(dir.path());
        let sentence = format!(
            "job store `{}` has schema version 2, this program reads version 1",
            dir.path().join("store.db").display()
        );
        let refused = open(dir.path(), Schema::PRODUCT).unwrap_err();
        assert_eq!(refused.to_string(), sentence);
        assert_eq!(check(dir.path(), None).unwrap_err().to_string(), sentence);
        assert_eq!(tables_and_journal(dir.path()), after);

        // The operator puts the copy in the place of the present tables and journal.
        fs::remove_dir_all(dir.path().join("journal")).unwrap();
        let _ = fs::remove_file(dir.path().join("store.db-wal"));
        for name in fs::read_dir(&copy).unwrap().map(|entry| entry.unwrap().file_name()) {
            fs::rename(copy.join(&name), dir.path().join(&name)).unwrap();
        }
        fs::remove_dir(&copy).unwrap();
        assert_eq!(check(dir.path(), None).unwrap().damage, []);
        let (store, recovery) = open(dir.path(), Schema::PRODUCT).unwrap();
        assert_eq!((recovery.upgraded, recovery.was_clean), (None, is_closed));
        has_jobs(&store, &jobs).await;
    }
}

/// A copy that an earlier upgrade has left, and that the operator has taken back, is replaced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_replaces_an_earlier_copy() {
    let (dir, jobs) = directory(true).await;
    let copy = dir.path().join(UPGRADE.copy());
    for left in [copy.clone(), copy.with_added_extension("unfinished")] {
        fs::create_dir(&left).unwrap();
        fs::write(left.join("store.db"), "of an earlier upgrade").unwrap();
    }
    let before = tables_and_journal(dir.path());
    let (store, _) = open(dir.path(), LATER).unwrap();
    has_jobs(&store, &jobs).await;
    assert_eq!(tables_and_journal(&copy), before);
    assert!(!copy.with_added_extension("unfinished").exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_whose_version_is_too_old_is_refused_and_left_alone() {
    let (dir, _) = directory(false).await;
    let before = tables_and_journal(dir.path());
    let refused = open(dir.path(), LATEST).unwrap_err().to_string();
    assert!(refused.contains("has schema version 1, this program reads version 2"), "{refused}");
    let gap = Schema { newest: 3, ..LATEST };
    let refused = open(dir.path(), gap).unwrap_err().to_string();
    assert!(refused.contains("this program reads versions 2 to 3"), "{refused}");
    assert_eq!(tables_and_journal(dir.path()), before);
}

/// A migration that fails, such as one that meets a row it did not expect, leaves the old version
/// and the copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_that_fails_leaves_a_directory_of_the_old_version() {
    const FAILING: Schema = Schema {
        migrations: &[
            Schema::PRODUCT.migrations[0],
            (
                "V2__wrong",
                "ALTER TABLE job ADD COLUMN weight INTEGER; ALTER TABLE no_such_table RENAME TO x;",
            ),
        ],
        ..LATER
    };
    let (dir, jobs) = directory(false).await;
    assert!(open(dir.path(), FAILING).is_err());
    let again = copy_of(dir.path());
    for dir in [dir.path(), again.path()] {
        let schema = if dir == again.path() { LATER } else { Schema::PRODUCT };
        let (store, recovery) = open(dir, schema).unwrap();
        assert_eq!(recovery.upgraded.is_some(), dir == again.path());
        has_jobs(&store, &jobs).await;
    }
}
