//! Ended jobs leave memory: every call finds them in the tables, changes bring them back, and
//! expiry, deletion, crashes and repairs treat them like all others.

#![allow(clippy::disallowed_methods, reason = "variables have the settings of a measurement")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::ended::{completed, ended, failed, listed, until_archived};
use crate::support::on_disk::OnDisk;
use crate::support::{
    START, archiving_at_once, chunk, endpoint, job, json, open_with, settings, stream_position,
    submit, worker,
};
use futures::FutureExt as _;
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::job::listing::JobQuery;
use gristmill_core::job::policy::Strictness;
use gristmill_core::job::record::NewJob;
use gristmill_core::job::state::JobStatus;
use gristmill_core::job::tags::Tags;
use gristmill_core::jobs::operations::Jobs;
use gristmill_core::jobs::stream::Position;
use gristmill_core::limits::RETENTION_ASYNC_MS;
use gristmill_core::sharing::disk_share::DiskAccount;
use gristmill_core::store::{
    Fenced, JobStore as _, NextExpiry, RetryAnswer, StoreError, StoreFull, SubmitAnswer,
};
use gristmill_core::time::ManualClock;
use gristmill_store::{OpenError, Settings, Store, check, repair};
use gristmill_test_support::NoWorkers;
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};

/// The archived jobs that a closed directory has.
fn archived_rows(t: &OnDisk) -> i64 {
    let db = rusqlite::Connection::open(t.dir.path().join("store.db")).unwrap();
    db.query_row("SELECT count(*) FROM job WHERE archived = 1", (), |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_read_finds_an_archived_job_and_leaves_it_where_it_is() {
    let mut t = OnDisk::new(archiving_at_once());
    let tags = Tags::new([("env", "prod"), ("run", "7")]).unwrap();
    let id = submit(t.store(), NewJob { tags: tags.clone(), ..job("a") }).await;
    assert_eq!(t.store().job(&endpoint("a"), id).await.unwrap().unwrap().tags, tags);
    let lease = t.claim().await;
    let chunks = vec![chunk("1"), chunk("2")];
    assert_eq!(t.store().append_chunks(lease, chunks).await, Ok(Fenced::Applied));
    assert_eq!(t.store().finish(lease, completed("[3]")).await, Ok(Fenced::Applied));
    let failed = ended(&t, job("a"), failed()).await;
    let record = async |t: &OnDisk, name: &str| {
        format!("{:?}", t.store().job(&endpoint(name), id).await.unwrap())
    };
    let before = record(&t, "a").await;
    for is_restarted in [false, true] {
        until_archived(&t, 2).await;
        if is_restarted {
            t.restart();
        }
        assert_eq!(record(&t, "a").await, before);
        assert_eq!(record(&t, "b").await, "None");
        assert_eq!(t.store().output(id).await, Ok(Some(json("[3]"))));
        assert_eq!(t.store().input(id).await, Ok(None));
        assert_eq!(t.store().input(failed).await, Ok(Some(json(r#"{"n":1}"#))));
        assert_eq!(t.store().chunks(id, 1, 100, 9).await.unwrap().chunks, [chunk("2")]);
        let cancelled = t.store().cancel(&endpoint("a"), id).await;
        assert_eq!(cancelled, Ok(Some(JobStatus::Completed)));
        assert_eq!(t.store().archived_jobs(), 2);
        assert_eq!(t.store().stats().jobs, 2);
        let mut counted = t.store().endpoints().unwrap();
        counted.retain(|(_, jobs)| *jobs > 0);
        assert_eq!(counted, [(endpoint("a"), 2)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_brings_an_archived_job_back() {
    let mut t = OnDisk::new(archiving_at_once());
    let id = ended(&t, job("a"), failed()).await;
    until_archived(&t, 1).await;
    let name = endpoint("a");
    assert_eq!(t.store().retry(&endpoint("b"), id, None).await, Ok(RetryAnswer::NotFound));
    assert_eq!(t.store().retry(&name, id, None).await, Ok(RetryAnswer::Queued));
    assert_eq!(t.store().archived_jobs(), 0);
    t.restart();
    let lease = t.claim().await;
    assert_eq!((lease.job, lease.claim.0), (id, 2));
    assert_eq!(t.store().append_chunks(lease, vec![chunk("1")]).await, Ok(Fenced::Applied));
    assert_eq!(t.store().finish(lease, completed("2")).await, Ok(Fenced::Applied));
    until_archived(&t, 1).await;
    let wrong = Ok(RetryAnswer::WrongStatus(JobStatus::Completed));
    assert_eq!(t.store().retry(&name, id, None).await, wrong);
    until_archived(&t, 1).await;
    t.store().shorten_ttl(&name, id, 70).await.unwrap();
    let record = t.store().job(&name, id).await.unwrap().unwrap();
    assert_eq!(record.purge_at, START.plus_millis(70));
    until_archived(&t, 1).await;
    t.store().mark_delivered(id, stream_position(2, 9)).await.unwrap();
    let record = t.store().job(&name, id).await.unwrap().unwrap();
    assert_eq!((record.chunks_delivered, t.store().archived_jobs()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_of_an_archived_jobs_stream_gets_each_page_once() {
    let mut t = OnDisk::new(archiving_at_once());
    let id = submit(t.store(), job("a")).await;
    let lease = t.claim().await;
    let chunks = vec![chunk("1"), chunk("2")];
    assert_eq!(t.store().append_chunks(lease, chunks).await, Ok(Fenced::Applied));
    assert_eq!(t.store().finish(lease, completed("3")).await, Ok(Fenced::Applied));
    until_archived(&t, 1).await;
    let store = Arc::new(t.store.take().unwrap());
    let workers = Arc::new(NoWorkers);
    let jobs =
        Jobs::new(store.clone(), Arc::default(), workers, Strictness::Refuse, Arc::default());
    let name = endpoint("a");
    let page = async || {
        let read = jobs.stream(&name, id, Position::Undelivered, Duration::ZERO, &()).await;
        read.unwrap().expect("the job exists").0.page
    };
    let first = page().await;
    assert_eq!(first.chunks.len(), 2);
    // Before the last byte is on the wire: the reader's next call may follow at once.
    assert_eq!(jobs.mark_delivered(id, first.end()).now_or_never(), Some(Ok(())));
    assert_eq!(page().await.chunks, []);
    assert_eq!(store.archived_jobs(), 0, "a reader may follow at once");
    drop((jobs, first));
    t.clock.advance(60_000);
    t.store = Some(Arc::into_inner(store).unwrap_or_else(|| panic!("no other user")));
    until_archived(&t, 1).await;
    let delivered = async |t: &OnDisk| t.store().job(&name, id).await.unwrap().unwrap();
    assert_eq!(delivered(&t).await.chunks_delivered, 2);
    t.restart();
    assert_eq!(t.store().archived_jobs(), 1);
    assert_eq!(delivered(&t).await.chunks_delivered, 2);
    // The position comes back to memory with its job, and never moves back.
    t.store().mark_delivered(id, stream_position(1, 0)).await.unwrap();
    assert_eq!((delivered(&t).await.chunks_delivered, t.store().archived_jobs()), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_has_archived_and_other_jobs_in_order() {
    let t = OnDisk::new(archiving_at_once());
    let mut expected = Vec::new();
    for n in 0..30 {
        let outcome = if n % 3 == 0 { failed() } else { completed("1") };
        expected.push(ended(&t, job("a"), outcome).await);
    }
    until_archived(&t, 30).await;
    // Some in memory between them.
    for n in [0, 9, 27] {
        assert_eq!(
            t.store().retry(&endpoint("a"), expected[n], None).await,
            Ok(RetryAnswer::Queued)
        );
    }
    expected.push(submit(t.store(), job("a")).await);
    expected.reverse();
    for count_max in [1, 2, 7, 100] {
        assert_eq!(listed(&t, "a", None, count_max).await, expected);
        let failed = listed(&t, "a", Some(JobStatus::Failed), count_max).await;
        assert_eq!(failed.len(), 7);
        let waiting = listed(&t, "a", Some(JobStatus::InQueue), count_max).await;
        assert_eq!(waiting, [expected[0], expected[3], expected[21], expected[30]]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn archived_jobs_expire() {
    let mut t = OnDisk::new(archiving_at_once());
    for _ in 0..3 {
        ended(&t, job("a"), completed("1")).await;
        t.clock.advance(10);
    }
    until_archived(&t, 3).await;
    let first = START.plus_millis(RETENTION_ASYNC_MS);
    assert_eq!(t.store().expire().await, Ok(NextExpiry(first)));
    t.restart();
    assert_eq!(t.store().expire().await, Ok(NextExpiry(first)));
    t.clock.advance(RETENTION_ASYNC_MS - 20);
    assert_eq!(listed(&t, "a", None, 9).await.len(), 1, "jobs past their time are not shown");
    assert_eq!(t.store().expire().await, Ok(NextExpiry(first.plus_millis(20))));
    assert_eq!((t.store().archived_jobs(), t.store().stats().jobs), (1, 1));
    t.clock.advance(10);
    t.store().expire().await.unwrap();
    assert_eq!((t.store().archived_jobs(), t.store().stats().jobs), (0, 0));
    t.store().close().await;
    let report = check(t.dir.path(), None).unwrap();
    assert_eq!((report.damage.len(), report.jobs, archived_rows(&t)), (0, 0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn archived_jobs_are_deleted_with_their_endpoint() {
    let mut t = OnDisk::new(archiving_at_once());
    for name in ["a", "b"] {
        for _ in 0..600 {
            ended(&t, job(name), failed()).await;
        }
    }
    until_archived(&t, 1_200).await;
    t.store().delete_endpoint(&endpoint("a")).await.unwrap();
    assert_eq!((t.store().archived_jobs(), t.store().stats().jobs), (600, 600));
    let id = ended(&t, job("a"), failed()).await;
    assert_eq!(listed(&t, "a", None, 9).await, [id]);
    t.restart();
    assert_eq!(listed(&t, "a", None, 9).await, [id]);
    assert_eq!(listed(&t, "b", None, 1_000).await.len(), 600);
    t.store().close().await;
    let report = check(t.dir.path(), None).unwrap();
    assert_eq!(report.damage, vec![]);
    assert!((600..=601).contains(&report.jobs), "the last job may be in the journal only");
}

/// The commit that brings a job back is not synced, and the change is: a loss of power leaves the
/// mark of the row, and the journal with the change.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_after_a_lost_return_applies_the_change() {
    for is_removed in [false, true] {
        let mut t = OnDisk::new(archiving_at_once());
        let ids = [ended(&t, job("a"), failed()).await, ended(&t, job("a"), failed()).await];
        until_archived(&t, 2).await;
        t.store = None;
        let copy = tempfile::tempdir().unwrap();
        // The tables as they are before the change; the write-ahead log is part of them.
        for file in ["store.db", "store.db-wal"] {
            std::fs::copy(t.dir.path().join(file), copy.path().join(file)).unwrap();
        }
        // All further changes stay in one segment.
        t.settings = Settings { archive_after_ms: 0, ..settings() };
        t.restart();
        let name = endpoint("a");
        if is_removed {
            t.store().shorten_ttl(&name, ids[0], 0).await.unwrap();
            t.store().expire().await.unwrap();
        } else {
            assert_eq!(t.store().retry(&name, ids[0], None).await, Ok(RetryAnswer::Queued));
        }
        t.store = None;
        for file in ["store.db", "store.db-wal"] {
            std::fs::copy(copy.path().join(file), t.dir.path().join(file)).unwrap();
        }
        t.restart();
        let status = t.store().job(&name, ids[0]).await.unwrap().map(|job| job.status);
        assert_eq!(status, (!is_removed).then_some(JobStatus::InQueue));
        let jobs = if is_removed { 1 } else { 2 };
        assert_eq!((t.store().archived_jobs(), t.store().stats().jobs), (1, jobs));
        t.store().close().await;
        let report = check(t.dir.path(), None).unwrap();
        assert_eq!(report.damage, vec![]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_disk_share_of_an_owner_includes_archived_jobs_after_a_start() {
    let mut t = OnDisk::new(archiving_at_once());
    let text = format!("\"{}\"", "x".repeat(1_000));
    let input = json(&text);
    for n in 0..20 {
        let outcome = if n % 2 == 0 { failed() } else { completed(&text) };
        let owner = OwnerId::new(if n < 10 { "one" } else { "other" }).unwrap();
        ended(&t, NewJob { owner, input: input.clone(), ..job("a") }, outcome).await;
    }
    let one = OwnerId::new("one").unwrap();
    let held = |t: &OnDisk| DiskAccount::new(&t.settings.disk_space, &one).bytes();
    let before = held(&t);
    assert!(before > 10_000, "{before}");
    until_archived(&t, 20).await;
    assert_eq!(held(&t), before);
    t.restart();
    assert_eq!((held(&t), t.store().archived_jobs()), (before, 20));
    t.clock.advance(RETENTION_ASYNC_MS);
    t.store().expire().await.unwrap();
    assert_eq!(held(&t), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_sums_are_found_and_a_repair_computes_them() {
    let t = OnDisk::new(archiving_at_once());
    for n in 0..5 {
        let tags = Tags::new([("n", &n.to_string())]).unwrap();
        ended(&t, NewJob { tags, ..job("a") }, failed()).await;
    }
    until_archived(&t, 5).await;
    t.store().close().await;
    assert_eq!(archived_rows(&t), 5);
    assert_eq!(check(t.dir.path(), None).unwrap().damage, vec![]);
    let db = rusqlite::Connection::open(t.dir.path().join("store.db")).unwrap();
    db.execute("UPDATE archived SET jobs = 4", ()).unwrap();
    db.execute("UPDATE job_tag SET tag = 7 WHERE seq = (SELECT min(seq) FROM job_tag)", ())
        .unwrap();
    db.execute("UPDATE archived_time SET last_at = first_at - 1", ()).unwrap();
    drop(db);
    let damage = check(t.dir.path(), None).unwrap().damage;
    let expected = [
        "4 ended jobs of owner `owner`",
        "the table `job_tag` lacks 1 tags of ended jobs",
        "the table `job_tag` has tags that no ended job has",
        "1 rows of the table `archived_time` leave out ended jobs",
    ];
    assert_eq!(damage.len(), expected.len(), "{damage:?}");
    for (damage, expected) in damage.iter().zip(expected) {
        assert!(damage.details.contains(expected), "{damage:?}");
    }
    let output = tempfile::tempdir().unwrap();
    assert_eq!(repair(t.dir.path(), output.path(), None).unwrap().jobs, 5);
    assert_eq!(check(output.path(), None).unwrap().damage, vec![]);
    let mut repaired = OnDisk::new(settings());
    repaired.store = None;
    repaired.dir = output;
    repaired.restart();
    assert_eq!((repaired.store().archived_jobs(), repaired.store().stats().jobs), (5, 5));
    assert_eq!(listed(&repaired, "a", None, 9).await.len(), 5);
}

/// Changes the tables of a closed directory.
fn damage(t: &OnDisk, sql: &str) {
    let db = rusqlite::Connection::open(t.dir.path().join("store.db")).unwrap();
    assert!(db.execute(sql, ()).unwrap() > 0, "{sql}");
}

/// A start does not read archived rows, so the calls that meet a damaged one must do without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_row_stops_neither_a_list_nor_a_deletion() {
    for sql in [
        "UPDATE job SET past = x'ff' WHERE seq = (SELECT min(seq) FROM job WHERE archived = 1)",
        "UPDATE job SET owner = '', id = x'00' WHERE seq = (SELECT min(seq) FROM job WHERE archived = 1)",
    ] {
        for is_expiry in [false, true] {
            let mut t = OnDisk::new(archiving_at_once());
            let ids = [ended(&t, job("a"), failed()).await, ended(&t, job("a"), failed()).await];
            until_archived(&t, 2).await;
            t.store().close().await;
            damage(&t, sql);
            t.restart();
            assert_eq!(listed(&t, "a", None, 9).await, [ids[1]]);
            assert_eq!(listed(&t, "a", None, 1).await, [ids[1]]);
            if is_expiry {
                t.clock.advance(RETENTION_ASYNC_MS);
                t.store().expire().await.unwrap();
            }
            t.store().delete_endpoint(&endpoint("a")).await.unwrap();
            assert_eq!((t.store().archived_jobs(), t.store().stats().jobs), (0, 0));
            t.store().close().await;
            assert_eq!(check(t.dir.path(), None).unwrap().damage, vec![]);
            t.restart();
            assert_eq!((t.store().archived_jobs(), t.store().stats().jobs), (0, 0));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_names_the_damage_of_a_row_that_it_needs() {
    let mut t = OnDisk::new(archiving_at_once());
    let id = ended(&t, job("a"), failed()).await;
    until_archived(&t, 1).await;
    t.store = None;
    let copy = tempfile::tempdir().unwrap();
    for file in ["store.db", "store.db-wal"] {
        std::fs::copy(t.dir.path().join(file), copy.path().join(file)).unwrap();
    }
    t.settings = Settings { archive_after_ms: 0, ..settings() };
    t.restart();
    assert_eq!(t.store().retry(&endpoint("a"), id, None).await, Ok(RetryAnswer::Queued));
    t.store = None;
    for file in ["store.db", "store.db-wal"] {
        std::fs::copy(copy.path().join(file), t.dir.path().join(file)).unwrap();
    }
    damage(&t, "UPDATE job SET past = x'ff' WHERE archived = 1");
    let opened = Store::open(t.dir.path(), t.clock.clone(), Arc::default(), settings());
    assert!(matches!(opened, Err(OpenError::Damaged(_))), "{:?}", opened.err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_with_progress_leaves_memory() {
    let t = OnDisk::new(archiving_at_once());
    submit(t.store(), job("a")).await;
    let lease = t.claim().await;
    assert_eq!(t.store().set_progress(lease, json("1")).await, Ok(Fenced::Applied));
    assert_eq!(t.store().finish(lease, completed("2")).await, Ok(Fenced::Applied));
    until_archived(&t, 1).await;
}

/// Only calls that change a job bring it back, and only while memory has room.
#[tokio::test(flavor = "multi_thread")]
async fn archived_jobs_come_back_up_to_the_bound_of_jobs_in_memory() {
    let t = OnDisk::new(Settings { host_jobs_max: 3, ..archiving_at_once() });
    let mut failed_jobs = Vec::new();
    for _ in 0..6 {
        failed_jobs.push(ended(&t, job("a"), failed()).await);
        until_archived(&t, failed_jobs.len() as u64).await;
    }
    let done = ended(&t, job("a"), completed("1")).await;
    until_archived(&t, 7).await;
    let name = endpoint("a");
    let wrong = Ok(RetryAnswer::WrongStatus(JobStatus::Completed));
    assert_eq!(t.store().retry(&name, done, None).await, wrong);
    t.store().shorten_ttl(&name, done, u64::MAX).await.unwrap();
    assert_eq!(t.store().archived_jobs(), 7);
    let mut refused = None;
    for id in failed_jobs {
        match t.store().retry(&name, id, None).await {
            Ok(answer) => assert_eq!(answer, RetryAnswer::Queued),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    assert!(
        matches!(
            refused,
            Some(StoreError::Full(StoreFull::HostJobs { .. } | StoreFull::OwnerJobs { .. }))
        ),
        "{refused:?}"
    );
    assert!(t.store().archived_jobs() >= 4, "{}", t.store().archived_jobs());
}

/// Prints the memory of kept jobs, the time of a start and that of a page, for `JOBS` jobs.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of some minutes"]
async fn memory_of_kept_jobs() {
    let jobs: usize = std::env::var("JOBS").map_or(300_000, |text| text.parse().unwrap());
    for archive_after_ms in [0, Settings::default().archive_after_ms] {
        let t = OnDisk::new(measured(archive_after_ms));
        run_many(&t, &endpoint("a"), jobs).await;
        let begun = Instant::now();
        // The last segments are not checkpointed.
        while archive_after_ms == 0 && t.store().archived_jobs() < jobs as u64 {
            assert!(begun.elapsed().as_secs() < 300, "{}", t.store().archived_jobs());
            run_many(&t, &endpoint("a"), 1_000).await;
        }
        t.store().close().await;
        // A process of its own, whose memory has had nothing else.
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--ignored", "--exact", "archive::kept_jobs", "--nocapture"]);
        child.env("DIR", t.dir.path()).env("ARCHIVE_AFTER_MS", archive_after_ms.to_string());
        assert!(child.status().unwrap().success());
    }
}

fn measured(archive_after_ms: u64) -> Settings {
    Settings {
        archive_after_ms,
        queue_jobs_max: 1 << 20,
        segment_bytes: 256 << 10,
        payload_cache_bytes: 0,
        chunk_cache_bytes: 0,
        ..Settings::with_journal(256 << 10)
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a process of its own, which another test starts"]
async fn kept_jobs() {
    let after_ms = std::env::var("ARCHIVE_AFTER_MS").unwrap().parse().unwrap();
    let dir = std::path::PathBuf::from(std::env::var("DIR").unwrap());
    let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::default());
    let before = resident_bytes();
    let begun = Instant::now();
    let (store, _) = open_with(measured(after_ms), &dir, &clock, &signals);
    let opened = begun.elapsed();
    let kib = (resident_bytes() - before) >> 10;
    let query = JobQuery { count_max: 100, ..JobQuery::default() };
    let mut pages: Vec<_> = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        assert_eq!(store.list(&endpoint("a"), &query).await.unwrap().jobs.len(), 100);
        pages.push(begun.elapsed());
    }
    pages.sort();
    let (jobs, archived) = (store.stats().jobs, store.archived_jobs());
    println!(
        "{jobs} kept jobs, {archived} archived: {kib} KiB of memory after a start in {opened:?}, {} bytes \
         for each; a page of 100 in {:?}, at most {:?}",
        (kib << 10) / jobs,
        pages[100],
        pages[199]
    );
}

async fn run_many(t: &OnDisk, name: &EndpointId, jobs: usize) {
    for _ in 0..jobs.div_ceil(1_000) {
        let new = (0..1_000).map(|_| t.store().submit(job("a")));
        futures::future::join_all(new).await.into_iter().for_each(|it| {
            assert_eq!(it, Ok(SubmitAnswer::Queued));
        });
        let workers: Vec<_> = (0..1_000).map(|n| worker(&n.to_string())).collect();
        let claimed = t.store().claim_each(name, &workers).await.unwrap();
        let ends = claimed.iter().map(|job| t.store().finish(job.lease, completed("[1]")));
        futures::future::join_all(ends).await.into_iter().for_each(|it| {
            assert_eq!(it, Ok(Fenced::Applied));
        });
    }
}

/// Resident memory of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4_096
}
