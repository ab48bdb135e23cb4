//! Either store with its clock and signals, for suites that test both.

use std::sync::Arc;

use gristmill_core::catalog::CatalogStore;
use gristmill_core::id::{JobId, NodeId};
use gristmill_core::job_action::JobActionStore;
use gristmill_core::record::{ClaimedJob, JobRecord, NewJob};
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore;
use gristmill_core::time::ManualClock;
use gristmill_core::usage::UsageStore;
use gristmill_store::{MemoryStore, Settings};
use tempfile::TempDir;

use super::{QUEUE_JOBS_MAX, START, endpoint, job, open_with, submit, worker};

pub(crate) trait Store: JobStore + CatalogStore + UsageStore + JobActionStore {}
impl<T: JobStore + CatalogStore + UsageStore + JobActionStore> Store for T {}

/// A store with its clock and signals.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) signals: Arc<Signals>,
    _dir: Option<TempDir>,
}

impl Fixture {
    pub(crate) fn memory() -> Self {
        let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
        let store = MemoryStore::new(NodeId(7), clock.clone(), signals.clone())
            .with_queue_jobs_max(QUEUE_JOBS_MAX);
        Self { store: Arc::new(store), clock, signals, _dir: None }
    }

    pub(crate) fn sqlite() -> Self {
        Self::sqlite_with(super::settings())
    }

    pub(crate) fn with_small_segments() -> Self {
        Self::sqlite_with(super::with_small_segments())
    }

    pub(crate) fn archiving_at_once() -> Self {
        Self::sqlite_with(super::archiving_at_once())
    }

    fn sqlite_with(settings: Settings) -> Self {
        let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open_with(settings, dir.path(), &clock, &signals);
        Self { store: Arc::new(store), clock, signals, _dir: Some(dir) }
    }

    /// Submits a job with the defaults and waits until it is durable.
    pub(crate) async fn submit(&self, endpoint: &str) -> JobId {
        self.submit_job(job(endpoint)).await
    }

    pub(crate) async fn submit_job(&self, job: NewJob) -> JobId {
        submit(&*self.store, job).await
    }

    /// Claims up to `count` jobs.
    pub(crate) async fn claim_many(&self, name: &str, count: usize) -> Vec<ClaimedJob> {
        let workers: Vec<_> = (0..count).map(|n| worker(&format!("w{n}"))).collect();
        self.store.claim(&endpoint(name), &workers).await.unwrap()
    }

    /// Claims the one job that is expected next.
    pub(crate) async fn claim(&self, endpoint: &str) -> ClaimedJob {
        let mut claimed = self.claim_many(endpoint, 1).await;
        claimed.pop().expect("a job waits")
    }

    pub(crate) async fn record(&self, name: &str, id: JobId) -> Option<JobRecord> {
        self.flush().await;
        self.store.job(&endpoint(name), id).await.unwrap()
    }

    /// Waits until everything requested so far is visible, including claims and chunks.
    pub(crate) async fn flush(&self) {
        self.store.write_catalog(Vec::new()).await.unwrap();
    }
}

/// Makes four tests of each function that takes a [`Fixture`]: with either store, with a store
/// that checkpoints all the time, and with a store that also archives ended jobs at once.
macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::support::fixture::Fixture::memory()).await })*
        }
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::support::fixture::Fixture::sqlite()).await })*
        }
        mod archiving_at_once {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::support::fixture::Fixture::archiving_at_once()).await })*
        }
        mod with_small_segments {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::support::fixture::Fixture::with_small_segments()).await })*
        }
    };
}
pub(crate) use contract;
