//! `GET /{endpoint}/requests`: the endpoint's jobs, newest first, page by page.

use axum::Json;
use axum::extract::RawQuery;
use gristmill_core::job::listing::JobQuery;
use gristmill_core::job::state::{JobStatus, UnknownStatus};
use gristmill_core::limits::LIST_JOBS;
use gristmill_wire::queue::RequestList;

use crate::answer::error::ApiError;
use crate::identity::caller::{Admitted, Read};
use crate::openapi::parameters::RequestFilter;
use crate::openapi::refusals::Mistaken;
use crate::openapi::tag;
use crate::queue::dto;
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
    Ok(Json(dto::request_list(&page, now)))
}

fn status(query: Query<'_>) -> Result<Option<JobStatus>, ApiError> {
    let Some(text) = query.text("status") else { return Ok(None) };
    text.parse().map(Some).map_err(|error: UnknownStatus| {
        ApiError::bad_request(format!("query `status` {error}, not `{text}`"))
    })
}
