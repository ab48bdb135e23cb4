//! The health report.

use gristmill_core::jobs::Health;
use serde::Serialize;
use utoipa::ToSchema;

/// The health report.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthReport {
    jobs: JobsReport,
    workers: WorkersReport,
}

/// Jobs by state; the ended and retried ones since the endpoint was created.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
struct JobsReport {
    completed: u64,
    failed: u64,
    in_progress: u64,
    in_queue: u64,
    retried: u64,
}

/// Workers by state.
#[derive(Debug, Serialize, ToSchema)]
struct WorkersReport {
    idle: u64,
    initializing: u64,
    ready: u64,
    running: u64,
    throttled: u64,
    unhealthy: u64,
}

impl From<Health> for HealthReport {
    fn from(Health { jobs, workers }: Health) -> Self {
        Self {
            jobs: JobsReport {
                completed: jobs.completed,
                failed: jobs.failed,
                in_progress: jobs.in_progress,
                in_queue: jobs.in_queue,
                retried: jobs.retried,
            },
            workers: WorkersReport {
                idle: workers.idle,
                initializing: workers.initializing,
                ready: workers.idle,
                running: workers.running,
                throttled: workers.throttled,
                unhealthy: workers.unhealthy,
            },
        }
    }
}
