//! Workers that run no job.

use std::sync::Arc;

use gristmill_core::id::{EndpointId, WorkerId};
use gristmill_core::job::record::ClaimedJob;
use gristmill_core::workers::{ReadyWorker, Worker, WorkerCounts, Workers};
use parking_lot::Mutex;

/// A host without workers.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoWorkers;

impl Workers for NoWorkers {
    fn refresh(&self, _: &EndpointId) {}

    fn counts(&self, _: &EndpointId) -> WorkerCounts {
        WorkerCounts::default()
    }

    fn list(&self, _: &EndpointId) -> Vec<Worker> {
        vec![]
    }

    fn waiting_reason(&self, _: &EndpointId) -> Option<String> {
        Some("the endpoint has no workers".to_owned())
    }
}

/// A worker that remembers the job which it was to run.
#[derive(Debug)]
pub struct RecordedWorker {
    id: WorkerId,
    job: Arc<Mutex<Option<ClaimedJob>>>,
}

impl RecordedWorker {
    /// The worker, and the place of its job, which nothing else holds once the worker was dropped.
    pub fn idle(id: WorkerId) -> (Box<dyn ReadyWorker>, Arc<Mutex<Option<ClaimedJob>>>) {
        let job: Arc<Mutex<Option<ClaimedJob>>> = Arc::default();
        (Box::new(Self { id, job: job.clone() }), job)
    }
}

impl ReadyWorker for RecordedWorker {
    fn id(&self) -> &WorkerId {
        &self.id
    }

    fn run(self: Box<Self>, job: ClaimedJob) {
        *self.job.lock() = Some(job);
    }
}

/// Workers that remember each endpoint that they were notified of.
#[derive(Debug, Default)]
pub struct RecordedWorkers(Mutex<Vec<EndpointId>>);

impl RecordedWorkers {
    /// The endpoints since the last call of this.
    pub fn take(&self) -> Vec<EndpointId> {
        std::mem::take(&mut self.0.lock())
    }
}

impl Workers for RecordedWorkers {
    fn refresh(&self, endpoint: &EndpointId) {
        self.0.lock().push(endpoint.clone());
    }

    fn counts(&self, endpoint: &EndpointId) -> WorkerCounts {
        NoWorkers.counts(endpoint)
    }

    fn list(&self, endpoint: &EndpointId) -> Vec<Worker> {
        NoWorkers.list(endpoint)
    }

    fn waiting_reason(&self, endpoint: &EndpointId) -> Option<String> {
        NoWorkers.waiting_reason(endpoint)
    }
}
