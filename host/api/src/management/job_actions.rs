//! `/v1/job-actions`: cancel, retry or delete many jobs, in the background.

use axum::Json;
use axum::extract::Request;
use axum::http::StatusCode;
use gristmill_control::{ControlError, NewJobAction};
use gristmill_core::job::action::JobAction;
use gristmill_core::job::tags::Tag;
use gristmill_core::limits::ACTION_ENDPOINTS_MAX;
use gristmill_wire::management as wire;

use super::input::{self, Named};
use super::job_filter;
use super::page::{Page, Paged};
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::identity::caller::{Caller, Read, Submit};
use crate::openapi::parameters::PageOfList;
use crate::openapi::refusals::{BodyRefused, Missing, Mistaken};
use crate::openapi::tag;

/// Begins to cancel, retry or delete all jobs that match.
///
/// The action continues in the background, also after a restart. It examines each job once, from
/// the newest to the oldest, and none that was submitted after it began. While the queue of an
/// endpoint or the disk has no room for a change, it waits. It ends when its key ends. An owner has
/// at most four running actions; a further one is refused with `conflict`.
#[utoipa::path(
    post, path = "/job-actions", operation_id = "BeginJobAction", tag = tag::JOBS,
    request_body = wire::NewJobAction,
    responses((status = 200, description = "It has begun", body = wire::JobAction), BodyRefused),
)]
pub(crate) async fn begin(
    Caller { state, key, .. }: Caller<Submit>,
    request: Request,
) -> Result<Json<wire::JobAction>, ApiError> {
    let wire::NewJobAction { action: kind, filter } = input::json(&state, &key, request).await?;
    let named = filter.endpoints.clone();
    if named.len() > ACTION_ENDPOINTS_MAX {
        return Err(ApiError::bad_request(format!(
            "`filter.endpoints` has {} endpoints; at most {ACTION_ENDPOINTS_MAX} are allowed",
            named.len()
        )));
    }
    let filter = job_filter::of_body(filter)?;
    let missing =
        |error: ControlError| ApiError::bad_request(format!("`filter.endpoints`: {error}"));
    let endpoints = job_filter::endpoints(&state, &key, &named, missing)?;
    let new = NewJobAction { kind, filter, endpoints, names_endpoints: !named.is_empty() };
    Ok(Json(job_action(state.control.job_actions.begin(&key, new).await?)))
}

/// The actions of the key's owner, the newest first.
///
/// The host keeps the newest 50 of each owner.
#[utoipa::path(
    get, path = "/job-actions", operation_id = "ListJobActions", tag = tag::JOBS,
    params(PageOfList),
    responses((status = 200, description = "Newest first", body = Vec<wire::JobAction>), Mistaken),
)]
pub(crate) async fn list(
    Caller { state, key, .. }: Caller<Read>,
    page: Page,
) -> Result<Paged, ApiError> {
    let actions = state.control.job_actions.list(&key);
    let cursor_position = |action: &JobAction| {
        format!("{:020} {}", u64::MAX - action.created_at.as_millis(), action.id)
    };
    let select = move |page: Page| page.of(actions, cursor_position, job_action);
    page.make(&state, &key, select).await
}

/// An action, with its progress.
#[utoipa::path(
    get, path = "/job-actions/{id}", operation_id = "GetJobAction", tag = tag::JOBS,
    responses((status = 200, description = "Its progress", body = wire::JobAction), Missing),
)]
pub(crate) async fn get(
    Caller { state, key, .. }: Caller<Read>,
    Named(id): Named,
) -> Result<Json<wire::JobAction>, ApiError> {
    Ok(Json(job_action(state.control.job_actions.get(&key, &id)?)))
}

/// Aborts an action. Jobs that it has changed stay changed.
#[utoipa::path(
    delete, path = "/job-actions/{id}", operation_id = "AbortJobAction", tag = tag::JOBS,
    responses((status = 204, description = "It ends before its next page of jobs"), Missing),
)]
pub(crate) async fn abort(
    Caller { state, key, .. }: Caller<Submit>,
    Named(id): Named,
) -> Result<StatusCode, ApiError> {
    state.control.job_actions.abort(&key, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The answer's form of an action.
fn job_action(action: JobAction) -> wire::JobAction {
    let pair = |tag: Tag| (tag.key().to_owned(), tag.value().to_owned());
    let filter = action.filter;
    wire::JobAction {
        id: action.id,
        action: action.kind,
        filter: wire::JobActionFilter {
            endpoints: if action.names_endpoints { action.endpoints } else { Vec::new() },
            statuses: filter.statuses,
            tags: filter.tags.into_iter().map(pair).collect(),
            from: filter.from.map(rfc3339),
            to: filter.until.map(rfc3339),
            id_prefix: filter.id_prefix,
            error: filter.error,
        },
        state: action.state,
        matched: action.counts.matched,
        changed: action.counts.changed,
        skipped: action.counts.skipped,
        created_at: rfc3339(action.created_at),
        ended_at: action.ended_at.map(rfc3339),
        reason: action.reason,
    }
}
