//! `GET /v1/jobs`: the jobs of all endpoints that a key sees, by status, tag, time, id and error.

use axum::body::Body;
use axum::extract::RawQuery;
use axum::response::Response;
use gristmill_core::job::filter::JobSearch;
use gristmill_core::job::listing::{Cursor, JobPage};
use gristmill_core::job::record::JobRecord;
use gristmill_core::job::tags::Tags;
use gristmill_core::limits::LIST_JOBS;
use gristmill_core::time::Timestamp;
use gristmill_wire::management::{JobList, JobSummary};

use super::job_filter;
use crate::answer::elements::Elements;
use crate::answer::error::ApiError;
use crate::answer::json::json_response;
use crate::answer::wire_time::rfc3339;
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
    let json = state.pages.write(&key, move || job_list(page, read_at)).await?;
    Ok(json_response(Body::from(json)))
}

/// A page as JSON, in the form of [`JobList`]. It ends as
/// [other pages](Elements) do.
///
/// # Errors
/// 500 when a job has no JSON form.
fn job_list(page: JobPage, read_at: Timestamp) -> Result<Vec<u8>, ApiError> {
    let (mut jobs, mut next) = (Elements::default(), page.next);
    for (index, job) in page.jobs.into_iter().enumerate() {
        if !jobs.add(&summary(job, read_at))? {
            // The first element always has room.
            next = index.checked_sub(1).and_then(|last| page.positions.after(last));
            break;
        }
    }
    let mut json = [&br#"{"jobs":"#[..], &jobs.into_json()].concat();
    if let Some(Cursor(position)) = next {
        json.extend_from_slice(format!(r#","cursor":"{position:016x}""#).as_bytes());
    }
    json.push(b'}');
    Ok(json)
}

fn summary(job: JobRecord, read_at: Timestamp) -> JobSummary {
    let pairs =
        |tags: Tags| tags.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    JobSummary {
        id: job.id.to_string(),
        status: job.status,
        created_at: rfc3339(job.created_at),
        delay_time: job.delay_ms(read_at),
        execution_time: job.execution_ms(read_at),
        retries: (job.retries > 0).then_some(job.retries),
        endpoint_id: job.endpoint,
        worker_id: job.worker,
        error: job.error,
        tags: job.tags.map(pairs),
    }
}
