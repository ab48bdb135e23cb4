//! An endpoint's workers, as the API sees them.

use crate::id::{EndpointId, WorkerId};
use crate::time::Timestamp;

/// Number of an endpoint's workers, by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Workers that wait for a job.
    pub idle: u64,
    /// Workers that prepare the component, which is not loaded yet.
    pub initializing: u64,
    /// Workers that run a job.
    pub running: u64,
    /// Workers that wait for a sandbox, because the host runs its maximum.
    pub throttled: u64,
    /// Workers that cannot run the component.
    pub unhealthy: u64,
}

/// One worker of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Worker {
    /// Its id, as its jobs show it.
    pub id: WorkerId,
    /// The version of the endpoint that it runs.
    pub version: u32,
    /// When it was started.
    pub started_at: Timestamp,
}

/// Answers questions about workers. Implemented by the dispatcher.
pub trait Workers: Send + Sync + std::fmt::Debug {
    /// Adjusts an endpoint's workers after it was created or changed: starts workers for waiting
    /// jobs, and ends those beyond its new bounds.
    fn refresh(&self, endpoint: &EndpointId);

    /// The endpoint's workers now.
    fn counts(&self, endpoint: &EndpointId) -> WorkerCounts;

    /// The endpoint's workers now, without those of `workersMin` that no job has needed yet: these
    /// are only a number.
    fn list(&self, endpoint: &EndpointId) -> Vec<Worker>;

    /// The endpoint's HTTP requests that wait for a worker now.
    fn waiting_requests(&self, endpoint: &EndpointId) -> u64;

    /// Why a waiting job of the endpoint does not run; `None` when it will run soon.
    fn waiting_reason(&self, endpoint: &EndpointId) -> Option<String>;
}
