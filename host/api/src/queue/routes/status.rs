//! `GET /{endpoint}/status/{job}` and its long form `status-sync`, which waits for the end.

use axum::extract::RawQuery;
use axum::response::Response;
use gristmill_core::access::key::Scope;
use gristmill_core::limits::WAIT_MS;
use gristmill_wire::queue::StatusDocument;

use crate::answer::error::ApiError;
use crate::identity::auth;
use crate::identity::caller::{Admitted, Read};
use crate::openapi::parameters::{StatusQuery, Wait};
use crate::openapi::refusals::Mistaken;
use crate::openapi::tag;
use crate::queue::{results, waiting};
use crate::request::query::{self, Query};

/// Shows the present state of the job.
///
/// A job that waits for a sandbox is IN_QUEUE: its `executionTimeout` has not begun.
#[utoipa::path(
    method(get, post), path = "/{endpoint}/status/{job}", operation_id = "GetStatus", tag = tag::JOBS,
    params(StatusQuery),
    responses((status = 200, description = "The job", body = StatusDocument<'_>), Mistaken),
)]
pub(crate) async fn status(
    Admitted { state, call, .. }: Admitted<Read>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let id = call.job()?;
    let endpoint = &call.deployment.endpoint.id;
    let query = query.as_deref().unwrap_or_default();
    let ttl_ms = Query(query).unsigned("ttl")?;
    let with_input = query::flag(query, &["input"])?;
    if ttl_ms.is_some() {
        // A ttl of 0 deletes the job, even a running one, so the scope `read` is not enough.
        auth::require(&call.key, Scope::Submit, Some(endpoint))?;
    }
    let record = state.jobs.record(endpoint, id).await?.ok_or_else(ApiError::job_not_found)?;
    let answer = match with_input {
        true => results::document_with_input(&state, &call.key, record).await?,
        false => results::document(&state, &call.key, record).await?,
    };
    if let Some(ttl_ms) = ttl_ms {
        state.jobs.shorten_ttl(endpoint, id, ttl_ms).await?;
    }
    Ok(answer)
}

/// Waits for the job's end, or for `?wait=ms`, and shows the job.
#[utoipa::path(
    method(get, post), path = "/{endpoint}/status-sync/{job}", operation_id = "GetStatusSync", tag = tag::JOBS,
    params(Wait),
    responses((status = 200, description = "The job", body = StatusDocument<'_>), Mistaken),
)]
pub(crate) async fn status_sync(
    Admitted { state, call, .. }: Admitted<Read>,
    RawQuery(query): RawQuery,
) -> Result<Response, ApiError> {
    let id = call.job()?;
    let wait = Query(query.as_deref().unwrap_or_default()).wait(WAIT_MS)?;
    let endpoint = &call.deployment.endpoint.id;
    let key = call.key_check(&state);
    let record = waiting::for_end(&key, &state.jobs, endpoint, id, wait).await?;
    results::document(&state, &call.key, record.ok_or_else(ApiError::job_not_found)?).await
}
