//! Stores on a stopped clock, and helpers to use them.

pub(crate) mod ended;
pub(crate) mod fixture;
pub(crate) mod on_disk;
pub(crate) mod postgres;
pub(crate) mod proxy;

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use gristmill_core::backup::{BackupFile, JOURNAL};
use gristmill_core::billing::usage::{Bill, JobUsage, Metered, UsageFilter, UsageQuery};
use gristmill_core::id::{
    EndpointId, JobId, OwnerId, ShardId, SubmissionKind, TemplateId, WorkerId,
};
use gristmill_core::job::payload::Json;
use gristmill_core::job::policy::{Policy, Start};
use gristmill_core::job::record::{Chunk, Lease, NewJob, StoreEpoch, StreamPosition};
use gristmill_core::job::retention::Retention;
use gristmill_core::job::state::Claim;
use gristmill_core::limits::{RETENTION_ASYNC_MS, RETENTION_SYNC_MS_MIN};
use gristmill_core::signals::Signals;
use gristmill_core::store::{JobStore, SubmitAnswer};
use gristmill_core::time::{ManualClock, Timestamp};
use gristmill_store::{Recovery, Settings, Store};
use gristmill_test_support::new_job;
use tempfile::TempDir;

use self::postgres::Database;

pub(crate) const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
pub(crate) const TTL_MS: u64 = 86_400_000;
pub(crate) const TIMEOUT_MS: u64 = 600_000;
pub(crate) const QUEUE_JOBS_MAX: usize = 1_500;

pub(crate) fn settings() -> Settings {
    Settings { queue_jobs_max: QUEUE_JOBS_MAX, ..Settings::default() }
}

/// Everything that readers see comes from the medium.
pub(crate) fn without_caches() -> Settings {
    Settings { payload_cache_bytes: 0, chunk_cache_bytes: 0, ..settings() }
}

/// A journal with hardly room for a batch, and no caches: everything is soon in the database.
pub(crate) fn with_small_segments() -> Settings {
    Settings {
        journal_bytes: 0,
        segment_bytes: 512,
        payload_cache_bytes: 0,
        chunk_cache_bytes: 0,
        ..settings()
    }
}

/// The same, and ended jobs leave memory at once.
pub(crate) fn archiving_at_once() -> Settings {
    Settings { archive_after_ms: 0, ..with_small_segments() }
}

pub(crate) fn open(
    dir: &Path,
    clock: &Arc<ManualClock>,
    signals: &Arc<Signals>,
) -> (Store, Recovery) {
    open_with(settings(), dir, clock, signals)
}

pub(crate) fn open_with(
    settings: Settings,
    dir: &Path,
    clock: &Arc<ManualClock>,
    signals: &Arc<Signals>,
) -> (Store, Recovery) {
    Store::open(dir, clock.clone(), signals.clone(), settings).unwrap()
}

pub(crate) fn open_postgres(
    settings: Settings,
    database: &Database,
    clock: &Arc<ManualClock>,
    signals: &Arc<Signals>,
) -> Store {
    let settings = Settings { secrets_key: Some(database.key_file()), ..settings };
    Store::open_postgres(&database.url().parse().unwrap(), clock.clone(), signals.clone(), settings)
        .unwrap()
        .0
}

/// A data directory of a backup's files.
pub(crate) fn restore(files: Vec<BackupFile>) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join(JOURNAL)).unwrap();
    for file in files {
        let mut to = std::fs::File::create_new(dir.path().join(&file.name)).unwrap();
        let copied = std::io::copy(&mut file.content.take(file.bytes), &mut to).unwrap();
        assert_eq!(copied, file.bytes, "{}", file.name);
    }
    dir
}

/// Submits a new job, and waits until it is durable.
pub(crate) async fn submit(store: &dyn JobStore, job: NewJob) -> JobId {
    let id = job.id;
    assert_eq!(store.submit(job).await, Ok(SubmitAnswer::Queued));
    id
}

pub(crate) fn endpoint(name: &str) -> EndpointId {
    EndpointId::new(name).unwrap()
}

pub(crate) fn worker(name: &str) -> WorkerId {
    WorkerId::new(name).unwrap()
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

pub(crate) fn chunk(text: &str) -> Chunk {
    Chunk { output: json(text), metrics: None, part: None }
}

pub(crate) fn stream_position(attempt: u32, index: u64) -> StreamPosition {
    StreamPosition { attempt: Claim(attempt), index }
}

pub(crate) fn job(endpoint: &str) -> NewJob {
    NewJob {
        input: json(r#"{"n":1}"#),
        policy: Policy {
            execution_timeout_ms: Some(TIMEOUT_MS),
            ttl_ms: TTL_MS,
            low_priority: false,
            start: Start::Now,
            retry: None,
        },
        retention: Retention::by_default(RETENTION_ASYNC_MS),
        ..new_job(ShardId(7), OwnerId::new("owner").unwrap(), self::endpoint(endpoint))
    }
}

pub(crate) fn sync_job(endpoint: &str) -> NewJob {
    let id = JobId::generate(SubmissionKind::Sync, ShardId(7));
    NewJob { id, retention: Retention::by_default(RETENTION_SYNC_MS_MIN), ..job(endpoint) }
}

pub(crate) fn low_priority(mut job: NewJob) -> NewJob {
    job.policy.low_priority = true;
    job
}

pub(crate) fn with_ttl(mut job: NewJob, ttl_ms: u64) -> NewJob {
    job.policy.ttl_ms = ttl_ms;
    job
}

pub(crate) fn delayed(mut job: NewJob, ms: u64) -> NewJob {
    job.policy.start = Start::After(ms);
    job
}

/// The lease of a job that no store has.
pub(crate) fn unknown_lease() -> Lease {
    let job = JobId::generate(SubmissionKind::Async, ShardId(0));
    Lease { job, claim: Claim(1), epoch: StoreEpoch(1) }
}

/// The usage of an attempt, with a part of a MiB of memory.
pub(crate) fn metered(template: &str) -> Metered {
    Metered {
        template: TemplateId::new(template).unwrap(),
        cpu_us: 700,
        fuel: 1_000,
        memory_bytes_peak: 1_000_000,
        bytes_in: 10,
        bytes_out: 20,
        chunks: 2,
        egress_bytes: 0,
    }
}

/// The usage of one attempt at an endpoint, for the owner "owner".
pub(crate) fn bill(on: &str, template: &str, wall_ms: u64) -> Bill {
    let metered = metered(template);
    let used = JobUsage::of(&metered, wall_ms);
    let owner = OwnerId::new("owner").unwrap();
    Bill { endpoint: endpoint(on), template: metered.template, owner, used }
}

pub(crate) fn all_usage() -> UsageQuery {
    gristmill_test_support::usage_of_all_hours(UsageFilter::default(), 1_000)
}
