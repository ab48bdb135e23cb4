//! An endpoint's workers, as the API sees them.

use crate::id::EndpointId;

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

/// Answers questions about workers. Implemented by the dispatcher.
pub trait Workers: Send + Sync + std::fmt::Debug {
    /// Adjusts an endpoint's workers after it was created or changed: starts workers for waiting
    /// jobs, and ends those beyond its new bounds.
    fn refresh(&self, endpoint: &EndpointId);

    /// The endpoint's workers now.
    fn counts(&self, endpoint: &EndpointId) -> WorkerCounts;

    /// Why a waiting job of the endpoint does not run; `None` when it will run soon.
    fn waiting_reason(&self, endpoint: &EndpointId) -> Option<String>;
}
