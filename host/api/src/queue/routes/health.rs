//! `GET /{endpoint}/health`: the endpoint's jobs and workers.

use axum::Json;

use gristmill_core::jobs::operations::Health;
use gristmill_wire::queue::{HealthReport, JobsReport, WorkersReport};

use crate::answer::error::ApiError;
use crate::identity::caller::{Admitted, Read};
use crate::openapi::tag;

/// The endpoint's jobs and workers.
///
/// Read from memory; costs the same with any number of jobs.
#[utoipa::path(
    get, path = "/{endpoint}/health", operation_id = "GetHealth", tag = tag::JOBS,
    responses((status = 200, description = "The report", body = HealthReport)),
)]
pub(crate) async fn health(
    Admitted { state, call, .. }: Admitted<Read>,
) -> Result<Json<HealthReport>, ApiError> {
    Ok(Json(health_report(state.jobs.health(&call.deployment.endpoint).await?)))
}

/// The answer's form of the counts.
fn health_report(Health { jobs, workers }: Health) -> HealthReport {
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
