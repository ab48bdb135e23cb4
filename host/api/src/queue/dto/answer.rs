//! Small answers of the queue API, and the headers with a job's id.

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use gristmill_core::id::JobId;
use gristmill_core::job::state::JobStatus;
use gristmill_wire::queue::Accepted;

/// The answer of `/run`, `/cancel` and `/retry`.
pub(crate) fn accepted(id: JobId, status: JobStatus) -> axum::Json<Accepted> {
    axum::Json(Accepted { id: id.to_string(), status })
}

/// The header with the job's id.
pub(crate) const JOB_ID: HeaderName = HeaderName::from_static("x-job-id");

/// Adds the job's id as a header, which arrives before the body.
pub(crate) fn add_job_id_header(response: &mut Response, id: JobId) {
    let id = HeaderValue::from_str(id.text().as_str()).expect("a job id is a header value");
    response.headers_mut().insert(JOB_ID, id);
}

/// The header with the id of a request, which OpenAI's clients read.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Adds the job's id as `X-Request-Id` too.
pub(crate) fn add_request_id_header(response: &mut Response) {
    if let Some(id) = response.headers().get(&JOB_ID).cloned() {
        response.headers_mut().insert(REQUEST_ID, id);
    }
}
