//! The health report.

use serde::{Deserialize, Serialize};

/// The health report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HealthReport {
    /// The endpoint's jobs.
    pub jobs: JobsReport,
    /// The endpoint's workers.
    pub workers: WorkersReport,
}

/// Jobs by state; the ended and retried ones since the endpoint was created. On an endpoint of the
/// type `LOAD_BALANCER`, HTTP requests that run or wait now are counted too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobsReport {
    /// Completed ever.
    pub completed: u64,
    /// Failed or timed out ever.
    pub failed: u64,
    /// Running now.
    pub in_progress: u64,
    /// Waiting now.
    pub in_queue: u64,
    /// Queued again ever.
    pub retried: u64,
}

/// Workers by state. Of those that run, the ones whose jobs wait for called ones are beyond
/// `workersMax`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WorkersReport {
    /// They wait for a job.
    pub idle: u64,
    /// They load the component.
    pub initializing: u64,
    /// The same as `idle`.
    pub ready: u64,
    /// They run a job.
    pub running: u64,
    /// They wait for a sandbox.
    pub throttled: u64,
    /// They cannot run the component.
    pub unhealthy: u64,
}
