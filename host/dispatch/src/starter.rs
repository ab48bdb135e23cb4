//! Starts workers, for the dispatcher and for the scaler.

use std::sync::Arc;

use gristmill_core::id::EndpointId;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use crate::shared::Shared;
use crate::worker;
use crate::worker_set::WorkerSet;

/// The parts that are needed to start a worker.
#[derive(Debug, Clone)]
pub(crate) struct Starter {
    pub(crate) shared: Arc<Shared>,
    /// The threads that run handlers.
    pub(crate) guests: Handle,
    /// The workers that have not ended.
    pub(crate) workers: TaskTracker,
}

impl Starter {
    /// Starts a worker that `set` counts already.
    pub(crate) fn start(&self, endpoint: &EndpointId, set: &Arc<WorkerSet>) {
        let worker = worker::run(self.shared.clone(), endpoint.clone(), set.clone());
        self.workers.spawn_on(worker, &self.guests);
    }
}
