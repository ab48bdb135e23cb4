//! Each store with its clock and signals, for suites that test all of them.

use std::sync::Arc;

use gristmill_core::billing::usage::UsageStore;
use gristmill_core::catalog::CatalogStore;
use gristmill_core::id::{JobId, ShardId};
use gristmill_core::job::action::JobActionStore;
use gristmill_core::job::note::ScheduleStore;
use gristmill_core::job::record::{ClaimedJob, JobRecord, NewJob};
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore;
use gristmill_core::time::ManualClock;
use gristmill_store::{Settings, Store};
use gristmill_test_support::ClaimEach as _;
use gristmill_test_support::ModelStore;
use tempfile::TempDir;

use super::postgres::Database;
use super::{QUEUE_JOBS_MAX, START, endpoint, job, open_with, submit, worker};

pub(crate) trait AnyStore:
    JobStore + CatalogStore + ScheduleStore + UsageStore + JobActionStore
{
}
impl<T: JobStore + CatalogStore + ScheduleStore + UsageStore + JobActionStore> AnyStore for T {}

/// A store with its clock and signals.
pub(crate) struct Fixture {
    pub(crate) store: Arc<dyn AnyStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) signals: Arc<Signals>,
    _dir: Option<TempDir>,
    /// Dropped after the store.
    _database: Option<Database>,
}

impl Fixture {
    /// The engine without a disk.
    pub(crate) fn memory() -> Self {
        let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
        let settings = super::settings();
        let store = Store::in_memory(ShardId(7), clock.clone(), signals.clone(), settings).unwrap();
        Self { store: Arc::new(store), clock, signals, _dir: None, _database: None }
    }

    /// The engine over PostgreSQL; `None` where the tests may skip it.
    pub(crate) fn postgres() -> Option<Self> {
        let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
        let database = Database::new()?;
        let store = super::open_postgres(super::without_caches(), &database, &clock, &signals);
        Some(Self { store: Arc::new(store), clock, signals, _dir: None, _database: Some(database) })
    }

    pub(crate) fn model() -> Self {
        let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
        let store = ModelStore::new(ShardId(7), clock.clone(), signals.clone())
            .with_queue_jobs_max(QUEUE_JOBS_MAX);
        Self { store: Arc::new(store), clock, signals, _dir: None, _database: None }
    }

    pub(crate) fn journal() -> Self {
        Self::journal_with(super::settings())
    }

    pub(crate) fn with_small_segments() -> Self {
        Self::journal_with(super::with_small_segments())
    }

    pub(crate) fn archiving_at_once() -> Self {
        Self::journal_with(super::archiving_at_once())
    }

    fn journal_with(settings: Settings) -> Self {
        let (clock, signals) = (Arc::new(ManualClock::new(START)), Arc::new(Signals::default()));
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open_with(settings, dir.path(), &clock, &signals);
        Self { store: Arc::new(store), clock, signals, _dir: Some(dir), _database: None }
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
        self.store.claim_each(&endpoint(name), &workers).await.unwrap()
    }

    /// Claims the one job that is expected next.
    pub(crate) async fn claim(&self, endpoint: &str) -> ClaimedJob {
        let mut claimed = self.claim_many(endpoint, 1).await;
        claimed.pop().expect("a job waits")
    }

    pub(crate) async fn record(&self, name: &str, id: JobId) -> Option<JobRecord> {
        self.flush().await;
        self.store.job(&endpoint(name), id).await.unwrap().map(|record| *record)
    }

    /// Waits until everything requested so far is visible, including claims and chunks.
    pub(crate) async fn flush(&self) {
        self.store.write_catalog(Vec::new()).await.unwrap();
    }
}

/// Makes six tests of each function that takes a [`Fixture`]: with the model, with the engine over
/// each medium, with a journal that is checkpointed all the time, and with one whose ended jobs
/// also leave memory at once.
macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod model {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::support::fixture::Fixture::model()).await })*
        }
        mod memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::support::fixture::Fixture::memory()).await })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(fixture) = crate::support::fixture::Fixture::postgres() {
                    super::$name(fixture).await;
                }
            })*
        }
        mod journal {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(crate::support::fixture::Fixture::journal()).await })*
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
