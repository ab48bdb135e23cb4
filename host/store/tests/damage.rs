//! Damage on the disk: a missing file and a flipped bit are detected before any data is shown, a
//! check lists all damage and changes nothing, and a repair saves the rest.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::support::{START, chunk, endpoint, job, json, settings, submit, worker};
use gristmill_core::catalog::{Catalog, CatalogChange, CatalogEntry, CatalogStore as _, Image};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::deploy::endpoint::{Deployment, Endpoint};
use gristmill_core::deploy::template::Template;
use gristmill_core::id::{EndpointId, JobId, OwnerId, TemplateId};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Demand, NewJob, Outcome};
use gristmill_core::job::state::JobStatus;
use gristmill_core::signals::{QueueListener, Signals};
use gristmill_core::store::{Fenced, JobStore, StoreError};
use gristmill_core::time::ManualClock;
use gristmill_store::{OpenError, Settings, Store, check, repair};
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use parking_lot::Mutex;
use tempfile::TempDir;

fn open(dir: &Path) -> Result<Store, OpenError> {
    open_with(dir, settings())
}

fn open_with(dir: &Path, settings: Settings) -> Result<Store, OpenError> {
    let clock = Arc::new(ManualClock::new(START));
    Ok(Store::open(dir, clock, Arc::new(Signals::default()), settings)?.0)
}

/// The demands that were reported.
#[derive(Default)]
struct Told(Mutex<Vec<Demand>>);

impl QueueListener for Told {
    fn demand_changed(&self, _: &EndpointId, demand: Demand) {
        self.0.lock().push(demand);
    }
}

/// A unique text of about `bytes`.
fn text(n: usize, bytes: usize) -> Json {
    json(&format!("\"{n} {}\"", "x".repeat(bytes)))
}

async fn submit_text(store: &Store, n: usize, bytes: usize) -> JobId {
    submit(store, NewJob { input: text(n, bytes), ..job("a") }).await
}

pub(crate) fn copy_of(dir: &Path) -> TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_files(dir, copy.path());
    copy
}

fn copy_files(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir(&to).unwrap();
            copy_files(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("journal")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

pub(crate) fn newest(dir: &Path) -> PathBuf {
    segments(dir).pop().unwrap()
}

/// The bytes of the frames of a segment that was used once.
fn used(file: &Path) -> usize {
    let bytes = fs::read(file).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1
}

pub(crate) fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 1 << (at % 8);
    fs::write(file, bytes).unwrap();
}

fn refusal(dir: &Path) -> String {
    let refused = open(dir).map(drop).unwrap_err();
    assert!(matches!(refused, OpenError::Damaged(_)), "{refused}");
    let text = refused.to_string();
    assert!(text.contains(dir.to_str().unwrap()), "{text}");
    for remedy in ["gristmill check --data-dir", "gristmill repair --data-dir", "backup"] {
        assert!(text.contains(remedy), "{text}");
    }
    text
}

/// The ends of the frames of the only segment.
fn frame_ends(file: &Path) -> Vec<usize> {
    let bytes = fs::read(file).unwrap();
    let (mut at, mut ends) = (32, Vec::new());
    loop {
        let number = |from: usize| {
            let field =
                bytes.get(at + from..at + from + 4).map_or([0; 4], |it| it.try_into().unwrap());
            u32::from_le_bytes(field) as usize
        };
        if number(8) == 0 {
            return ends;
        }
        let len = 16 + number(8) + number(12);
        at += len;
        if len >= 64 << 10 {
            at = at.next_multiple_of(4_096);
        }
        ends.push(at);
    }
}

#[tokio::test]
async fn a_flipped_bit_is_noticed_after_an_orderly_end_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    for n in 0..12 {
        submit_text(&store, n, 40).await;
    }
    store.close().await;
    drop(store);
    let end = used(&newest(dir.path()));
    for at in (0..end).step_by(97).chain([31, end - 1]) {
        let copy = copy_of(dir.path());
        flip(&newest(copy.path()), at);
        for start in 0..2 {
            let text = refusal(copy.path());
            assert!(text.contains("000001.seg` at byte"), "start {start}, byte {at}: {text}");
        }
    }
    for (cut, what) in [(end - 1, "its last byte"), (40, "most of it"), (0, "all of it")] {
        let copy = copy_of(dir.path());
        fs::File::options()
            .write(true)
            .open(newest(copy.path()))
            .unwrap()
            .set_len(cut as u64)
            .unwrap();
        refusal(copy.path());
        println!("the newest segment without {what} is refused");
    }
    let copy = copy_of(dir.path());
    fs::remove_file(newest(copy.path())).unwrap();
    let text = refusal(copy.path());
    assert!(text.contains("segment 1 of the journal is missing"), "{text}");
    assert_eq!(open(dir.path()).unwrap().stats().jobs, 12, "the directory itself is whole");
}

#[tokio::test]
async fn a_flipped_bit_is_noticed_after_a_crash_when_anything_follows() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    for n in 0..12 {
        submit_text(&store, n, [40, 20_000, 100_000][n % 3]).await;
    }
    drop(store);
    let segment = newest(dir.path());
    let (end, ends) = (used(&segment), frame_ends(&segment));
    let last = ends.iter().rev().find(|at| **at < end).copied().unwrap_or(32);
    for at in (0..last).step_by(9_973).chain([5, 33, 40, last - 1]) {
        let copy = copy_of(dir.path());
        flip(&newest(copy.path()), at);
        for _ in 0..2 {
            refusal(copy.path());
        }
    }
    // The last frame may have been incomplete.
    let copy = copy_of(dir.path());
    flip(&newest(copy.path()), last + 20);
    assert_eq!(open(copy.path()).unwrap().stats().jobs, 11);
    // There is nothing behind the last frame.
    let copy = copy_of(dir.path());
    flip(&newest(copy.path()), end + 5);
    assert_eq!(open(copy.path()).unwrap().stats().jobs, 12);
}

#[tokio::test]
async fn a_newest_segment_that_is_missing_after_a_crash_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    submit_text(&open(dir.path()).unwrap(), 1, 40).await;
    // The next start records the segment that it finds. It may begin another one before it ends,
    // which no start has recorded.
    drop(open(dir.path()).unwrap());
    for segment in segments(dir.path()) {
        fs::remove_file(segment).unwrap();
    }
    let text = refusal(dir.path());
    assert!(text.contains("of the journal is missing"), "{text}");
}

/// The content of all files of a directory, and their times of modification.
fn files(dir: &Path) -> BTreeMap<PathBuf, (Vec<u8>, i64, i64)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::metadata(&path).unwrap();
        let times = (metadata.mtime(), metadata.mtime_nsec());
        let bytes = if path.is_dir() { Vec::new() } else { fs::read(&path).unwrap() };
        if path.is_dir() {
            found.extend(files(&path));
        }
        found.insert(path, (bytes, times.0, times.1));
    }
    found
}

/// A store with small payloads in the tables, large ones in the journal, and new jobs that are not
/// checkpointed.
pub(crate) async fn full_store(dir: &Path) -> (Store, Vec<(JobId, usize, usize)>) {
    let settings = Settings { segment_bytes: 64 << 10, journal_bytes: 0, ..settings() };
    let settings = Settings { payload_cache_bytes: 0, chunk_cache_bytes: 0, ..settings };
    let store = open_with(dir, settings).unwrap();
    let mut jobs = Vec::new();
    for n in 0..40 {
        let bytes = [100, 30_000][n % 2];
        jobs.push((submit_text(&store, n, bytes).await, n, bytes));
    }
    for _ in 0..8 {
        let claimed = store.claim(&endpoint("a"), &worker("w")).await.unwrap().unwrap();
        let _ = store.append_chunks(claimed.lease, vec![chunk("7"); 3]).await.unwrap();
        let outcome = Outcome::Completed(claimed.input.clone());
        let _ = store.finish(claimed.lease, outcome).await.unwrap();
    }
    for n in 40..60 {
        let bytes = [100, 30_000][n % 2];
        jobs.push((submit_text(&store, n, bytes).await, n, bytes));
    }
    (store, jobs)
}

async fn assert_holds(store: &Store, jobs: &[(JobId, usize, usize)]) {
    for (n, (id, number, bytes)) in jobs.iter().enumerate() {
        let record = store.job(&endpoint("a"), *id).await.unwrap().unwrap();
        if n < 8 {
            assert_eq!(record.status, JobStatus::Completed);
            assert_eq!(store.output(*id).await.unwrap(), Some(text(*number, *bytes)));
            assert_eq!(store.chunks(*id, 0, 99, 99).await.unwrap().chunks.len(), 3);
        } else {
            assert_eq!(record.status, JobStatus::InQueue);
            assert_eq!(store.input(*id).await.unwrap(), Some(text(*number, *bytes)), "{n}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_changes_nothing_and_a_repair_of_a_whole_directory_loses_nothing() {
    for is_clean in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let (store, jobs) = full_store(dir.path()).await;
        let refused = check(dir.path(), None).map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains("in use"), "{refused}");
        if is_clean {
            store.close().await;
        }
        drop(store);
        let before = files(dir.path());
        let report = check(dir.path(), None).unwrap();
        assert_eq!(report.damage, [], "{report:?}");
        assert!(report.payloads > 0 && report.frames > 0 && report.jobs > 0, "{report:?}");
        let output = tempfile::tempdir().unwrap();
        let salvaged = repair(dir.path(), output.path(), None).unwrap();
        assert!(files(dir.path()) == before, "looking at it has changed it");
        assert_eq!((salvaged.losses, salvaged.jobs), (Vec::new(), 60));
        assert_eq!(check(output.path(), None).unwrap().damage, []);
        assert_holds(&open(output.path()).unwrap(), &jobs).await;
        assert_holds(&open(dir.path()).unwrap(), &jobs).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_saves_data_before_and_after_the_damage() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).unwrap();
    let mut jobs = Vec::new();
    for n in 0..30 {
        jobs.push(submit_text(&store, n, 200).await);
    }
    drop(store);
    let segment = newest(dir.path());
    // The start has written the first frame.
    let ends = frame_ends(&segment);
    assert_eq!(ends.len(), 31);
    for job in [9, 10, 20] {
        flip(&segment, ends[job + 1] - 30);
    }
    refusal(dir.path());
    let report = check(dir.path(), None).unwrap();
    let offsets: Vec<_> = report.damage.iter().map(|damage| damage.offset.unwrap()).collect();
    assert_eq!(offsets, [ends[9] as u64, ends[20] as u64], "{report:?}");
    assert!(report.damage.iter().all(|damage| damage.file == segment));

    let output = tempfile::tempdir().unwrap();
    let salvaged = repair(dir.path(), output.path(), None).unwrap();
    assert_eq!(salvaged.jobs, 27);
    assert_eq!(salvaged.losses.len(), 2, "{salvaged:?}");
    let store = open(output.path()).unwrap();
    for (n, id) in jobs.iter().enumerate() {
        let expected = (![9, 10, 20].contains(&n)).then(|| text(n, 200));
        assert_eq!(store.input(*id).await.unwrap(), expected, "{n}");
    }
    submit_text(&store, 99, 10).await;
    store.close().await;
    drop(store);
    assert_eq!(open(output.path()).unwrap().stats().jobs, 28, "it is a store like any other");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_payload_is_an_error_of_its_job_alone() {
    let dir = tempfile::tempdir().unwrap();
    let (store, jobs) = full_store(dir.path()).await;
    drop(store);
    // In the text of the first waiting job that stays in the journal, and of one in the tables.
    let (large, small) = (jobs[9], jobs[10]);
    let damage = |file: &Path, number: usize| {
        let mut bytes = fs::read(file).unwrap();
        let needle = format!("\"{number} xxxx");
        let found = bytes.windows(needle.len()).position(|part| part == needle.as_bytes());
        if let Some(at) = found {
            bytes[at + 9] ^= 1;
            fs::write(file, bytes).unwrap();
        }
        found.is_some()
    };
    assert!(segments(dir.path()).iter().any(|file| damage(file, large.1)));
    // The newest pages of the tables are in the log, which has checksums: an orderly end moves
    // them.
    let store = open(dir.path()).unwrap();
    store.close().await;
    drop(store);
    assert!(damage(&dir.path().join("store.db"), small.1));
    let report = check(dir.path(), None).unwrap();
    assert_eq!(report.damage.len(), 2, "{report:?}");

    let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
    let store = Store::open(dir.path(), clock, signals.clone(), settings()).unwrap().0;
    let told = Arc::new(Told::default());
    signals.set_queue_listener(told.clone());
    for (id, ..) in [large, small] {
        let refused = store.input(id).await.unwrap_err();
        assert!(matches!(refused, StoreError::Damaged(_)), "{refused}");
    }
    let mut claimed = 0;
    // A worker that finds no job sleeps, so a damaged one must not hide those behind it.
    while let Some(job) = store.claim(&endpoint("a"), &worker("w")).await.unwrap() {
        claimed += 1;
        let _ = store.finish(job.lease, Outcome::Completed(json("1"))).await.unwrap();
    }
    assert_eq!(claimed, 60 - 8 - 2, "the others run");
    assert_eq!(told.0.lock().len(), 2, "no answer of a claim has the demand behind a damaged job");
    assert_eq!(store.counts(&endpoint("a")).await.unwrap().in_queue, 0);
    store.flush().await.unwrap();
    for (id, ..) in [large, small] {
        let record = store.job(&endpoint("a"), id).await.unwrap().unwrap();
        assert_eq!(record.status, JobStatus::Failed);
        assert_eq!(record.error.as_deref(), Some("the stored input of the job is damaged"));
    }
    drop(store);

    let output = tempfile::tempdir().unwrap();
    let salvaged = repair(dir.path(), output.path(), None).unwrap();
    assert_eq!(salvaged.jobs, 58, "{salvaged:?}");
    assert_eq!(check(output.path(), None).unwrap().damage, []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_with_a_page_that_cannot_be_read_are_saved_around_it() {
    let dir = tempfile::tempdir().unwrap();
    let (store, jobs) = full_store(dir.path()).await;
    store.close().await;
    drop(store);
    let file = dir.path().join("store.db");
    let whole = fs::read(&file).unwrap();
    let pages = whole.len() / 8_192;
    let mut saved = 0;
    for page in 1..pages {
        let mut bytes = whole.clone();
        bytes[page * 8_192..page * 8_192 + 200].fill(0xff);
        let copy = copy_of(dir.path());
        fs::write(copy.path().join("store.db"), bytes).unwrap();
        let output = tempfile::tempdir().unwrap();
        // The damage may be in an unused page, or in the one row of `meta`.
        let Ok(salvaged) = repair(copy.path(), output.path(), None) else { continue };
        let store = open(output.path()).unwrap();
        assert_eq!(store.stats().jobs, salvaged.jobs);
        if salvaged.jobs < 60 {
            assert!(!salvaged.losses.is_empty(), "page {page}");
        }
        for (id, n, bytes) in &jobs[8..] {
            if let Some(input) = store.input(*id).await.unwrap() {
                assert_eq!(input, text(*n, *bytes));
                saved += 1;
            }
        }
    }
    assert!(saved > 0);
}

/// A catalog with the endpoint `e`, which runs `mill:latest` on the template `t`.
async fn catalog_of(store: Arc<Store>) {
    let clock = Arc::new(ManualClock::new(START));
    let catalog = Catalog::open(store, clock).await.unwrap();
    let owner = OwnerId::operator();
    let digest = ComponentDigest::of(b"mill");
    let component = serde_json::json!({
        "digest": digest, "bytes": 4, "imports": [], "exports": [], "uploaded_at": START,
        "compile_ms": 1, "artifacts": {}, "owners": [owner],
        "compiled_bytes": 1, "producers": { "languages": [], "tools": [] },
    });
    let image = Image {
        name: "mill".to_owned(),
        tag: "latest".to_owned(),
        digest,
        owner: owner.clone(),
        updated_at: START,
        manifest: None,
    };
    let template = TemplateId::new("t").unwrap();
    let entries = [
        CatalogEntry::Component(serde_json::from_value(component).unwrap()),
        CatalogEntry::Image(image),
        CatalogEntry::Template(Template::new(template.clone(), owner.clone(), "mill")),
        CatalogEntry::Endpoint(Endpoint::new(endpoint("e"), owner, template, START)),
    ];
    let changes = entries.map(CatalogChange::Put).into();
    catalog.change(|_| Ok::<_, StoreError>((changes, ()))).await.unwrap();
}

/// The deployment of `e` in a repaired directory, in which the job still waits.
async fn deployment_with(waiting: JobId, dir: &Path) -> Arc<Deployment> {
    let store = Arc::new(open(dir).unwrap());
    let catalog = Catalog::open(store.clone(), Arc::new(ManualClock::new(START))).await.unwrap();
    let left = store.job(&endpoint("e"), waiting).await.unwrap().unwrap();
    assert_eq!(left.status, JobStatus::InQueue);
    catalog.deployment(&endpoint("e")).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_template_is_damage_that_deletes_nothing_and_a_repair_adds_a_placeholder() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).unwrap());
    catalog_of(store.clone()).await;
    let waiting = submit(&*store, job("e")).await;
    store.close().await;
    drop(store);
    assert_eq!(check(dir.path(), None).unwrap().damage, []);
    let tables = rusqlite::Connection::open(dir.path().join("store.db")).unwrap();
    tables.execute("DELETE FROM catalog WHERE kind = 'template'", ()).unwrap();
    drop(tables);

    let expected = "endpoint `e` uses template `t`, which is not in the catalog";
    let damage = check(dir.path(), None).unwrap().damage;
    assert_eq!(damage.len(), 1, "{damage:?}");
    assert!(damage[0].to_string().contains(expected), "{damage:?}");
    let clock = Arc::new(ManualClock::new(START));
    {
        let store = Arc::new(open(dir.path()).unwrap());
        let refused = Catalog::open(store.clone(), clock.clone()).await.unwrap_err().to_string();
        assert!(refused.contains(expected) && refused.contains("gristmill repair"), "{refused}");
        store.close().await;
    }

    let new = tempfile::tempdir().unwrap();
    let repaired = repair(dir.path(), new.path(), None).unwrap();
    let losses: Vec<_> = repaired.losses.iter().map(ToString::to_string).collect();
    assert_eq!((losses.len(), repaired.jobs), (1, 1), "{losses:?}");
    assert!(losses[0].contains(expected) && losses[0].contains("`mill`"), "{losses:?}");
    assert_eq!(check(new.path(), None).unwrap().damage, []);
    let deployment = deployment_with(waiting, new.path()).await;
    assert!(deployment.endpoint.settings.paused, "its jobs wait for the operator");
    assert_eq!(deployment.component, Some(ComponentDigest::of(b"mill")));
}

/// Flips a bit of the encrypted body of a record.
fn damage_record(dir: &Path, kind: &str) {
    let tables = rusqlite::Connection::open(dir.join("store.db")).unwrap();
    let sql = "SELECT body FROM catalog WHERE kind = ?1";
    let mut body: Vec<u8> = tables.query_row(sql, [kind], |row| row.get(0)).unwrap();
    let middle = body.len() / 2;
    body[middle] ^= 1;
    let sql = "UPDATE catalog SET body = ?1 WHERE kind = ?2";
    assert_eq!(tables.execute(sql, rusqlite::params![body, kind]).unwrap(), 1);
}

#[tokio::test]
async fn a_damaged_record_of_the_catalog_is_named_and_a_repair_keeps_the_jobs() {
    for (kind, name) in [("endpoint", "e"), ("template", "t")] {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(open(dir.path()).unwrap());
        catalog_of(store.clone()).await;
        let waiting = submit(&*store, job("e")).await;
        store.close().await;
        drop(store);
        damage_record(dir.path(), kind);

        let expected = format!("the {kind} `{name}` of the catalog");
        let refused = open(dir.path()).unwrap_err().to_string();
        assert!(refused.contains(&expected), "{refused}");
        let damage = check(dir.path(), None).unwrap().damage;
        assert!(damage[0].to_string().contains(&expected), "{damage:?}");

        let new = tempfile::tempdir().unwrap();
        let repaired = repair(dir.path(), new.path(), None).unwrap();
        let losses: Vec<_> = repaired.losses.iter().map(ToString::to_string).collect();
        assert_eq!((losses.len(), repaired.jobs), (2, 1), "{losses:?}");
        assert!(losses[0].contains(&expected), "{losses:?}");
        assert_eq!(check(new.path(), None).unwrap().damage, []);
        let deployment = deployment_with(waiting, new.path()).await;
        assert!(deployment.endpoint.settings.paused, "its jobs wait for the operator");
    }
}

/// The record of an endpoint is lost without a trace, as in a damaged page, and so is that of a
/// template.
#[tokio::test]
async fn an_endpoint_without_a_record_is_damage_and_a_repair_keeps_its_jobs() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).unwrap());
    catalog_of(store.clone()).await;
    let waiting = submit(&*store, job("e")).await;
    store.close().await;
    drop(store);
    let tables = rusqlite::Connection::open(dir.path().join("store.db")).unwrap();
    tables.execute("DELETE FROM catalog WHERE kind IN ('endpoint', 'template')", ()).unwrap();
    drop(tables);

    let damage = check(dir.path(), None).unwrap().damage;
    let expected = "endpoint `e` has 1 jobs, and no record in the catalog";
    assert!(damage[0].to_string().contains(expected), "{damage:?}");
    let new = tempfile::tempdir().unwrap();
    let repaired = repair(dir.path(), new.path(), None).unwrap();
    assert_eq!((repaired.losses.len(), repaired.jobs), (1, 1), "{:?}", repaired.losses);
    assert_eq!(check(new.path(), None).unwrap().damage, []);
    deployment_with(waiting, new.path()).await;
}

/// A crash comes between the deletion of the record and that of the jobs; the name may have been
/// used again by then.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_that_a_crash_interrupts_leaves_no_job_to_the_next_endpoint_of_its_name() {
    let e = endpoint("e");
    for (with_jobs, is_used_again) in [(true, false), (true, true), (false, true)] {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(open(dir.path()).unwrap());
        catalog_of(store.clone()).await;
        let mut old = vec![];
        for _ in 0..if with_jobs { 3 } else { 0 } {
            old.push(submit(&*store, job("e")).await);
        }
        let record = CatalogEntry::Endpoint(Endpoint::new(
            e.clone(),
            OwnerId::new("another").unwrap(),
            TemplateId::new("t").unwrap(),
            START,
        ));
        store.write_catalog(vec![CatalogChange::Delete(record.key())]).await.unwrap();
        if !with_jobs {
            // Its call came before the deletion.
            old.push(submit(&*store, job("e")).await);
        }
        if is_used_again {
            store.write_catalog(vec![CatalogChange::Put(record.clone())]).await.unwrap();
        }
        drop(store);
        for incarnation in 0..2 {
            let store = open(dir.path()).unwrap();
            let names: Vec<_> = store.endpoints().unwrap();
            assert_eq!(names.len(), incarnation, "{names:?}");
            for id in &old {
                assert!(store.job(&e, *id).await.unwrap().is_none(), "life {incarnation}");
            }
            let new = submit(&store, job("e")).await;
            let claimed = store.claim_each(&e, &[worker("w")]).await.unwrap();
            assert_eq!(claimed[0].lease.job, new);
            let ended = store.finish(claimed[0].lease, Outcome::Failed("x".into())).await;
            assert_eq!(ended, Ok(Fenced::Applied));
        }
    }
}

/// The first deletion is complete in the journal when the process dies; the second one, of an
/// endpoint of the same name, is only begun.
#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_is_continued_although_the_journal_has_an_earlier_one_of_its_name() {
    let e = endpoint("e");
    let dir = tempfile::tempdir().unwrap();
    let record = CatalogEntry::Endpoint(Endpoint::new(
        e.clone(),
        OwnerId::new("another").unwrap(),
        TemplateId::new("t").unwrap(),
        START,
    ));
    for life in 0..4 {
        let store = Arc::new(open(dir.path()).unwrap());
        if life == 0 {
            catalog_of(store.clone()).await;
            submit(&*store, job("kept")).await;
        }
        store.await_deletion(&e).await.unwrap();
        assert_eq!(store.stats().jobs, 1, "life {life}");
        store.write_catalog(vec![CatalogChange::Put(record.clone())]).await.unwrap();
        for _ in 0..3 {
            submit(&*store, job("e")).await;
        }
        store.write_catalog(vec![CatalogChange::Delete(record.key())]).await.unwrap();
        if life % 2 == 0 {
            store.delete_endpoint(&e).await.unwrap();
        }
    }
    let store = open(dir.path()).unwrap();
    let names: Vec<_> = store.endpoints().unwrap().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [endpoint("kept")]);
}

#[tokio::test]
async fn a_directory_of_an_interrupted_repair_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(".unfinished"), "").unwrap();
    let refused = open(dir.path()).unwrap_err().to_string();
    assert!(refused.contains("incomplete") && refused.contains("interrupted"), "{refused}");
    assert!(!dir.path().join("store.db").exists(), "no empty store is created in it");
    fs::remove_file(dir.path().join(".unfinished")).unwrap();
    open(dir.path()).unwrap().close().await;
}
