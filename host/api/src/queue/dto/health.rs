//! The health report.

use gristmill_core::jobs::operations::Health;
use gristmill_wire::queue::{HealthReport, JobsReport, WorkersReport};

/// The answer's form of the counts.
pub(crate) fn health_report(Health { jobs, workers }: Health) -> HealthReport {
    HealthReport {
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
