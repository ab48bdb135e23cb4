//! The wire shapes of the queue API, with their schemas. Fields without a value are absent.

mod health;
mod requests;
mod status;
mod stream;
mod timeline;

pub(crate) use health::HealthReport;
pub(crate) use requests::RequestList;
pub(crate) use status::{StatusDocument, status_document};
pub(crate) use stream::{StreamAnswer, StreamPage, stream_page, write_chunk};
pub(crate) use timeline::Timeline;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use gristmill_core::id::JobId;
use gristmill_core::job::JobStatus;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::schema;

/// The answer of `/run`, `/cancel` and `/retry`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Accepted {
    #[schema(value_type = schema::JobId)]
    id: JobId,
    #[schema(value_type = schema::Status)]
    status: &'static str,
}

impl Accepted {
    pub(crate) fn new(id: JobId, status: JobStatus) -> axum::Json<Self> {
        axum::Json(Self { id, status: status.as_str() })
    }
}

/// The queue purge result.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Purged {
    pub(crate) removed: u64,
    pub(crate) status: &'static str,
}

/// The header with the job's id.
pub(crate) const JOB_ID: HeaderName = HeaderName::from_static("x-job-id");

/// Adds the job's id as a header, which arrives before the body.
pub(crate) fn add_job_id_header(response: &mut Response, id: JobId) {
    let id = HeaderValue::from_str(&id.to_string()).expect("a job id is a header value");
    response.headers_mut().insert(JOB_ID, id);
}

/// Adds the job's id as `X-Request-Id` too, which OpenAI's clients read.
pub(crate) fn add_request_id_header(response: &mut Response) {
    const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
    if let Some(id) = response.headers().get(&JOB_ID).cloned() {
        response.headers_mut().insert(REQUEST_ID, id);
    }
}

/// A 200 with a body that is JSON.
pub(crate) fn json_response(body: Body) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(header::CONTENT_TYPE, json)], body).into_response()
}
