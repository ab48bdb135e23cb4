//! What a check finds and a repair saves, table by table: a check that finds nothing means that a
//! host starts and has all jobs, and a repair costs what is damaged and no more.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::damage::{copy_of, flip, full_store, newest};
use crate::support::{START, endpoint, job, settings, submit, worker};
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry};
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{JobId, OwnerId, ShardId, SubmissionKind, TemplateId};
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::record::{NewJob, Outcome};
use gristmill_core::signals::Signals;
use gristmill_core::store::{Fenced, JobStore as _, StoreError, SubmitAnswer};
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_store::{OpenError, Repaired, Settings, Store, check, repair};
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use tempfile::TempDir;

const PAGE: usize = 8_192;

fn open_at(dir: &Path, now: Timestamp, settings: Settings) -> Result<Store, OpenError> {
    let clock = Arc::new(ManualClock::new(now));
    Ok(Store::open(dir, clock, Arc::new(Signals::default()), settings)?.0)
}

fn open(dir: &Path) -> Result<Store, OpenError> {
    open_at(dir, START, settings())
}

fn tables(dir: &Path) -> Connection {
    Connection::open(dir.join("store.db")).unwrap()
}

fn number(dir: &Path, sql: &str) -> i64 {
    tables(dir).query_row(sql, (), |row| row.get(0)).unwrap()
}

/// A copy of a directory, changed by this statement.
fn changed(dir: &Path, sql: &str) -> TempDir {
    let copy = copy_of(dir);
    assert!(tables(copy.path()).execute(sql, ()).unwrap() > 0, "{sql}");
    copy
}

fn sentences(repaired: &Repaired) -> Vec<String> {
    repaired.losses.iter().map(ToString::to_string).collect()
}

fn repaired(dir: &Path) -> (TempDir, Repaired) {
    let new = tempfile::tempdir().unwrap();
    let repaired = repair(dir, new.path(), None).unwrap();
    (new, repaired)
}

fn keyed() -> NewJob {
    NewJob { idempotency: Some(Idempotency { key: [1; 16], content: [2; 16] }), ..job("a") }
}

/// A directory without a journal: all rows are in the tables. It has a waiting job with an
/// idempotency key, and a failed job with a webhook.
async fn without_journal() -> (TempDir, JobId) {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let webhook = Some("https://hooks.example/x".to_owned());
    submit(&store, NewJob { webhook, ..job("a") }).await;
    let claimed = store.claim_each(&endpoint("a"), &[worker("w")]).await.unwrap();
    let failed = store.finish(claimed[0].lease, Outcome::Failed("no".to_owned())).await;
    assert_eq!(failed, Ok(Fenced::Applied));
    let waiting = submit(&store, keyed()).await;
    store.close().await;
    drop(store);
    let (new, repaired) = repaired(dir.path());
    assert_eq!((sentences(&repaired), repaired.jobs), (vec![], 2));
    assert_eq!(check(new.path(), None).unwrap().damage, []);
    for table in ["delivery", "repeat"] {
        assert_eq!(number(new.path(), &format!("SELECT count(*) FROM {table}")), 1, "{table}");
    }
    (new, waiting)
}

/// Adds rows to a table: copies of its first row, with these values of some columns.
fn add_rows(
    db: &Connection,
    table: &str,
    columns: &[&str],
    rows: impl Iterator<Item = Vec<Value>>,
) {
    let mut first = db.prepare(&format!("SELECT * FROM {table} LIMIT 1")).unwrap();
    let names: Vec<String> = first.column_names().map(str::to_owned).collect();
    let values = |row: &rusqlite::Row<'_>| -> rusqlite::Result<Vec<Value>> {
        (0..names.len()).map(|column| row.get(column)).collect()
    };
    let mut row: Vec<Value> = first.query_row((), values).unwrap();
    let holes = vec!["?"; names.len()].join(", ");
    let sql = format!("INSERT INTO {table} ({}) VALUES ({holes})", names.join(", "));
    let mut insert = db.prepare(&sql).unwrap();
    for new in rows {
        for (column, value) in columns.iter().zip(new) {
            row[names.iter().position(|name| name == column).unwrap()] = value;
        }
        insert.execute(params_from_iter(&row)).unwrap();
    }
}

/// The leaves of a table in the order of their rows, each with the number of its rows. The table
/// has two levels.
fn leaves(bytes: &[u8], root: u32) -> Vec<(usize, usize)> {
    let number = |at: usize, len: usize| {
        bytes[at..at + len].iter().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let root = (root as usize - 1) * PAGE;
    assert!([2, 5].contains(&bytes[root]), "the root leads to the leaves");
    let cells = number(root + 3, 2);
    let children = (0..cells).map(|cell| number(root + number(root + 12 + 2 * cell, 2), 4));
    let children = children.chain([number(root + 8, 4)]);
    children.map(|page| (page - 1) * PAGE).map(|at| (at, number(at + 3, 2))).collect()
}

/// Makes these leaves of a table unreadable, and returns the number of their rows.
fn break_leaves(dir: &Path, table: &str, broken: &[usize]) -> usize {
    let db = tables(dir);
    db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = ?1";
    let root = db.query_row(sql, [table], |row| row.get(0)).unwrap();
    drop(db);
    let file = dir.join("store.db");
    let mut bytes = fs::read(&file).unwrap();
    let leaves = leaves(&bytes, root);
    let mut rows = 0;
    for leaf in broken {
        let (at, count) = leaves[*leaf];
        bytes[at] = 0x77;
        rows += count;
    }
    fs::write(&file, bytes).unwrap();
    rows
}

#[tokio::test]
async fn two_damaged_pages_of_jobs_cost_the_jobs_in_them() {
    const ADDED: i64 = 2_000;
    let (dir, _) = without_journal().await;
    let db = tables(dir.path());
    db.execute("DELETE FROM job WHERE seq = (SELECT min(seq) FROM job)", ()).unwrap();
    db.execute("DELETE FROM delivery", ()).unwrap();
    // With gaps between the numbers, as deleted jobs leave them.
    let numbers = || (0..ADDED).map(|n| 10 + n + n / 7 * 1_000);
    let new_id = || JobId::generate(SubmissionKind::Async, ShardId(7)).to_bytes().to_vec();
    let rows = numbers().map(|seq| vec![Value::Integer(seq), Value::Blob(new_id())]);
    add_rows(&db, "job", &["seq", "id"], rows);
    add_rows(&db, "input", &["seq"], numbers().map(|seq| vec![Value::Integer(seq)]));
    drop(db);
    let lost = break_leaves(dir.path(), "job", &[4, 9]);
    assert!((20..500).contains(&lost), "{lost}");
    let (new, repaired) = repaired(dir.path());
    let said = sentences(&repaired);
    assert_eq!(repaired.jobs, (1 + ADDED as usize - lost) as u64, "{said:?}");
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said.iter().all(|said| said.contains("the table `job` cannot be read after seq ")));
    assert_eq!(open(new.path()).unwrap().stats().jobs, repaired.jobs);
}

/// The rows of an hour have the same first number, and fill several pages.
#[tokio::test]
async fn a_damaged_page_of_an_hour_of_usage_costs_the_rows_in_it() {
    let (dir, _) = without_journal().await;
    let db = tables(dir.path());
    let row = "INSERT INTO usage VALUES (100, 'e', 't', 'o', 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)";
    db.execute(row, ()).unwrap();
    let rows = (0..3_000).map(|n| vec![Value::Integer(n / 1_000), Value::Text(format!("e{n:04}"))]);
    add_rows(&db, "usage", &["hour", "endpoint"], rows);
    drop(db);
    let lost = break_leaves(dir.path(), "usage", &[8]);
    let (new, repaired) = repaired(dir.path());
    let kept = number(new.path(), "SELECT count(*) FROM usage");
    // A row between two leaves is in neither.
    assert!(
        (3_001 - lost as i64 - 1..=3_001).contains(&kept),
        "{lost}: {:?}",
        sentences(&repaired)
    );
    assert_eq!(repaired.losses.len(), 1);
}

#[tokio::test]
async fn a_damaged_row_that_a_start_reads_is_found_and_left_out() {
    let (dir, waiting) = without_journal().await;
    let hour = START.as_millis() / 3_600_000;
    let usage =
        format!("INSERT INTO usage VALUES ({hour}, 'e', 't', '', 1, 1, 1, 1, 1, 1, 1, 1, 1, 1)");
    let id = "ff".repeat(19);
    for (sql, name) in [
        ("UPDATE delivery SET job_status = 'FAILEE'", "delivery"),
        ("UPDATE delivery SET state = 4", "delivery"),
        ("UPDATE delivery SET made = x'ff'", "delivery"),
        (&format!("UPDATE delivery SET job = x'{id}'"), "delivery"),
        (&format!("UPDATE repeat SET job = x'{id}'"), "repeat"),
        ("UPDATE repeat SET key = x'00'", "repeat"),
        (&usage, "usage"),
    ] {
        let damaged = changed(dir.path(), sql);
        let refused = open(copy_of(damaged.path()).path()).map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::Damaged(_)), "{sql}: {refused}");
        let damage = check(damaged.path(), None).unwrap().damage;
        assert_eq!(damage.len(), 1, "{sql}: {damage:?}");
        assert!(damage[0].details.contains(&format!("the table `{name}`")), "{damage:?}");
        let (new, repaired) = repaired(damaged.path());
        assert_eq!((repaired.losses.len(), repaired.jobs), (1, 2), "{sql}: {repaired:?}");
        assert_eq!(check(new.path(), None).unwrap().damage, [], "{sql}");
        let store = open(new.path()).unwrap();
        assert!(store.job(&endpoint("a"), waiting).await.unwrap().is_some(), "{sql}");
    }
}

#[tokio::test]
async fn a_missing_part_is_found_by_a_check_and_costs_its_job_and_its_key() {
    let (dir, waiting) = without_journal().await;
    let body = changed(dir.path(), "DELETE FROM delivery_body");
    let damage = check(body.path(), None).unwrap().damage;
    assert!(damage.len() == 1 && damage[0].details.contains("its body is missing"), "{damage:?}");

    let input = "DELETE FROM input WHERE seq = (SELECT seq FROM repeat)";
    let damaged = changed(dir.path(), input);
    let damage = check(damaged.path(), None).unwrap().damage;
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(damage[0].details, format!("job {waiting}: its input cannot be read"));
    let (new, repaired) = repaired(damaged.path());
    assert_eq!((repaired.losses.len(), repaired.jobs), (1, 1), "{repaired:?}");
    let store = open(new.path()).unwrap();
    assert_eq!(store.submit(keyed()).await, Ok(SubmitAnswer::Queued), "the job is lost");
}

/// The frame with the submission is damaged; a later one has a change of the job, and the tables
/// have the key.
#[tokio::test]
async fn the_key_of_a_lost_submission_can_be_used_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    submit(&store, keyed()).await;
    store.close().await;
    drop(store);
    let segment = newest(dir.path());
    let end = fs::read(&segment).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    let store = open(dir.path()).unwrap();
    let claimed = store.claim_each(&endpoint("a"), &[worker("w")]).await.unwrap();
    store.flush().await.unwrap();
    assert_eq!(claimed.len(), 1);
    store.close().await;
    drop(store);
    flip(&segment, end - 10);
    let (new, repaired) = repaired(dir.path());
    let said = sentences(&repaired);
    assert!(said.iter().any(|said| said.contains("its submission cannot be read")), "{said:?}");
    let store = open(new.path()).unwrap();
    assert_eq!(store.submit(keyed()).await, Ok(SubmitAnswer::Queued), "{said:?}");
}

#[tokio::test]
async fn a_start_after_a_repair_detects_a_wrong_clock() {
    let (dir, _) = without_journal().await;
    open(dir.path()).unwrap().close().await;
    let (new, _) = repaired(dir.path());
    let starts = "SELECT starts FROM meta";
    assert!(number(dir.path(), starts) > 0);
    assert_eq!(number(new.path(), starts), number(dir.path(), starts), "no epoch is used again");
    let later = START.plus_millis(40 * 86_400_000);
    let guarded = Settings { clock_jump_max_ms: Some(3_600_000), ..settings() };
    let refused = open_at(new.path(), later, guarded).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::ClockJumped { jobs: 1, .. }), "{refused}");
    assert_eq!(open(new.path()).unwrap().stats().jobs, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_location_of_a_payload_costs_its_job_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, jobs) = full_store(dir.path()).await;
    store.close().await;
    drop(store);
    let of_input = "seq = (SELECT min(seq) FROM kept WHERE kind = 0)";
    for (column, value) in
        [("kind", "7"), ("kind", "1"), ("segment", "5000000000"), ("at", "at + 1")]
    {
        let sql = format!("UPDATE kept SET {column} = {value} WHERE {of_input}");
        let damaged = changed(dir.path(), &sql);
        let damage = check(damaged.path(), None).unwrap().damage;
        assert!(!damage.is_empty(), "{sql}");
        let (new, repaired) = repaired(damaged.path());
        assert_eq!(repaired.jobs, jobs.len() as u64 - 1, "{sql}: {:?}", sentences(&repaired));
        assert_eq!(check(new.path(), None).unwrap().damage, []);
        assert_eq!(open(new.path()).unwrap().stats().jobs, repaired.jobs);
    }
    // An output is no input: it has no end.
    let sql = "UPDATE kept SET kind = 0 WHERE kind = 1";
    if number(dir.path(), "SELECT count(*) FROM kept WHERE kind = 1") > 0 {
        let damaged = changed(dir.path(), sql);
        assert!(!check(damaged.path(), None).unwrap().damage.is_empty());
        let (_new, repaired) = repaired(damaged.path());
        assert!(!repaired.losses.is_empty() && repaired.jobs < jobs.len() as u64);
    }
}

#[tokio::test]
async fn a_repair_makes_files_that_only_their_owner_reads() {
    let (dir, _) = without_journal().await;
    let new = tempfile::tempdir().unwrap();
    fs::set_permissions(new.path(), fs::Permissions::from_mode(0o755)).unwrap();
    repair(dir.path(), new.path(), None).unwrap();
    for entry in fs::read_dir(new.path()).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "{:?} has mode {mode:o}", entry.file_name());
    }
}

#[tokio::test]
async fn an_end_of_the_journal_that_a_start_refuses_is_damage_in_both_directions() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    for _ in 0..3 {
        submit(&store, job("a")).await;
    }
    store.close().await;
    drop(store);
    for (change, where_it_is) in [("- 1", "frames follow"), ("+ 4096", "cannot be read")] {
        let sql = format!("UPDATE meta SET journal_end = journal_end {change}");
        let damaged = changed(dir.path(), &sql);
        let refused = open(copy_of(damaged.path()).path()).map(drop).unwrap_err();
        assert!(matches!(refused, OpenError::Damaged(_)), "{sql}: {refused}");
        let damage = check(damaged.path(), None).unwrap().damage;
        assert_eq!(damage.len(), 1, "{sql}: {damage:?}");
        assert!(damage[0].details.contains(where_it_is), "{damage:?}");
        let (new, repaired) = repaired(damaged.path());
        assert_eq!(repaired.jobs, 3);
        assert_eq!(open(new.path()).unwrap().stats().jobs, 3);
    }
}

/// One finding for each missing number would fill the memory.
#[tokio::test]
async fn missing_segments_are_listed_as_a_range() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    submit(&store, job("a")).await;
    store.close().await;
    drop(store);
    let damaged = changed(dir.path(), "UPDATE meta SET journal_last = 4000000000");
    let damage = check(damaged.path(), None).unwrap().damage;
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert_eq!(damage[0].details, "segments 2 to 4000000000 of the journal are missing");
    let (new, repaired) = repaired(damaged.path());
    assert_eq!((repaired.losses.len(), repaired.jobs), (1, 1));
    submit(&open(new.path()).unwrap(), job("a")).await;
}

/// A closed directory with one record in the catalog, and with a waiting job.
async fn with_one_record() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).unwrap());
    let catalog = Catalog::open(store.clone(), Arc::new(ManualClock::new(START))).await.unwrap();
    let id = TemplateId::new("t").unwrap();
    let template = Template::new(id, OwnerId::operator(), "mill");
    let changes = vec![CatalogChange::Put(CatalogEntry::Template(template))];
    catalog.change(|_| Ok::<_, StoreError>((changes, ()))).await.unwrap();
    store.close().await;
    dir
}

fn flip_blob(dir: &Path, table: &str, column: &str) {
    let db = tables(dir);
    let sql = format!("SELECT {column} FROM {table}");
    let mut bytes: Vec<u8> = db.query_row(&sql, (), |row| row.get(0)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    assert_eq!(db.execute(&format!("UPDATE {table} SET {column} = ?1"), [bytes]).unwrap(), 1);
}

#[tokio::test]
async fn a_damaged_text_that_shows_the_keys_is_written_again_if_the_key_is_right() {
    let dir = with_one_record().await;
    flip_blob(dir.path(), "meta", "sealed");
    assert!(open(copy_of(dir.path()).path()).is_err());
    assert_eq!(check(dir.path(), None).unwrap().damage.len(), 1);
    let (new, repaired) = repaired(dir.path());
    let said = sentences(&repaired);
    assert!(said.len() == 1 && said[0].contains("which keys the directory needs"), "{said:?}");
    assert_eq!(check(new.path(), None).unwrap().damage, []);
    open(new.path()).unwrap();

    let key = dir.path().join("other.key");
    fs::write(&key, format!("{}\n", "ab".repeat(32))).unwrap();
    let output = tempfile::tempdir().unwrap();
    let refused = repair(dir.path(), output.path(), Some(&key)).unwrap_err();
    assert!(matches!(refused, OpenError::SecretsKey { .. }), "{refused}");
}

#[tokio::test]
async fn the_only_record_of_a_catalog_is_left_out_if_it_is_damaged() {
    let dir = with_one_record().await;
    flip_blob(dir.path(), "catalog", "body");
    let (new, repaired) = repaired(dir.path());
    let said = sentences(&repaired);
    assert!(
        said.len() == 1 && said[0].contains("the template `t` of the catalog is lost"),
        "{said:?}"
    );
    assert_eq!(check(new.path(), None).unwrap().damage, []);
    open(new.path()).unwrap();
}

/// A check and a repair read more than a start, and must not take a state that the first release or
/// a kill has left for damage.
#[test]
fn recorded_directories_are_undamaged() {
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/data");
    let mut count = 0;
    for entry in fs::read_dir(archives).unwrap() {
        let archive = entry.unwrap().path();
        if archive.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"postgres-"))
        {
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut unpack = std::process::Command::new("tar");
        unpack.arg("xzf").arg(&archive).args(["--no-same-owner", "-C"]).arg(folder.path());
        assert!(unpack.arg("data").status().unwrap().success());
        let dir = folder.path().join("data");
        let report = check(&dir, None).unwrap();
        assert_eq!(report.damage, [], "{}", archive.display());
        let components = report.kept_components.unwrap();
        assert!(!components.is_empty(), "{}", archive.display());
        for digest in components {
            assert!(dir.join(format!("components/{digest}.wasm")).exists());
        }
        let (new, repaired) = repaired(&dir);
        assert_eq!(sentences(&repaired), Vec::<String>::new(), "{}", archive.display());
        assert_eq!(check(new.path(), None).unwrap().damage, [], "{}", archive.display());
        count += 1;
    }
    assert!(count >= 2, "{count}");
}
