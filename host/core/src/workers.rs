//! An endpoint's workers, as the API sees them.

use std::sync::Arc;

use crate::deploy::endpoint::Deployment;
use crate::id::{EndpointId, WorkerId};
use crate::job::record::ClaimedJob;
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

/// An idle worker that has reserved a sandbox for a job which is being submitted. Without that job,
/// because others wait before it or it is refused, the worker looks for a job itself when this is
/// dropped.
pub trait ReadyWorker: Send + std::fmt::Debug {
    /// The worker, as its jobs show it.
    fn id(&self) -> &WorkerId;

    /// Runs the job, which it has claimed. Does not wait for the job's end.
    fn run(self: Box<Self>, job: ClaimedJob);
}

/// Starts workers and answers questions about them. Implemented by the dispatcher.
pub trait Workers: Send + Sync + std::fmt::Debug {
    /// Adjusts an endpoint's workers after it was created or changed: starts workers for waiting
    /// jobs, and ends those beyond its new bounds.
    fn refresh(&self, endpoint: &EndpointId);

    /// The endpoint's workers now.
    fn counts(&self, endpoint: &EndpointId) -> WorkerCounts;

    /// The endpoint's workers now, without those of `workersMin` that no job has needed yet: these
    /// are only a number.
    fn list(&self, endpoint: &EndpointId) -> Vec<Worker>;

    /// An idle worker for a job of this deployment that is about to be submitted. `None` when there
    /// is none, or when other jobs wait.
    fn take_idle(&self, _deployment: &Arc<Deployment>) -> Option<Box<dyn ReadyWorker>> {
        None
    }

    /// Why a waiting job of the endpoint does not run; `None` when it will run soon.
    fn waiting_reason(&self, endpoint: &EndpointId) -> Option<String>;
}
