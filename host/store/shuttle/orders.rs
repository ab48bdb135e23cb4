//! The writer, the database's thread and their callers in many orders. A scheduler runs one of them
//! at a time, and picks the next one at each lock, wait and wake-up. It reports a thread that is
//! never woken as a deadlock, with a schedule that repeats it.

use std::path::Path;
use std::sync::Arc;

use gristmill_core::billing::usage::Metered;
use gristmill_core::catalog::CatalogStore as _;
use gristmill_core::id::{
    EndpointId, JobId, OwnerId, ShardId, SubmissionKind, TemplateId, WorkerId,
};
use gristmill_core::incarnation::EndpointIncarnation;
use gristmill_core::job::payload::Json;
use gristmill_core::job::policy::{Policy, Start};
use gristmill_core::job::record::{NewJob, Outcome};
use gristmill_core::job::retention::Retention;
use gristmill_core::job::state::JobStatus;
use gristmill_core::signals::Signals;
use gristmill_core::store::{JobStore as _, StoreError};
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_test_support::EndAttempt as _;
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::thread;

use crate::Settings;
use crate::Store;

/// The tests and their names.
pub(crate) const TESTS: [(&str, fn()); 3] = [
    ("no_call_waits_for_ever_and_no_change_is_lost", no_call_waits_for_ever_and_no_change_is_lost),
    ("a_close_may_happen_at_any_moment", a_close_may_happen_at_any_moment),
    ("a_thread_may_be_slow", a_thread_may_be_slow),
];

/// Orders that are tried.
const ORDERS: usize = 200;

/// SQLite runs on the threads' stacks.
const STACK_BYTES: usize = 2 << 20;

/// Room for one and a half jobs, so that callers wait for it.
const WRITE_BUFFER_BYTES: usize = 1 << 10;

/// Opens a store whose journal has one segment of this many bytes: with 512 each batch begins a new
/// one, and the writer waits for the database all the time.
fn open(dir: &Path, segment_bytes: u32) -> Store {
    let settings = Settings {
        write_buffer_bytes: WRITE_BUFFER_BYTES,
        segment_bytes,
        journal_bytes: segment_bytes.into(),
        on_fatal: Arc::new(|reason| panic!("{reason}")),
        ..Settings::default()
    };
    let clock = Arc::new(ManualClock::new(Timestamp::from_millis(1_000)));
    Store::open(dir, clock, Arc::new(Signals::default()), settings).unwrap().0
}

fn endpoint() -> EndpointId {
    EndpointId::new("e").unwrap()
}

fn new_job(endpoint: EndpointId) -> NewJob {
    NewJob {
        id: JobId::generate(SubmissionKind::Async, ShardId(0)),
        owner: OwnerId::new("o").unwrap(),
        endpoint,
        input: Json::parse("[1]").unwrap(),
        webhook: None,
        s3_config: None,
        idempotency: None,
        policy: Policy {
            execution_timeout_ms: Some(5_000),
            ttl_ms: 60_000,
            low_priority: false,
            start: Start::Now,
            retry: None,
        },
        retention: Retention::by_default(60_000),
        may_linger: false,
        waiting_jobs_max: None,
        incarnation: EndpointIncarnation::default(),
        tags: None,
        trace: None,
        note: None,
    }
}

fn metered() -> Metered {
    Metered {
        template: TemplateId::new("t").unwrap(),
        cpu_us: 1,
        fuel: 0,
        memory_bytes_peak: 1,
        bytes_in: 3,
        bytes_out: 4,
        chunks: 0,
        egress_bytes: 0,
    }
}

/// Callers that submit, finish, cancel and purge, and query the database, while the store closes or
/// is dropped.
fn callers_and_threads(closes: bool, segment_bytes: u32) {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path(), segment_bytes));
    let acknowledged = Arc::new(std::sync::Mutex::new(vec![]));
    let submitters = (0..3).map(|_| {
        let (store, acknowledged) = (store.clone(), acknowledged.clone());
        thread::spawn(move || {
            for _ in 0..3 {
                let job = new_job(endpoint());
                match block_on(store.submit(job.clone())) {
                    Ok(_) => acknowledged.lock().unwrap().push(job.id),
                    Err(error) => assert_eq!(error, StoreError::Closed),
                }
            }
        })
    });
    let worker = {
        let store = store.clone();
        move || {
            let worker = WorkerId::new("w").unwrap();
            let mut ended = vec![];
            for turn in 0..3 {
                let Ok(claimed) = block_on(store.claim(&endpoint(), &worker)) else { break };
                if let Some(job) = claimed {
                    let done = Outcome::Completed(Json::parse("2").unwrap());
                    let end = match turn {
                        0 => block_on(store.cancel(&endpoint(), job.lease.job)).map(|_| ()),
                        1 => block_on(store.finish(job.lease, done)).map(|_| ()),
                        _ => {
                            block_on(store.finish_deferred(job.lease, done, metered())).map(|_| ())
                        }
                    };
                    let status =
                        if turn == 0 { JobStatus::Cancelled } else { JobStatus::Completed };
                    if end.is_ok() && turn < 2 {
                        ended.push((job.lease.job, status));
                    }
                }
            }
            ended
        }
    };
    // The database's thread waits for removals.
    let purger = {
        let store = store.clone();
        move || {
            let purged = EndpointId::new("purged").unwrap();
            let mut removed = vec![];
            for _ in 0..2 {
                let job = new_job(purged.clone());
                let submitted = block_on(store.submit(job.clone()));
                let _ = block_on(store.load_catalog());
                if submitted.is_ok() && block_on(store.purge(&purged)).is_ok() {
                    removed.push(job.id);
                }
            }
            removed
        }
    };
    let submitters: Vec<_> = submitters.collect();
    let (worker, purger) = (thread::spawn(worker), thread::spawn(purger));
    if closes {
        block_on(store.close());
    }
    for submitter in submitters {
        submitter.join().unwrap();
    }
    let ended = worker.join().unwrap();
    let removed = purger.join().unwrap();
    if !closes {
        block_on(store.flush()).unwrap();
        assert_eq!(
            store.shared.space.available_permits(),
            WRITE_BUFFER_BYTES,
            "not all room was given back"
        );
    }
    drop(Arc::into_inner(store));

    let store = open(dir.path(), segment_bytes);
    for id in acknowledged.lock().unwrap().iter() {
        assert!(block_on(store.job(&endpoint(), *id)).unwrap().is_some(), "{id} is lost");
    }
    for id in removed {
        assert!(block_on(store.job(&EndpointId::new("purged").unwrap(), id)).unwrap().is_none());
    }
    for (id, status) in ended {
        let record = block_on(store.job(&endpoint(), id)).unwrap().unwrap();
        assert_eq!(record.status, status, "{id} has another status than reported");
    }
    block_on(store.close());
}

fn in_many_orders(scheduler: impl Scheduler + 'static, test: fn()) {
    let mut config = shuttle::Config::new();
    config.stack_size = STACK_BYTES;
    shuttle::Runner::new(scheduler, config).run(test);
}

fn no_call_waits_for_ever_and_no_change_is_lost() {
    in_many_orders(RandomScheduler::new(ORDERS), || callers_and_threads(false, 2_048));
}

fn a_close_may_happen_at_any_moment() {
    in_many_orders(RandomScheduler::new(ORDERS), || callers_and_threads(true, 512));
}

/// Some threads run only when no other can, for a while.
fn a_thread_may_be_slow() {
    in_many_orders(PctScheduler::new(3, ORDERS), || callers_and_threads(false, 512));
}
