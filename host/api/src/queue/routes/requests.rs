//! `GET /{endpoint}/requests`: the endpoint's jobs, newest first, page by page.

use axum::Json;
use axum::extract::RawQuery;
use gristmill_core::job::listing::{Cursor, JobPage, JobQuery};
use gristmill_core::job::record::JobRecord;
use gristmill_core::job::state::{JobStatus, UnknownStatus};
use gristmill_core::limits::LIST_JOBS;
use gristmill_core::time::Timestamp;
use gristmill_wire::queue::{RequestList, RequestSummary};

use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Admitted, Read};
use crate::openapi::parameters::RequestFilter;
use crate::openapi::refusals::Mistaken;
use crate::openapi::tag;
use crate::request::query::Query;

/// The endpoint's jobs, newest first.
///
/// A page may be short and still have a `cursor`.
#[utoipa::path(
    get, path = "/{endpoint}/requests", operation_id = "ListRequests", tag = tag::JOBS,
    params(RequestFilter),
    responses((status = 200, description = "A page of them", body = RequestList), Mistaken),
)]
pub(crate) async fn requests(
    Admitted { state, call, .. }: Admitted<Read>,
    RawQuery(query): RawQuery,
) -> Result<Json<RequestList>, ApiError> {
    let query = Query(query.as_deref().unwrap_or_default());
    let query = JobQuery {
        status: status(query)?,
        after: query.cursor()?,
        count_max: query.bounded("limit", LIST_JOBS)?,
    };
    let (page, now) = state.jobs.list(&call.deployment.endpoint.id, &query).await?;
    Ok(Json(request_list(&page, now)))
}

fn status(query: Query<'_>) -> Result<Option<JobStatus>, ApiError> {
    let Some(text) = query.text("status") else { return Ok(None) };
    text.parse().map(Some).map_err(|error: UnknownStatus| {
        ApiError::bad_request(format!("query `status` {error}, not `{text}`"))
    })
}

/// The answer's form of a page.
fn request_list(page: &JobPage, read_at: Timestamp) -> RequestList {
    let summary = |job: &JobRecord| RequestSummary {
        id: job.id.to_string(),
        status: job.status,
        created_at: rfc3339(job.created_at),
        delay_time: job.delay_ms(read_at),
        execution_time: job.execution_ms(read_at),
        worker_id: job.worker.clone(),
    };
    RequestList {
        requests: page.jobs.iter().map(summary).collect(),
        cursor: page.next.map(|Cursor(position)| format!("{position:016x}")),
    }
}
