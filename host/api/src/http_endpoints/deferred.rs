//! Requests that are answered later. `Prefer: respond-async` makes a job of a request, and its
//! answer is fetched from a path of the endpoint that no handler has.
//!
//! Both need a key, also on a public endpoint. **Bounds.** Those of a job: `/run`'s body for the
//! request, and an output for the answer.

use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, header,
};
use axum::response::IntoResponse as _;
use bytes::Bytes;
use gristmill_core::access::key::ApiKey;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::http_requests::deferred;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::policy::PolicyRequest;
use gristmill_core::job::state::JobStatus;
use gristmill_core::jobs::operations::{Jobs, SubmitMode, SubmitRequest};
use gristmill_core::limits::RUN_BODY_BYTES_MAX;

use super::body;
use super::target::{Address, PREFIX};
use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::admission::caller_trace;
use crate::identity::auth::KeyCheck;
use crate::queue::{dto, idempotency};
use crate::state::ApiState;

/// The beginning of the paths of an endpoint that belong to the host.
const OWN_PATHS: &str = "/.well-known/gristmill/";

/// The beginning of the path of an answer, below those. The id of its job follows.
const ANSWERS: &str = "requests/";

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");
const RESPOND_ASYNC: HeaderValue = HeaderValue::from_static("respond-async");

/// What a client wants instead of an answer at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Later<'p> {
    /// The answer to this request, later.
    Submit,
    /// The answer to an earlier one; the text that is to be its id.
    Fetch(&'p str),
}

impl<'p> Later<'p> {
    /// What a call of this path of an endpoint wants.
    pub(super) fn of(headers: &HeaderMap, path: &'p str) -> Option<Self> {
        let is_preferred = || {
            let lines = headers.get_all(PREFER).iter().filter_map(|line| line.to_str().ok());
            let mut preferences = lines.flat_map(|line| line.split(','));
            preferences.any(|one| {
                let name = one.split([';', '=']).next().unwrap_or_default().trim();
                name.eq_ignore_ascii_case("respond-async")
            })
        };
        match path.strip_prefix(OWN_PATHS) {
            // Any other path has the place of a job's id, which no job has.
            Some(path) => Some(Self::Fetch(path.strip_prefix(ANSWERS).unwrap_or(path))),
            None => is_preferred().then_some(Self::Submit),
        }
    }
}

/// Submits the job of a request, whose body has not been read.
///
/// # Errors
/// Those of `/run`.
pub(super) async fn submit(
    state: &ApiState,
    (parts, sent): (&Parts, Body),
    request: Request<()>,
    (key, check): (&Arc<ApiKey>, &KeyCheck),
    (deployment, address): (&Deployment, Address),
) -> Result<Response<Body>, ApiError> {
    let endpoint = &deployment.endpoint;
    let bytes_max = body::bytes_max(endpoint).min(RUN_BODY_BYTES_MAX);
    let read = state.bodies.read_as_it_is(&key.id, parts, sent, bytes_max).await?;
    check.check()?;
    let idempotency = idempotency::key(&parts.headers)?;
    let operation = format!("{} {}", request.method(), request.uri());
    let idempotency = idempotency.record(&key.owner, &operation, &read.bytes);
    let input = state.checks.run(key, &read.bytes, move |body| {
        let (mut head, ()) = request.into_parts();
        for name in [header::AUTHORIZATION, header::COOKIE, PREFER] {
            head.headers.remove(name);
        }
        let input = deferred::input(&Request::from_parts(head, body.clone()));
        match input.len() > RUN_BODY_BYTES_MAX {
            true => Err(ApiError::new(
                ErrorCode::PayloadTooLarge,
                format!(
                    "the request has {} bytes in JSON; at most {RUN_BODY_BYTES_MAX} are allowed for one that \
                     is answered later, and a body that is no text counts a third more",
                    input.len()
                ),
            )),
            false => Ok(input),
        }
    });
    let request = SubmitRequest {
        owner: key.owner.clone(),
        input: input.await?,
        policy: PolicyRequest::default(),
        webhook: None,
        s3_config: None,
        mode: SubmitMode::Async,
        idempotency,
        tags: None,
        trace: caller_trace(&parts.headers),
        note: None,
    };
    let submitted = state.jobs.submit(deployment, request).await?;
    let mut answer = waits(submitted.id, JobStatus::InQueue);
    let home = match address {
        Address::Path => format!("{PREFIX}{}", endpoint.id),
        Address::Name => String::new(),
    };
    let location = HeaderValue::try_from(format!("{home}{OWN_PATHS}{ANSWERS}{}", submitted.id));
    let location =
        location.map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))?;
    answer.headers_mut().insert(header::LOCATION, location);
    answer.headers_mut().insert(PREFERENCE_APPLIED, RESPOND_ASYNC);
    idempotency::add_replayed_header(submitted.is_repeated, &mut answer);
    Ok(answer)
}

/// The answer to an earlier request, as far as there is one.
///
/// # Errors
/// 404 for an unknown job; the reason of an answer that will not come.
pub(super) async fn fetch(
    state: &ApiState,
    (method, key): (&Method, &ApiKey),
    endpoint: &EndpointId,
    id: &str,
) -> Result<Response<Body>, ApiError> {
    if ![Method::GET, Method::HEAD].contains(method) {
        let sentence = "the answer to an earlier request is read by GET";
        return Err(ApiError::new(ErrorCode::MethodNotAllowed, sentence));
    }
    let unknown =
        || ApiError::not_found("no such request: its id is wrong, or its answer is too old");
    let id: JobId = id.parse().map_err(|_| unknown())?;
    let record = state.jobs.record(endpoint, id).await?.ok_or_else(unknown)?;
    let reason = || record.error.clone().unwrap_or_default();
    match record.status {
        JobStatus::InQueue | JobStatus::InProgress => return Ok(waits(id, record.status)),
        JobStatus::Failed => return Err(ApiError::new(ErrorCode::HandlerFailed, reason())),
        JobStatus::TimedOut => return Err(ApiError::new(ErrorCode::HandlerTimedOut, reason())),
        JobStatus::Cancelled => {
            return Err(ApiError::new(ErrorCode::JobCancelled, "the request was cancelled"));
        }
        JobStatus::Completed => {}
    }
    let _memory = state.results.result(&key.id, Jobs::document_bytes(&record)).await?;
    let output = state.jobs.returned(id).await?.ok_or_else(unknown)?;
    let json = output.clone();
    let answer = state.checks.run(key, output.as_bytes(), move |_| {
        deferred::answer(&json)
            .map_err(|error| ApiError::new(ErrorCode::Internal, error.to_string()))
    });
    let mut answer: Response<Bytes> = answer.await?;
    answer.headers_mut().remove(header::CONTENT_LENGTH);
    Ok(answer.map(Body::from))
}

/// The answer about a request that has none yet.
fn waits(id: JobId, status: JobStatus) -> Response<Body> {
    let mut answer = (StatusCode::ACCEPTED, dto::accepted(id, status)).into_response();
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preference_is_found_among_others() {
        for (lines, is_preferred) in [
            (&["respond-async"][..], true),
            (&["wait=10, Respond-Async"], true),
            (&["return=minimal", "respond-async; wait=10"], true),
            (&["respond-asynchronously"], false),
            (&["return=respond-async"], false),
            (&[], false),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(PREFER, HeaderValue::from_static(line));
            }
            let expected = is_preferred.then_some(Later::Submit);
            assert_eq!(Later::of(&headers, "/"), expected, "{lines:?}");
            let fetch = Later::of(&headers, "/.well-known/gristmill/requests/a");
            assert_eq!(fetch, Some(Later::Fetch("a")));
        }
    }
}
