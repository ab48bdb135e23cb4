//! What the tasks of a dispatcher share: the store and the sandbox, and what a drain needs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gristmill_core::catalog::Catalog;
use gristmill_core::runtime::Runtime;
use gristmill_core::signals::Signals;
use gristmill_core::store::JobStore;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Results that may be on their way to the disk at one time. A worker goes on to its next job
/// while its last result is being written; at this bound it waits.
pub(crate) const RESULTS_IN_FLIGHT_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) signals: Arc<Signals>,
    /// Fires when a drain's patience is over.
    pub(crate) stop_attempts: CancellationToken,
    /// The tasks that store results.
    pub(crate) results: TaskTracker,
    /// One permit for each result that may be on its way.
    pub(crate) results_in_flight: Arc<Semaphore>,
    is_draining: AtomicBool,
}

impl Shared {
    pub(crate) fn new(
        store: Arc<dyn JobStore>,
        catalog: Arc<Catalog>,
        runtime: Arc<dyn Runtime>,
        signals: Arc<Signals>,
    ) -> Self {
        Self {
            store,
            catalog,
            runtime,
            signals,
            stop_attempts: CancellationToken::new(),
            results: TaskTracker::new(),
            results_in_flight: Arc::new(Semaphore::new(RESULTS_IN_FLIGHT_MAX)),
            is_draining: AtomicBool::new(false),
        }
    }

    /// From now on no worker takes another job.
    pub(crate) fn begin_drain(&self) {
        self.is_draining.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::SeqCst)
    }
}
