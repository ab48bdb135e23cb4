//! The store on PostgreSQL: who may write, lost connections and answers, and servers that could
//! lose jobs. The contract, the model and the suites about webhooks run on it as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::support::postgres::{Database, Server, run};
use crate::support::proxy::Proxy;
use crate::support::{
    START, all_usage, chunk, endpoint, job, json, open_postgres, submit, without_caches, worker,
};
use gristmill_core::billing::usage::{Hour, UsageFilter, UsageQuery, UsageStore as _};
use gristmill_core::catalog::CatalogStore as _;
use gristmill_core::job::loss::HostLoss;
use gristmill_core::job::record::{HostProcess, Outcome};
use gristmill_core::job::state::JobStatus;
use gristmill_core::signals::Signals;
use gristmill_core::store::{Fenced, JobStore as _, StoreError, SubmitAnswer};
use gristmill_core::time::{Clock as _, ManualClock, SystemClock, Timestamp};
use gristmill_store::{Candidate, NotTaken, OpenError, Seen, Settings, Store, TakenOver};
use gristmill_test_support::{ClaimEach as _, EndAttempt as _};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// Longest time for a store to notice that its server works, or does not.
const PATIENCE: Duration = Duration::from_secs(60);

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START))
}

fn open(database: &Database) -> Store {
    open_postgres(without_caches(), database, &clock(), &Arc::default())
}

/// Opens the database, which must be refused.
fn refused(url: &str, database: &Database) -> OpenError {
    let settings = Settings { secrets_key: Some(database.key_file()), ..without_caches() };
    let signals = Arc::new(Signals::default());
    let url = url.parse().unwrap();
    Store::open_postgres(&url, clock(), signals, settings).expect_err("the database is refused")
}

/// A store that records why it ended.
fn open_recording(database: &Database) -> (Store, Arc<Mutex<Vec<String>>>) {
    open_recording_at(&database.url(), database)
}

/// The same with the database at this URL.
fn open_recording_at(url: &str, database: &Database) -> (Store, Arc<Mutex<Vec<String>>>) {
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let recorded = reasons.clone();
    let on_fatal = Arc::new(move |reason: &str| recorded.lock().push(reason.to_owned()));
    let secrets_key = Some(database.key_file());
    let settings = Settings { on_fatal, secrets_key, ..without_caches() };
    let url = url.parse().unwrap();
    let (store, _) = Store::open_postgres(&url, clock(), Arc::default(), settings).unwrap();
    (store, reasons)
}

/// Whether the store refuses new work. A submission that came before the store knew waits for the
/// server.
async fn is_refused(store: &Store) -> bool {
    let answer = tokio::time::timeout(Duration::from_millis(500), store.submit(job("a"))).await;
    answer == Ok(Err(StoreError::Unavailable))
}

async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_belongs_to_one_store() {
    let Some(database) = Database::new() else { return };
    let first = open(&database);
    let id = submit(&first, job("a")).await;
    let second = refused(&database.url(), &database);
    assert!(matches!(second, OpenError::DatabaseInUse), "{second}");
    submit(&first, job("a")).await;
    drop(first);
    let third = open(&database);
    assert!(third.job(&endpoint("a"), id).await.unwrap().is_some());
    assert_eq!(third.stats().jobs, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attempts_on_other_hosts_outlive_the_store() {
    let Some(database) = Database::new() else { return };
    let mut store = open(&database);
    let (here, elsewhere) = (submit(&store, job("a")).await, submit(&store, job("a")).await);
    let host = HostProcess { directory: 7, instance: u64::MAX };
    let mut former = None;
    while let Some(claimed) = store.claim(&endpoint("a"), &worker("w")).await.unwrap() {
        if claimed.lease.job == elsewhere {
            former = Some(claimed.lease);
            assert_eq!(store.note_host(claimed.lease, host).await, Ok(Fenced::Applied));
            let chunks = vec![chunk("1"), chunk("22")];
            assert_eq!(store.append_chunks(claimed.lease, chunks).await, Ok(Fenced::Applied));
        }
    }
    let former = former.unwrap();
    for opened in 1..=2 {
        // A claim is written later than other changes.
        for id in [here, elsewhere] {
            store.durable(id).await.unwrap();
        }
        drop(store);
        store = open(&database);
        let crashed = store.job(&endpoint("a"), here).await.unwrap().unwrap();
        assert_eq!((crashed.status, crashed.retries), (JobStatus::InQueue, 1), "{opened}");
        let [left] = <[_; 1]>::try_from(store.left_attempts().unwrap()).unwrap();
        assert_eq!((left.lease.job, left.lease.claim, left.host), (elsewhere, former.claim, host));
        assert_eq!((left.chunks, left.chunk_bytes, left.attempt), (2, 3, 1));
        assert_eq!((left.endpoint, left.worker), (endpoint("a"), worker("w")));
    }
    // The former lease is that of a host that has ended.
    assert_eq!(store.append_chunks(former, vec![chunk("3")]).await, Ok(Fenced::Stale));
    let lease = store.left_attempts().unwrap()[0].lease;
    assert_eq!(store.append_chunks(lease, vec![chunk("3")]).await, Ok(Fenced::Applied));
    assert_eq!(store.host_lost(lease, HostLoss::Unreachable).await, Ok(Fenced::Applied));
    assert!(store.left_attempts().unwrap().is_empty());
    // Another attempt has begun nowhere else.
    let next = store.claim(&endpoint("a"), &worker("w")).await.unwrap().unwrap();
    let next = match next.lease.job == here {
        true => store.claim(&endpoint("a"), &worker("w")).await.unwrap().unwrap(),
        false => next,
    };
    assert_eq!(next.lease.job, elsewhere);
    store.flush().await.unwrap();
    drop(store);
    store = open(&database);
    assert!(store.left_attempts().unwrap().is_empty());
    let record = store.job(&endpoint("a"), elsewhere).await.unwrap().unwrap();
    assert_eq!((record.status, record.chunk_count), (JobStatus::InQueue, 0));
}

/// Becomes the active host of a database without one.
fn take_over(
    database: &Database,
    clock: &Arc<ManualClock>,
    settings: Settings,
) -> Result<TakenOver, NotTaken> {
    let settings = Settings { secrets_key: Some(database.key_file()), ..settings };
    let work = || {
        let url = database.url().parse().unwrap();
        let mut candidate = Candidate::connect(&url, &database.key_file()).unwrap();
        let Seen::Free(vacancy) = candidate.look().unwrap() else { panic!("a host is active") };
        Store::take_over(candidate, vacancy, None, clock.clone(), Arc::default(), settings)
    };
    // The connections wait, and a thread of the runtime must not.
    std::thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// The clock of a machine that has the database as well: the two agree, and are wrong.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_jumped_together_with_that_of_the_database_deletes_no_job() {
    const YEAR_MS: u64 = 365 * 86_400_000;
    let Some(database) = Database::new() else { return };
    let ahead = SystemClock.now();
    let right = Timestamp::from_millis(ahead.as_millis() - YEAR_MS);
    let (ahead, right) = (Arc::new(ManualClock::new(ahead)), Arc::new(ManualClock::new(right)));
    let store = open_postgres(without_caches(), &database, &right, &Arc::default());
    submit(&store, job("a")).await;
    store.close().await;
    drop(store);
    let year_ago = "clock_timestamp() - interval '365 days'";
    database.sql(&format!("UPDATE beat SET at = {year_ago}"));
    database.sql(&format!("UPDATE session SET began_at = {year_ago}"));
    let guarded = Settings { clock_jump_max_ms: Some(3_600_000), ..without_caches() };
    // A start that is refused leaves what the next one compares the clock with.
    for _ in 0..2 {
        let refused = take_over(&database, &ahead, guarded.clone()).unwrap_err();
        let is_jump =
            matches!(refused, NotTaken::ClockJumped(_, OpenError::ClockJumped { jobs: 1, .. }));
        assert!(is_jump, "{refused:?}");
    }
    assert_eq!(database.sql("SELECT count(*) FROM job"), "1");
    let confirmed = Settings { is_clock_synchronised: true, ..guarded.clone() };
    let taken = take_over(&database, &ahead, confirmed).unwrap();
    assert_eq!(taken.recovery.expired, 1);
    taken.store.close().await;
    drop(taken);
    // Without jobs that would be deleted, a long pause is no reason to refuse a start.
    database.sql(&format!("UPDATE beat SET at = {year_ago}"));
    assert!(take_over(&database, &ahead, guarded).is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_jobs_leave_no_chunks_and_no_later_job_shows_them() {
    let Some(database) = Database::new() else { return };
    let chunks = || database.sql("SELECT count(*) FROM chunk");
    let stream = async |store: &Store, pages: &[&[&str]]| {
        let id = submit(store, job("a")).await;
        let lease = store.claim(&endpoint("a"), &worker("w")).await.unwrap().unwrap().lease;
        for page in pages {
            let page = page.iter().map(|text| chunk(text)).collect();
            assert_eq!(store.append_chunks(lease, page).await, Ok(Fenced::Applied));
            store.flush().await.unwrap();
        }
        let ended = store.finish(lease, Outcome::Failed("no".into())).await;
        assert_eq!(ended, Ok(Fenced::Applied));
        id
    };
    let store = open(&database);
    let id = stream(&store, &[&["1"], &["2"], &["3"]]).await;
    assert_eq!(chunks(), "3");
    assert_eq!(store.delete_ended(&endpoint("a"), &[id]).await, Ok(1));
    assert_eq!(chunks(), "0");
    drop(store);

    // Rows that are left over by any other means.
    database.sql("INSERT INTO chunk SELECT seq, 0, '' FROM generate_series(1, 3) AS seq");
    let store = open(&database);
    let id = stream(&store, &[&["4", "5", "6"]]).await;
    let read = store.chunks(id, 1, 1 << 20, 9).await.unwrap().chunks;
    let read: Vec<_> = read.iter().map(|chunk| chunk.output.as_str()).collect();
    assert_eq!(read, ["5", "6"]);
    assert_eq!(database.sql("SELECT seq FROM job"), "4", "no number with chunks is used again");
}

/// A paused host meets this when another host has begun a session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ended_session_changes_nothing() {
    let Some(database) = Database::new() else { return };
    let (store, reasons) = open_recording(&database);
    submit(&store, job("a")).await;
    database.sql("UPDATE session SET is_alive = false");
    assert_eq!(store.submit(job("a")).await, Err(StoreError::Closed));
    assert_eq!(store.write_catalog(Vec::new()).await, Err(StoreError::Closed));
    let reason = until("the reason", async || reasons.lock().first().cloned()).await;
    assert!(reason.contains("another host has taken over"), "{reason}");
    assert_eq!(database.sql("SELECT count(*) FROM job"), "1");
}

/// The reader notices it as well, on a store without work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_store_notices_that_its_session_has_ended() {
    let Some(database) = Database::new() else { return };
    let (_store, reasons) = open_recording(&database);
    database.sql("UPDATE session SET is_alive = false");
    until("the reason", async || reasons.lock().first().cloned()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_survive_the_end_of_the_server_and_new_ones_are_refused_meanwhile() {
    let Some(mut server) = Server::start() else { return };
    let database = server.database();
    let store = open(&database);
    let waiting = submit(&store, job("a")).await;
    let lease = store.claim(&endpoint("a"), &worker("w")).await.unwrap().unwrap().lease;
    server.kill();
    until("a refusal", async || is_refused(&store).await.then_some(())).await;
    let unavailable = refused(&database.url(), &database);
    assert!(matches!(unavailable, OpenError::DatabaseUnavailable(_)), "{unavailable}");
    // A result waits for the server.
    let finished = async { store.finish(lease, Outcome::Completed(json("2"))).await };
    let later = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        tokio::task::block_in_place(|| server.start_again());
    };
    let (finished, ()) = tokio::join!(finished, later);
    assert_eq!(finished, Ok(Fenced::Applied));
    let _ = until("a submission", async || store.submit(job("a")).await.ok()).await;
    store.close().await;
    drop(store);
    let store = open(&database);
    let record = store.job(&endpoint("a"), waiting).await.unwrap().unwrap();
    assert_eq!(record.status, JobStatus::Completed);
    assert_eq!(store.output(waiting).await.unwrap(), Some(json("2")));
    drop(store);
    drop(database);
}

fn locks(database: &Database) -> String {
    database.sql(
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND database = \
        (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
}

/// A connection of the store holds the lock while the server still has the one before: it must not
/// go on without the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_has_lost_its_lock_takes_it_again() {
    let Some(database) = Database::new() else { return };
    let store = open(&database);
    // Holds the lock for two seconds from the moment at which the store has lost it.
    let other = {
        let (url, sql) =
            (database.url(), "SELECT pg_advisory_lock(7454136277847075180), pg_sleep(2)");
        std::thread::spawn(move || crate::support::postgres::sql_at(&url, sql))
    };
    tokio::task::block_in_place(|| {
        while database.sql("SELECT count(*) FROM pg_locks WHERE NOT granted") == "0" {}
        database.cut_connections();
    });
    until("a refusal", async || is_refused(&store).await.then_some(())).await;
    let _ = until("a submission", async || store.submit(job("a")).await.ok()).await;
    other.join().unwrap();
    until("the session's lock", async || (locks(&database) == "1").then_some(())).await;
    assert!(matches!(refused(&database.url(), &database), OpenError::DatabaseInUse));
}

/// The network has lost the packets of the connection that has the lock, and the server keeps the
/// connection.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_ends_its_former_connection_that_the_server_keeps() {
    let Some(database) = Database::new() else { return };
    let proxy = Proxy::to(&database);
    let (store, reasons) = open_recording_at(&database.url_through(proxy.directory()), &database);
    submit(&store, job("a")).await;
    proxy.cut(b"pg_try_advisory_lock");
    let written = tokio::time::timeout(PATIENCE, store.write_catalog(Vec::new()));
    assert_eq!(written.await.expect("the lock"), Ok(()));
    submit(&store, job("a")).await;
    assert_eq!(locks(&database), "1");
    assert_eq!(*reasons.lock(), [""; 0]);
}

/// Connections end during commits, so that the store does not know whether they took place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_lose_and_repeat_nothing() {
    const SUBMITTERS: usize = 16;
    const CUTS: usize = 40;
    let Some(database) = Database::new() else { return };
    let (store, reasons) = open_recording(&database);
    let store = Arc::new(store);
    let (is_over, accepted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let submitters: Vec<_> = (0..SUBMITTERS)
        .map(|n| {
            let (store, is_over, accepted) = (store.clone(), is_over.clone(), accepted.clone());
            tokio::spawn(async move {
                let name = format!("e{n}");
                while !is_over.load(Ordering::Relaxed) {
                    match store.submit(job(&name)).await {
                        Ok(_) => drop(accepted.fetch_add(1, Ordering::Relaxed)),
                        Err(StoreError::Unavailable) => {
                            tokio::time::sleep(Duration::from_millis(5)).await
                        }
                        Err(StoreError::Full(_)) => {
                            let workers: Vec<_> =
                                (0..500).map(|n| worker(&n.to_string())).collect();
                            for claimed in store
                                .claim_each(&endpoint(&name), &workers)
                                .await
                                .unwrap_or_default()
                            {
                                let outcome = Outcome::Completed(json("1"));
                                assert_eq!(
                                    store.finish(claimed.lease, outcome).await,
                                    Ok(Fenced::Applied)
                                );
                            }
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    for _ in 0..CUTS {
        tokio::time::sleep(Duration::from_millis(30)).await;
        tokio::task::block_in_place(|| database.cut_connections());
    }
    is_over.store(true, Ordering::Relaxed);
    for submitter in submitters {
        submitter.await.unwrap();
    }
    assert_eq!(*reasons.lock(), [""; 0]);
    until("the last commit", async || store.write_catalog(Vec::new()).await.ok()).await;
    until("the session's lock", async || (locks(&database) == "1").then_some(())).await;
    let accepted = accepted.load(Ordering::Relaxed);
    assert!(accepted > CUTS as u64, "{accepted} submissions");
    assert_eq!(store.stats().jobs, accepted);
    assert_eq!(database.sql("SELECT count(*) FROM job"), accepted.to_string());
    drop(store);
    assert_eq!(open(&database).stats().jobs, accepted);
}

/// Holds the locks of this statement until there is a table `go_on`.
async fn hold(database: &Database, locking: &str) -> std::thread::JoinHandle<()> {
    let hold = format!(
        "SET search_path = gristmill; DO $$ BEGIN {locking}; \
         WHILE NOT EXISTS (SELECT FROM pg_class WHERE relname = 'go_on') LOOP PERFORM pg_sleep(0.01); \
         END LOOP; END $$"
    );
    let url = database.url();
    let holding = std::thread::spawn(move || crate::support::postgres::sql_at(&url, &hold));
    until("the locks are held", async || is_holding(database).then_some(())).await;
    holding
}

/// Whether locks are held.
fn is_holding(database: &Database) -> bool {
    sessions(database, "wait_event = 'PgSleep' AND datname = current_database()") == "1"
}

/// The number of the store's transactions that wait for a lock.
fn waiting_for_locks(database: &Database) -> String {
    let of = "application_name = 'gristmill' AND wait_event_type = 'Lock' AND datname = current_database()";
    sessions(database, of)
}

/// Submits a job whose commit waits until there is a table `go_on`. Returns the thread that holds
/// it back, and the submission.
async fn submit_while_commits_are_held(
    store: &Arc<Store>,
    database: &Database,
) -> (std::thread::JoinHandle<()>, JoinHandle<Result<SubmitAnswer, StoreError>>) {
    // The last statement of each transaction waits for this row.
    let holding = hold(database, "PERFORM 1 FROM session FOR UPDATE").await;
    let store = store.clone();
    let submitted = tokio::spawn(async move { store.submit(job("a")).await });
    until("the commit waits", async || (waiting_for_locks(database) == "1").then_some(())).await;
    (holding, submitted)
}

fn sessions(database: &Database, of: &str) -> String {
    database.sql(&format!("SELECT count(*) FROM pg_stat_activity WHERE {of}"))
}

/// The server goes on with a transaction whose connection was lost, such as while it waits for a
/// synchronous standby. The store has repeated the transaction by then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_ends_after_its_connection_counts_once() {
    let Some(database) = Database::new() else { return };
    let proxy = Proxy::to(&database);
    let (store, reasons) = open_recording_at(&database.url_through(proxy.directory()), &database);
    let store = Arc::new(store);
    submit(&*store, job("a")).await;
    let waiting = || waiting_for_locks(&database);
    let (holding, submitted) = submit_while_commits_are_held(&store, &database).await;
    proxy.cut(b"INSERT INTO commit_log (session, n) SELECT");
    until("its repetition waits for it", async || (waiting() == "2").then_some(())).await;
    database.sql("CREATE TABLE go_on ()");
    holding.join().unwrap();
    assert!(submitted.await.unwrap().is_ok());

    assert_eq!(*reasons.lock(), [""; 0]);
    let _ = until("a submission", async || store.submit(job("a")).await.ok()).await;
    assert_eq!(database.sql("SELECT count(*), max(seq) FROM job"), "3|3");
    assert_eq!(store.stats().jobs, 3);
}

/// The same while the database's disk is full for a moment: the repetition fails, and the first
/// transaction is committed after that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_unknown_outcome_is_remembered_while_the_disk_is_full() {
    let Some(database) = Database::new() else { return };
    let proxy = Proxy::to(&database);
    let (store, reasons) = open_recording_at(&database.url_through(proxy.directory()), &database);
    let store = Arc::new(store);
    submit(&*store, job("a")).await;
    // While there is a table `full`, each new job fails as without space.
    database.sql(
        "CREATE SEQUENCE gristmill.refused; \
         CREATE FUNCTION gristmill.no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
         IF EXISTS (SELECT FROM pg_class WHERE relname = 'full') THEN \
         PERFORM nextval('gristmill.refused'); RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; \
         END IF; RETURN NULL; END $$; \
         CREATE TRIGGER no_space BEFORE INSERT ON gristmill.job EXECUTE FUNCTION gristmill.no_space()",
    );
    let (holding, submitted) = submit_while_commits_are_held(&store, &database).await;
    database.sql("CREATE TABLE \"full\" ()");
    proxy.cut(b"INSERT INTO commit_log (session, n) SELECT");
    let is_refused = || database.sql("SELECT is_called FROM gristmill.refused") == "t";
    until("its repetition is refused", async || is_refused().then_some(())).await;
    database.sql("CREATE TABLE go_on ()");
    holding.join().unwrap();
    let jobs = || database.sql("SELECT count(*) FROM job");
    until("the first transaction ends", async || (jobs() == "2").then_some(())).await;
    database.sql("DROP TABLE \"full\"");
    assert!(submitted.await.unwrap().is_ok());
    assert_eq!(*reasons.lock(), [""; 0]);
}

/// The process of the server that waits for a synchronous standby is ended, as by a restart: the
/// server shows the commit, and no standby has it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_no_standby_has_is_not_acknowledged() {
    let Some(server) = Server::start() else { return };
    let database = server.database();
    let (store, reasons) = open_recording(&database);
    let store = Arc::new(store);
    submit(&*store, job("a")).await;
    reload(&server, "synchronous_standby_names = 'nobody'");
    let has_waiting = || sessions(&database, "wait_event = 'SyncRep'") != "0";
    until("signs of life wait for a standby", async || has_waiting().then_some(())).await;
    let submitter = store.clone();
    let mut submitted = tokio::spawn(async move { submitter.submit(job("a")).await });
    let waiting = "FROM pg_stat_activity JOIN pg_locks USING (pid) \
         WHERE relation = 'job'::regclass AND wait_event = 'SyncRep'";
    let waits = || database.sql(&format!("SELECT count(*) {waiting}")) == "1";
    until("the commit waits for a standby", async || waits().then_some(())).await;
    database.sql(&format!("SELECT pg_terminate_backend(pid) {waiting}"));
    let jobs = || database.sql("SELECT count(*) FROM job");
    until("the server shows the job", async || (jobs() == "2").then_some(())).await;
    let early = tokio::time::timeout(Duration::from_secs(3), &mut submitted).await;
    assert!(early.is_err(), "a job was acknowledged before a standby had it");

    reload(&server, "synchronous_standby_names = ''");
    assert!(submitted.await.unwrap().is_ok());
    let _ = until("a submission", async || store.submit(job("a")).await.ok()).await;
    assert_eq!(jobs(), "3");
    assert_eq!(*reasons.lock(), [""; 0]);
    drop(store);
    drop(database);
}

/// A statement of an operator has locked the table of usage.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_that_cannot_be_read_in_time_hinders_nothing_else() {
    let Some(database) = Database::new() else { return };
    let (store, reasons) = open_recording(&database);
    submit(&store, job("a")).await;
    let holding = hold(&database, "LOCK TABLE usage").await;
    let read = tokio::time::timeout(PATIENCE, store.usage(&all_usage())).await;
    assert_eq!(read.expect("an answer"), Err(StoreError::Unavailable));
    submit(&store, job("a")).await;
    assert_eq!(store.write_catalog(Vec::new()).await, Ok(()));

    // A caller that has gone: its read is not repeated.
    let query = all_usage();
    let gone = tokio::time::timeout(Duration::from_secs(1), store.usage(&query)).await;
    assert!(gone.is_err(), "the table is locked");
    let is_reading = || waiting_for_locks(&database) != "0";
    until("the read ends", async || (!is_reading()).then_some(())).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(!is_reading(), "it is repeated");

    database.sql("CREATE TABLE go_on ()");
    holding.join().unwrap();
    assert_eq!(store.usage(&all_usage()).await, Ok(Vec::new()));
    assert_eq!(*reasons.lock(), [""; 0]);
}

/// So many rows that they are read in parts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn usage_of_many_hours_and_endpoints_is_complete() {
    const HOURS: u32 = 10;
    let Some(database) = Database::new() else { return };
    let store = open(&database);
    let first = Hour::of(START);
    database.sql(&format!(
        "INSERT INTO usage SELECT hour, 'e' || n, 't', 'o', 1, n, 0, 0, 0, 0, 0, 0, 0, 0 \
         FROM generate_series({}, {}) AS hour, generate_series(1, 30000) AS n",
        first.0,
        first.0 + HOURS - 1
    ));
    let filter = UsageFilter { endpoint: Some(endpoint("e7")), ..UsageFilter::default() };
    let mut query = UsageQuery { filter, rows_max: 4, ..all_usage() };
    let mut found = Vec::new();
    loop {
        let rows = store.usage(&query).await.unwrap();
        query.after = rows.last().map(|row| row.key.clone());
        found.extend(rows.iter().map(|row| (row.key.hour.0, row.sum.jobs)));
        if rows.len() < query.rows_max {
            break;
        }
    }
    let expected: Vec<_> = (0..HOURS).map(|n| (first.0 + n, 7)).collect();
    assert_eq!(found, expected);
    let query = UsageQuery { rows_max: 100, ..all_usage() };
    assert_eq!(store.usage(&query).await.unwrap().len(), 100);
    let all = store.usage(&UsageQuery { rows_max: usize::MAX, ..all_usage() }).await.unwrap();
    assert_eq!(all.len(), 30_000 * HOURS as usize);
    assert!(all.is_sorted_by(|one, next| one.key < next.key));
}

/// After a failover to a standby that had not received the last commits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_commits_end_the_store() {
    let Some(database) = Database::new() else { return };
    let (store, reasons) = open_recording(&database);
    for _ in 0..3 {
        submit(&store, job("a")).await;
    }
    database.sql("DELETE FROM commit_log WHERE n > 1; DELETE FROM job WHERE seq > 1");
    database.cut_connections();
    let answer = until("an answer", async || match store.submit(job("a")).await {
        Err(StoreError::Unavailable) => None,
        answer => Some(answer),
    })
    .await;
    assert_eq!(answer, Err(StoreError::Closed));
    let reason = until("the reason", async || reasons.lock().first().cloned()).await;
    assert!(reason.contains("lost commit"), "{reason}");
}

/// The same when the last commits have only changed the catalog, which no batch shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_changes_of_the_catalog_end_the_store() {
    let Some(database) = Database::new() else { return };
    let (store, reasons) = open_recording(&database);
    submit(&store, job("a")).await;
    for _ in 0..2 {
        store.write_catalog(Vec::new()).await.unwrap();
    }
    let catalog = "session = -2 * (SELECT max(session) FROM session)";
    database.sql(&format!("DELETE FROM commit_log WHERE {catalog} AND n > 1"));
    database.cut_connections();
    let reason = until("the reason", async || reasons.lock().first().cloned()).await;
    assert!(reason.contains("lost commit"), "{reason}");
}

/// The records of commits do not grow with them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_commits_is_pruned() {
    let Some(database) = Database::new() else { return };
    let store = open(&database);
    for _ in 0..1_001 {
        store.write_catalog(Vec::new()).await.unwrap();
    }
    let rows: u32 = database.sql("SELECT count(*) FROM commit_log").parse().unwrap();
    assert!(rows < 10, "{rows} rows");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsuitable_databases_are_refused_with_the_reason() {
    let Some(database) = Database::new() else { return };
    drop(open(&database));
    let name = database.sql("SELECT current_database()");
    let alter = |change: &str| database.sql(&format!("ALTER DATABASE {name} {change}"));
    for (setting, value, reason) in [
        ("synchronous_commit", "off", "synchronous_commit is `off`"),
        ("default_transaction_read_only", "on", "the server is read only"),
    ] {
        alter(&format!("SET {setting} = {value}"));
        let error = refused(&database.url(), &database).to_string();
        assert!(error.contains(reason), "{error}");
        alter(&format!("RESET {setting}"));
    }
    database.sql("INSERT INTO schema_version VALUES (1000, 1000)");
    let error = refused(&database.url(), &database);
    assert!(matches!(error, OpenError::UnknownDatabaseVersion { found: 1000, .. }), "{error}");
    // A version that this program can use.
    database.sql("UPDATE schema_version SET needs_program = 1 WHERE version = 1000");
    drop(open(&database));
    let error = refused("postgresql://127.0.0.1:1/x", &database);
    assert!(matches!(error, OpenError::DatabaseUnavailable(_)), "{error}");
    std::fs::write(database.key_file(), "0".repeat(64)).unwrap();
    let error = refused(&database.url(), &database);
    assert!(matches!(error, OpenError::SecretsKey { .. }), "{error}");
}

/// Changes a setting of a server that runs.
fn reload(server: &Server, setting: &str) {
    for sql in [&format!("ALTER SYSTEM SET {setting}"), "SELECT pg_reload_conf()"] {
        run(server.dir.path(), "psql", &["-d", "postgres", "-qAtc", sql]);
    }
}

/// Open connections keep `synchronous_commit`: with it the server waits for a standby that does not
/// exist, and without it it would acknowledge at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_the_servers_settings_does_not_weaken_open_connections() {
    let Some(server) = Server::start() else { return };
    let database = server.database();
    let store = open(&database);
    submit(&store, job("a")).await;
    reload(&server, "synchronous_commit = off");
    reload(&server, "synchronous_standby_names = 'nobody'");
    let store = Arc::new(store);
    // The processes of a busy server read a changed setting late.
    let deadline = Instant::now() + Duration::from_secs(20);
    let submitted = loop {
        let submitter = store.clone();
        let mut submitted = tokio::spawn(async move { submit(&*submitter, job("a")).await });
        if tokio::time::timeout(Duration::from_secs(3), &mut submitted).await.is_err() {
            break submitted;
        }
        assert!(Instant::now() < deadline, "jobs are acknowledged before a standby has them");
        tokio::time::sleep(Duration::from_millis(500)).await;
    };
    reload(&server, "synchronous_standby_names = ''");
    submitted.await.unwrap();
    drop(store);
    drop(database);
}

/// Other programs may read the jobs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_can_read_the_jobs() {
    let Some(database) = Database::new() else { return };
    let store = open(&database);
    let id = submit(&store, job("a")).await;
    let other = submit(&store, job("b")).await;
    let lease = store.claim(&endpoint("b"), &worker("w")).await.unwrap().unwrap().lease;
    assert_eq!(store.finish(lease, Outcome::Completed(json("12345"))).await, Ok(Fenced::Applied));
    let found = database
        .sql("SELECT id, endpoint, status, created_at, output_bytes FROM jobs ORDER BY endpoint");
    let expected = [
        format!("{id}|a|IN_QUEUE|2023-11-14 22:13:20+00|"),
        format!("{other}|b|COMPLETED|2023-11-14 22:13:20+00|5"),
    ];
    let found: Vec<_> = found.lines().map(|line| line.replace("+00:00", "+00")).collect();
    assert_eq!(found, expected);
}
