//! Searches for jobs of several endpoints: they find what a look at every job finds, in memory and
//! in the tables, and also while jobs leave memory and are deleted.

#![allow(clippy::disallowed_methods, reason = "variables have the settings of a measurement")]

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use gristmill_core::id::JobId;
use gristmill_core::job::filter::{JobFilter, JobSearch};
use gristmill_core::job::listing::JobPage;
use gristmill_core::job::record::{JobRecord, NewJob, Outcome};
use gristmill_core::job::state::JobStatus;
use gristmill_core::job::tags::{Tag, Tags};
use gristmill_core::store::{JobStore, StoreError};
use gristmill_core::time::Timestamp;
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};

use crate::support::fixture::{Fixture, contract};
use crate::support::on_disk::OnDisk;
use crate::support::{START, archiving_at_once, endpoint, job, json, submit, worker};

contract!(
    a_search_finds_what_a_look_at_every_job_finds,
    a_search_without_endpoints_or_with_unknown_ones_finds_nothing,
    a_text_in_an_error_is_found_wherever_it_is,
    a_search_after_the_end_finds_the_jobs_so_far,
);

async fn a_search_after_the_end_finds_the_jobs_so_far(t: Fixture) {
    let end = t.store.end_position().unwrap();
    let search = |after| JobSearch {
        endpoints: vec![endpoint("a")],
        filter: JobFilter::default(),
        after: Some(after),
        count_max: 10,
    };
    assert_eq!(all(&*t.store, &search(end)).await, []);
    let first = t.submit_job(job("a")).await;
    let end = t.store.end_position().unwrap();
    t.submit_job(job("a")).await;
    assert_eq!(all(&*t.store, &search(end)).await, [first]);
}

const ENDPOINTS: [&str; 3] = ["a", "b", "other"];

/// Numbers that look random, and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn tag(key: &str, value: &str) -> Tag {
    Tag::new(key, value).unwrap()
}

/// All pages of a search; the newest job first.
async fn all(store: &dyn JobStore, search: &JobSearch) -> Vec<JobId> {
    let (mut search, mut found) = (search.clone(), Vec::new());
    loop {
        let JobPage { jobs, positions, next } = store.search(&search).await.unwrap();
        assert!(jobs.len() <= search.count_max);
        found.extend(jobs.iter().map(|job| job.id));
        assert_eq!(positions.after(jobs.len()), None);
        search.after = next;
        // A reader may continue after any job of a page.
        if jobs.len() > 2 {
            search.after = positions.after(jobs.len() / 2);
            found.truncate(found.len() - (jobs.len() - jobs.len() / 2 - 1));
            assert!(search.after.is_some());
        }
        if search.after.is_none() {
            return found;
        }
    }
}

/// Jobs in all states, with tags, submitted at different times.
async fn populate(t: &Fixture) -> Vec<(&'static str, JobId)> {
    let mut numbers = Numbers(7);
    let mut jobs = Vec::new();
    for n in 0..150 {
        let name = ENDPOINTS[numbers.below(3) as usize];
        let number = n.to_string();
        let values = ["prod", "test", "%_"].map(str::to_owned);
        let pairs = [
            ("env", &values[numbers.below(3) as usize]),
            ("third", &values[numbers.below(2) as usize]),
            ("n", &number),
        ];
        let tags = Tags::new(pairs.into_iter().take(numbers.below(4) as usize)).unwrap();
        let id = t.submit_job(NewJob { tags, ..job(name) }).await;
        jobs.push((name, id));
        let outcome = match numbers.below(7) {
            0 => None,
            1 => {
                t.store.cancel(&endpoint(name), id).await.unwrap();
                None
            }
            2 => Some(Outcome::Completed(json("1"))),
            3 => Some(Outcome::TimedOut),
            4 => Some(Outcome::Failed(format!("short {n}% "))),
            5 => Some(Outcome::Failed(format!("{} long {n}_ ", "x".repeat(90)))),
            _ => Some(Outcome::FailedWith {
                error: format!("{} long {n}_ ", "y".repeat(90)),
                output: json("[7]"),
            }),
        };
        if let Some(outcome) = outcome {
            let claimed =
                t.store.claim_each(&endpoint(name), &vec![worker("w"); 200]).await.unwrap();
            for claimed in claimed {
                let outcome =
                    if claimed.lease.job == id { outcome.clone() } else { Outcome::TimedOut };
                let _ = t.store.finish(claimed.lease, outcome).await.unwrap();
            }
        }
        t.clock.advance(numbers.below(2_000));
    }
    for n in 0..30 {
        let (name, number) = (ENDPOINTS[n % 3], n.to_string());
        let tags = Tags::new([("env", "prod"), ("n", &number)]).unwrap();
        jobs.push((name, t.submit_job(NewJob { tags, ..job(name) }).await));
        t.clock.advance(100);
    }
    for name in ENDPOINTS {
        t.store.claim_each(&endpoint(name), &vec![worker("w"); 4]).await.unwrap();
    }
    jobs
}

async fn a_search_finds_what_a_look_at_every_job_finds(t: Fixture) {
    let jobs = populate(&t).await;
    let mut records: Vec<JobRecord> = Vec::new();
    for (name, id) in jobs.iter().rev() {
        records.push(t.record(name, *id).await.unwrap());
    }
    let by_status = records.iter().fold(HashMap::<_, u32>::new(), |mut all, record| {
        *all.entry(record.status).or_default() += 1;
        all
    });
    assert!(by_status.len() == 6 && by_status.values().all(|jobs| *jobs > 5), "{by_status:?}");
    let mut numbers = Numbers(11);
    let mut matched = BTreeMap::<usize, u32>::new();
    for _ in 0..300 {
        let mut one_in = |n| numbers.below(n) == 0;
        let mut filter = JobFilter::default();
        let mut endpoints: Vec<_> =
            ENDPOINTS.into_iter().filter(|_| !one_in(3)).map(endpoint).collect();
        endpoints.push(endpoint("none"));
        filter.statuses = JobStatus::ALL.into_iter().filter(|_| one_in(4)).collect();
        let all_tags =
            [("env", "prod"), ("env", "%_"), ("third", "prod"), ("n", "7"), ("env", "x")];
        filter.tags = all_tags
            .into_iter()
            .filter(|_| one_in(5))
            .map(|(key, value)| tag(key, value))
            .collect();
        let id = records[numbers.below(180) as usize].id.to_string();
        let at = |numbers: &mut Numbers| Some(START.plus_millis(numbers.below(150_000)));
        match numbers.below(9) {
            0 => filter.id_prefix = Some(id),
            1 => filter.id_prefix = Some(id[..numbers.below(13) as usize].to_owned()),
            8 => filter.id_part = Some(id[24..24 + numbers.below(13) as usize].to_owned()),
            2 => filter.from = at(&mut numbers),
            3 => filter.until = at(&mut numbers),
            4 => (filter.from, filter.until) = (at(&mut numbers), at(&mut numbers)),
            5 => {
                filter.error =
                    Some(["7% ", "7_ ", "x", "y", "%", "o"][numbers.below(6) as usize].to_owned())
            }
            _ => {}
        }
        let is_expected = |record: &&JobRecord| {
            let tags: BTreeMap<_, _> = record.tags.iter().flat_map(Tags::iter).collect();
            let text = record.error.as_deref();
            endpoints.contains(&record.endpoint)
                && (filter.statuses.is_empty() || filter.statuses.contains(&record.status))
                && filter.tags.iter().all(|tag| tags.get(tag.key()) == Some(&tag.value()))
                && filter.from.is_none_or(|from| from <= record.created_at)
                && filter.until.is_none_or(|until| record.created_at < until)
                && filter.id_prefix.iter().all(|prefix| record.id.to_string().starts_with(prefix))
                && filter.id_part.iter().all(|part| record.id.to_string().contains(part))
                && filter.error.iter().all(|part| text.is_some_and(|text| text.contains(part)))
        };
        let expected: Vec<_> = records.iter().filter(is_expected).map(|record| record.id).collect();
        *matched.entry(expected.len().min(1)).or_default() += 1;
        let count_max = [1, 7, 1_000][numbers.below(3) as usize];
        let search = JobSearch {
            endpoints: endpoints.clone(),
            filter: filter.clone(),
            after: None,
            count_max,
        };
        assert_eq!(all(&*t.store, &search).await, expected, "{search:?}");
    }
    assert!(matched[&0] > 30 && matched[&1] > 30, "{matched:?}");
}

async fn a_search_without_endpoints_or_with_unknown_ones_finds_nothing(t: Fixture) {
    t.submit("a").await;
    for endpoints in [vec![], vec![endpoint("none")]] {
        let search = JobSearch { endpoints, count_max: 9, ..JobSearch::default() };
        let page = t.store.search(&search).await.unwrap();
        assert!(page.jobs.is_empty() && page.next.is_none());
    }
}

async fn a_text_in_an_error_is_found_wherever_it_is(t: Fixture) {
    let mut ids = Vec::new();
    for error in [format!("{}needle", "x".repeat(15_000)), "needle".to_owned(), "x".repeat(15_000)]
    {
        let id = t.submit("a").await;
        let lease = t.claim("a").await.lease;
        let _ = t.store.finish(lease, Outcome::Failed(error)).await.unwrap();
        ids.push(id);
    }
    // The error of an attempt before a retry is deleted.
    let retried = t.submit("a").await;
    let lease = t.claim("a").await.lease;
    let _ = t.store.finish(lease, Outcome::Failed("needle".to_owned())).await.unwrap();
    t.store.retry(&endpoint("a"), retried, None).await.unwrap();
    let filter = JobFilter { error: Some("needle".to_owned()), ..JobFilter::default() };
    let search = JobSearch { endpoints: vec![endpoint("a")], filter, after: None, count_max: 1 };
    assert_eq!(all(&*t.store, &search).await, [ids[1], ids[0]]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_stable_job_is_on_one_page_while_others_leave_memory_and_are_deleted() {
    let t = OnDisk::new(archiving_at_once());
    let tags = Tags::new([("kind", "stable")]).unwrap();
    let mut stable = Vec::new();
    for n in 0..200 {
        let name = if n % 3 == 0 { "a" } else { "b" };
        let id = submit(t.store(), NewJob { tags: tags.clone(), ..job(name) }).await;
        t.store().cancel(&endpoint(name), id).await.unwrap();
        stable.push(id);
        let chaff = submit(t.store(), NewJob { tags: tags.clone(), ..job(name) }).await;
        t.store().shorten_ttl(&endpoint(name), chaff, 1_000 + n).await.unwrap();
    }
    stable.reverse();
    let is_over = AtomicBool::new(false);
    let change = async {
        while !is_over.load(Ordering::Relaxed) {
            t.clock.advance(10);
            t.store().expire().await.unwrap();
            let id = submit(t.store(), NewJob { tags: tags.clone(), ..job("b") }).await;
            t.store().cancel(&endpoint("b"), id).await.unwrap();
            t.store().shorten_ttl(&endpoint("b"), id, 50).await.unwrap();
            tokio::task::yield_now().await;
        }
    };
    let filters = [
        JobFilter::default(),
        JobFilter { tags: vec![tag("kind", "stable")], ..JobFilter::default() },
        JobFilter { statuses: vec![JobStatus::Cancelled], ..JobFilter::default() },
        JobFilter { until: Some(START.plus_millis(1)), ..JobFilter::default() },
    ];
    let read = async {
        for round in 0..40 {
            let endpoints = vec![endpoint("a"), endpoint("b")];
            let (filter, count_max) = (filters[round % 4].clone(), 1 + round % 9);
            let search = JobSearch { endpoints, filter, after: None, count_max };
            let mut found = all(t.store(), &search).await;
            found.retain(|id| stable.contains(id));
            assert_eq!(found, stable, "{round}");
        }
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(change, read);
    assert!(t.store().archived_jobs() > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_of_another_store_is_refused() {
    let [one, other] = [0; 2].map(|_| OnDisk::new(archiving_at_once()));
    for _ in 0..3 {
        submit(one.store(), job("a")).await;
    }
    let mut search =
        JobSearch { endpoints: vec![endpoint("a")], count_max: 1, ..JobSearch::default() };
    search.after = one.store().search(&search).await.unwrap().next;
    assert!(search.after.is_some());
    assert_eq!(one.store().search(&search).await.unwrap().jobs.len(), 1);
    assert_eq!(other.store().search(&search).await.err(), Some(StoreError::UnknownCursor));
}

/// The clock goes back between two jobs: a search by time finds both.
#[tokio::test(flavor = "multi_thread")]
async fn a_search_by_time_allows_for_a_clock_that_went_back() {
    let mut t = OnDisk::new(archiving_at_once());
    let mut expected = Vec::new();
    for n in 0..6 {
        let id = submit(t.store(), job("a")).await;
        t.store().cancel(&endpoint("a"), id).await.unwrap();
        expected.push((t.store().now(), id));
        t.clock.jump(if n == 2 { -2_000 } else { 1_000 });
    }
    t.restart();
    for from in 0..7 {
        let from = START.plus_millis(from * 1_000).as_millis() - 2_000;
        let filter = JobFilter { from: Some(Timestamp::from_millis(from)), ..JobFilter::default() };
        let search =
            JobSearch { endpoints: vec![endpoint("a")], filter, after: None, count_max: 2 };
        let newer = expected.iter().rev().filter(|(at, _)| at.as_millis() >= from);
        assert_eq!(all(t.store(), &search).await, newer.map(|(_, id)| *id).collect::<Vec<_>>());
    }
}

/// Makes the rows by which archived jobs are found.
fn index(db: &rusqlite::Connection) {
    let transaction = db.unchecked_transaction().unwrap();
    db.execute_batch(
        "DELETE FROM job_tag; DELETE FROM archived_time; DELETE FROM archived;
         INSERT INTO archived SELECT endpoint, owner, count(*),
           sum(result_bytes + input_bytes + coalesce(octet_length(tags), 0)) FROM job GROUP BY 1, 2;
         INSERT INTO archived_time SELECT seq / 1024, min(created_at), max(created_at) FROM job GROUP BY 1;",
    )
    .unwrap();
    let hash = |line: &str| {
        let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        line.bytes().fold(0xcbf2_9ce4_8422_2325, step).cast_signed()
    };
    let mut insert =
        db.prepare("INSERT INTO job_tag (endpoint, tag, seq) VALUES (?1, ?2, ?3)").unwrap();
    let mut jobs =
        db.prepare("SELECT endpoint, seq, tags FROM job WHERE tags IS NOT NULL").unwrap();
    let mut rows = jobs.query(()).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let (endpoint, seq): (i64, i64) = (row.get(0).unwrap(), row.get(1).unwrap());
        for line in row.get_ref(2).unwrap().as_str().unwrap().lines() {
            insert.execute([endpoint, hash(line), seq]).unwrap();
        }
    }
    drop(rows);
    drop((jobs, insert));
    transaction.commit().unwrap();
}

/// Prints the time of pages of searches among so many archived jobs (`JOBS`, a million) of ten
/// endpoints, and what their tags take on disk.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement of some minutes"]
async fn pages_among_a_million_kept_jobs() {
    let jobs: u64 = std::env::var("JOBS").map_or(1_000_000, |jobs| jobs.parse().unwrap());
    let mut t = OnDisk::new(archiving_at_once());
    let names: Vec<_> = (0..10).map(|n| format!("e{n}")).collect();
    for name in &names {
        let id = submit(t.store(), job(name)).await;
        let claimed = t.store().claim_each(&endpoint(name), &[worker("w")]).await.unwrap();
        let outcome = Outcome::Failed(format!("no grain {id}"));
        let _ = t.store().finish(claimed[0].lease, outcome).await.unwrap();
    }
    while t.store().archived_jobs() < 10 {
        let chaff = submit(t.store(), job("chaff")).await;
        t.store().cancel(&endpoint("chaff"), chaff).await.unwrap();
        t.store().delete_endpoint(&endpoint("chaff")).await.unwrap();
    }
    t.store().close().await;
    let db = rusqlite::Connection::open(t.dir.path().join("store.db")).unwrap();
    let columns: Vec<String> = db
        .prepare("SELECT name FROM pragma_table_info('job')")
        .unwrap()
        .query_map((), |row| row.get(0))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    let values: Vec<_> = columns
        .iter()
        .map(|column| match &**column {
            "seq" => "1000000 + i".to_owned(),
            "id" => "unhex(printf('0192f3a000007000%016x', i) || '000700')".to_owned(),
            "created_at" => "created_at + 10 * i".to_owned(),
            "purge_at" | "ttl_at" => format!("{column} + 2592000000"),
            "tags" => {
                "'env=' || iif(i % 3, 'prod', 'test') || char(10) || 'run=' || i || char(10) || \
                       'user=' || (i % 1000)"
                    .to_owned()
            }
            column => column.to_owned(),
        })
        .collect();
    let sql = format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {jobs}) \
         INSERT INTO job ({}) SELECT {} FROM n JOIN (SELECT *, row_number() OVER () AS k FROM job \
         WHERE archived = 1) ON k = 1 + i / 7 % 10",
        columns.join(", "),
        values.join(", ")
    );
    db.execute(&sql, ()).unwrap();
    let bytes = || -> i64 {
        db.query_row(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
            (),
            |row| row.get(0),
        )
        .unwrap()
    };
    let without = bytes();
    index(&db);
    println!(
        "the tables: {} MiB without the rows of tags, {} MiB with them",
        without >> 20,
        bytes() >> 20
    );
    drop(db);
    t.restart();
    let store = t.store();
    assert_eq!(store.archived_jobs(), jobs + 10);
    let at = |n: u64| Some(START.plus_millis(10 * n));
    let all_endpoints: Vec<_> = names.iter().map(|name| endpoint(name)).collect();
    let of = |tags: Vec<Tag>| JobFilter { tags, ..JobFilter::default() };
    let middle = (jobs / 2).to_string();
    for (name, filter) in [
        ("all", JobFilter::default()),
        ("1 status", JobFilter { statuses: vec![JobStatus::Failed], ..JobFilter::default() }),
        ("a tag of 1 job", of(vec![tag("run", &middle)])),
        ("a tag of 1,000 jobs", of(vec![tag("user", "7")])),
        ("a tag of most jobs", of(vec![tag("env", "prod")])),
        ("2 tags", of(vec![tag("env", "prod"), tag("user", "7")])),
        ("a tag of no job", of(vec![tag("run", "none")])),
        (
            "1 hour in the middle",
            JobFilter { from: at(jobs / 2), until: at(jobs / 2 + 3_600), ..JobFilter::default() },
        ),
        (
            "a tag in this hour",
            JobFilter {
                from: at(jobs / 2),
                until: at(jobs / 2 + 360_000),
                ..of(vec![tag("user", "7")])
            },
        ),
        (
            "the beginning of an id",
            JobFilter {
                id_prefix: Some("0192f3a0-0000-7000-0000-00000007a".to_owned()),
                ..JobFilter::default()
            },
        ),
        (
            "a text in no error",
            JobFilter { error: Some("wheat".to_owned()), ..JobFilter::default() },
        ),
    ] {
        let mut search =
            JobSearch { endpoints: all_endpoints.clone(), filter, after: None, count_max: 100 };
        let (mut times, mut found) = (Vec::new(), 0);
        for _ in 0..200 {
            let begun = std::time::Instant::now();
            let page = store.search(&search).await.unwrap();
            times.push(begun.elapsed());
            found += page.jobs.len();
            search.after = page.next;
            if page.next.is_none() {
                break;
            }
        }
        let pages = times.len();
        times.sort_unstable();
        let of = |percent: usize| times[(pages - 1) * percent / 100];
        println!(
            "{name}: {pages} pages, {found} jobs; p50 {:?}, p99 {:?}, longest {:?}",
            of(50),
            of(99),
            of(100)
        );
    }
}
