//! Workers that run no job.

use gristmill_core::id::EndpointId;
use gristmill_core::workers::{Worker, WorkerCounts, Workers};
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

    fn waiting_requests(&self, _: &EndpointId) -> u64 {
        0
    }

    fn waiting_reason(&self, _: &EndpointId) -> Option<String> {
        Some("the endpoint has no workers".to_owned())
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

    fn waiting_requests(&self, endpoint: &EndpointId) -> u64 {
        NoWorkers.waiting_requests(endpoint)
    }

    fn waiting_reason(&self, endpoint: &EndpointId) -> Option<String> {
        NoWorkers.waiting_reason(endpoint)
    }
}
