//! `GET /v1/jobs`: the jobs of all endpoints that a key sees, by status, tag, time, id and error.

use axum::body::Body;
use axum::extract::RawQuery;
use axum::response::Response;
use gristmill_core::job::filter::JobSearch;
use gristmill_core::limits::LIST_JOBS;
use gristmill_wire::management::JobList;

use super::{dto, job_filter};
use crate::answer::error::ApiError;
use crate::answer::json::json_response;
use crate::identity::caller::{Caller, Read};
use crate::openapi::parameters::JobListFilter;
use crate::openapi::refusals::{Missing, Mistaken};
use crate::openapi::tag;
use crate::request::query::Query;

/// Jobs of all endpoints that the key sees, the newest submission first.
///
/// All conditions must hold; of several statuses, or several endpoints, any one. A page ends after
/// a bounded number of jobs was examined, or after 1 MiB, so it may be short, or empty, and still
/// have a `cursor`; only the last page has none. A job that exists from the first page to the last
/// one is on exactly one of them, also while other jobs end and are deleted. A search by tag reads
/// only jobs with this tag; one by `error` reads all jobs that failed, and one by `idPart` all
/// jobs. A list searches at most 1,000 endpoints; a key that sees more must name some.
#[utoipa::path(
    get, path = "/jobs", operation_id = "ListJobs", tag = tag::JOBS,
    params(JobListFilter),
    responses((status = 200, description = "A page of them", body = JobList), Mistaken, Missing),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Read>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let query = Query(query.as_deref().unwrap_or_default());
    let named = query.all("endpoint").map(|text| text.parse()).collect::<Result<Vec<_>, _>>();
    let named =
        named.map_err(|error| ApiError::bad_request(format!("query `endpoint`: {error}")))?;
    let search = JobSearch {
        endpoints: job_filter::endpoints(&state, &key, &named, ApiError::from)?,
        filter: job_filter::of_query(query)?,
        after: query.cursor()?,
        count_max: query.bounded("limit", LIST_JOBS)?,
    };
    let (page, read_at) = state.jobs.search(&search).await?;
    let json = state.pages.write(&key, move || dto::job_list(page, read_at)).await?;
    Ok(json_response(Body::from(json)))
}
