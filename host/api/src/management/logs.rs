//! `GET /v1/endpoints/{id}/logs`: the newest log lines of an endpoint's handlers, as an array, or
//! as server-sent events that continue with new lines. The id of an event is the line's number; a
//! client that returns with `Last-Event-ID` continues after it.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::RawQuery;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::stream;
use gristmill_core::id::JobId;
use gristmill_core::limits::LIST_LOGS;
use gristmill_core::logs::{Follower, LogLine, LogQuery};
use tokio::time::{Instant, timeout};

use super::dto;
use super::input::Named;
use crate::auth::{KEY_CHECK_INTERVAL, KeyCheck};
use crate::caller::{Caller, Manage};
use crate::error::ApiError;
use crate::openapi::parameters::LogFilter;
use crate::openapi::refusals::{Missing, Mistaken};
use crate::openapi::tag;
use crate::query::Query;
use crate::queue::sse::{self, COMMENT_INTERVAL};
use crate::state::ApiState;

/// The newest lines that the endpoint's handlers have logged, the oldest of them first.
///
/// With `Accept: text/event-stream` new lines follow as events. The host keeps half a MiB of lines
/// for each endpoint, in memory.
#[utoipa::path(
    get, path = "/endpoints/{id}/logs", operation_id = "ReadLogs", tag = tag::ENDPOINTS,
    params(LogFilter),
    responses((status = 200, description = "The newest", body = Vec<dto::LogLine>), Mistaken, Missing),
)]
pub(crate) async fn read(
    Caller { state, key, .. }: Caller<Manage>,
    named: Named,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let logs = state.control.endpoints.logs(&key, &named.id()?)?;
    let query = Query(query.as_deref().unwrap_or_default());
    let mut wanted = LogQuery {
        after: sse::last_event_id(&headers, "the number of a line", sse::number)?.unwrap_or(0),
        job: None,
        count_max: query.bounded("tail", LIST_LOGS)?,
    };
    match job(query)? {
        JobSelection::All => {}
        JobSelection::Job(job) => wanted.job = Some(job),
        JobSelection::Nothing => return Ok(Json::<[(); 0]>([]).into_response()),
    }
    if sse::is_accepted(&headers) {
        let key = KeyCheck::new(&state, &key);
        return Ok(follow(state, key, logs.follow(), wanted));
    }
    let lines = logs.read(wanted);
    // There may be 10,000 lines.
    let write = move || {
        let documents: Vec<_> = lines.iter().map(|line| dto::LogLine::from(&**line)).collect();
        Ok(Json(documents).into_response())
    };
    state.pages.write(&key, write).await
}

/// The jobs that a query selects: all, one, or none, if the given id cannot exist.
enum JobSelection {
    All,
    Job(JobId),
    Nothing,
}

fn job(query: Query<'_>) -> Result<JobSelection, ApiError> {
    let Some(text) = query.text("job") else { return Ok(JobSelection::All) };
    if let Ok(job) = text.parse() {
        return Ok(JobSelection::Job(job));
    }
    // As with a job in a path: a text that could be an id gives "not found", any other text is an
    // error.
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if !text.is_empty() && text.bytes().all(is_id) {
        return Ok(JobSelection::Nothing);
    }
    Err(ApiError::bad_request(format!("query `job` must be the id of a job, not `{text}`")))
}

fn follow(state: ApiState, key: KeyCheck, follower: Follower, query: LogQuery) -> Response {
    let from = (state, key, follower, query);
    let pages = stream::unfold(from, async |(state, key, follower, mut query)| {
        let lines = next_lines(&state, &key, &follower, query).await?;
        if let Some(last) = lines.last() {
            query.after = last.number;
        }
        // From now on all lines are sent; their number is bounded by the lines that the host keeps.
        query.count_max = usize::MAX;
        let text = events(&lines);
        Some((Ok::<_, Infallible>(text), (state, key, follower, query)))
    });
    sse::response(Body::from_stream(pages))
}

/// The present lines, or those that arrive within [`COMMENT_INTERVAL`]; empty after that time.
/// `None`: the endpoint was deleted, and its id may have another owner now; the key is not valid
/// any more; or the host is stopping.
async fn next_lines(
    state: &ApiState,
    key: &KeyCheck,
    follower: &Follower,
    query: LogQuery,
) -> Option<Vec<Arc<LogLine>>> {
    let comment_at = Instant::now() + COMMENT_INTERVAL;
    loop {
        key.check().ok()?;
        let mut added = pin!(follower.added());
        added.as_mut().enable();
        let lines = follower.read(query)?;
        if !lines.is_empty() || Instant::now() >= comment_at {
            return Some(lines);
        }
        tokio::select! {
            _ = timeout(KEY_CHECK_INTERVAL, added) => {}
            () = state.jobs.closed() => return None,
        }
    }
}

/// The lines as events; if there are none, a comment that keeps the connection alive.
fn events(lines: &[Arc<LogLine>]) -> Bytes {
    let mut text = vec![];
    for line in lines {
        text.extend_from_slice(format!("id: {}\ndata: ", line.number).as_bytes());
        let start = text.len();
        // Writing into memory does not fail, and the type is JSON.
        let _ = serde_json::to_writer(&mut text, &dto::LogLine::from(&**line));
        sse::one_line(text.get_mut(start..).unwrap_or_default());
        text.extend_from_slice(b"\n\n");
    }
    if text.is_empty() {
        text.extend_from_slice(b":\n\n");
    }
    text.into()
}
