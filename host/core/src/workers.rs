//! What the API may ask about an endpoint's workers.

use crate::id::EndpointId;

/// How many workers an endpoint has, by what they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Wait for a job.
    pub idle: u64,
    /// Prepare the component, which is not loaded yet.
    pub initializing: u64,
    /// Run a job.
    pub running: u64,
    /// Have a job and wait for a sandbox, because the host runs as many as it may.
    pub throttled: u64,
    /// Cannot run the component.
    pub unhealthy: u64,
}

/// Answers questions about workers. Implemented by the dispatcher.
pub trait Workers: Send + Sync + std::fmt::Debug {
    /// Looks at an endpoint anew, after it was created or changed: starts workers for what waits,
    /// and lets go those beyond its new bounds.
    fn refresh(&self, endpoint: &EndpointId);

    /// The endpoint's workers now.
    fn counts(&self, endpoint: &EndpointId) -> WorkerCounts;

    /// Why a job that waits on the endpoint is not being run; `None` when it soon will be.
    fn waiting_reason(&self, endpoint: &EndpointId) -> Option<String>;
}
