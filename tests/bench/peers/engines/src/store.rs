//! Our store, through its public API.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gristmill_core::id::{EndpointId, JobId, OwnerId, SubmissionKind, WorkerId};
use gristmill_core::job::payload::Json;
use gristmill_core::job::policy::{Policy, Start};
use gristmill_core::job::record::{NewJob, Outcome};
use gristmill_core::job::retention::Retention;
use gristmill_core::signals::Signals;
use gristmill_core::store::{JobStore, NextExpiry};
use gristmill_core::time::{Clock, Timestamp};
use gristmill_store::Settings;
use gristmill_test_support::{EndAttempt as _, new_job};

use crate::engines::LOG_BYTES;

/// A clock that advances by a millisecond with each ended job, so that a retention of `kept`
/// milliseconds keeps this number of ended jobs.
#[derive(Debug)]
struct JobClock {
    ended: AtomicU64,
    begun: Instant,
}

const EPOCH_MS: u64 = 1_800_000_000_000;

impl Clock for JobClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(EPOCH_MS + self.ended.load(Relaxed))
    }

    fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn sleep_until(
        &self,
        _: Timestamp,
    ) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(tokio::time::sleep(Duration::from_millis(5)))
    }
}

pub struct Store {
    store: gristmill_store::Store,
    clock: Arc<JobClock>,
    endpoint: EndpointId,
    owner: OwnerId,
    worker: WorkerId,
    kept: u64,
}

impl Store {
    pub fn open(dir: &Path, kept: u64) -> (Arc<Self>, u64) {
        let clock = Arc::new(JobClock { ended: AtomicU64::new(0), begun: Instant::now() });
        let settings = Settings::with_journal(LOG_BYTES);
        let signals = Arc::new(Signals::default());
        let (store, _) = gristmill_store::Store::open(dir, clock.clone(), signals, settings).unwrap();
        let waiting = store.stats().jobs;
        let it = Self {
            store,
            clock,
            endpoint: EndpointId::new("bench").unwrap(),
            owner: OwnerId::new("owner").unwrap(),
            worker: WorkerId::new("worker").unwrap(),
            kept,
        };
        (Arc::new(it), waiting)
    }

    pub async fn submit(&self, payload: &Bytes) {
        let job = NewJob {
            id: JobId::generate(SubmissionKind::Sync, self.store.shard()),
            input: Json::from_stored(payload.clone()),
            policy: Policy { execution_timeout_ms: Some(600_000), ttl_ms: 1 << 40, low_priority: false, start: Start::Now, retry: None },
            retention: Retention::by_default(self.kept),
            ..new_job(self.store.shard(), self.owner.clone(), self.endpoint.clone())
        };
        let _ = self.store.submit(job).await.unwrap();
    }

    pub async fn run(&self, result: &Bytes) {
        let job = self.store.claim(&self.endpoint, &self.worker).await.unwrap().unwrap();
        std::hint::black_box(&job.input);
        let outcome = Outcome::Completed(Json::from_stored(result.clone()));
        let _ = self.store.finish(job.lease, outcome).await.unwrap();
        self.clock.ended.fetch_add(1, Relaxed);
    }

    pub async fn expire(&self) -> bool {
        let NextExpiry(next) = self.store.expire().await.unwrap();
        next <= self.clock.now()
    }

    pub fn commits(&self) -> u64 {
        self.store.stats().commits
    }
}
