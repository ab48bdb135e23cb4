//! `GET /v1/endpoints/{id}/logs`: the newest log lines of an endpoint's handlers, as an array, or
//! as server-sent events that continue with new lines. The id of an event is the line's number; a
//! client that returns with `Last-Event-ID` continues after it. An event without data has the
//! number of the last line that was considered: a client that has received no line yet continues
//! from there.
//!
//! **Bounds.** A stream counts with those of [events](super::events) for the limit `events` of its
//! owner, since each line wakes all followers of its endpoint, and ends after [an
//! hour](event_stream::STREAM_TIME_MAX). **Costs.** Lines that only the disk has are read apart
//! from the threads that serve calls, and owners and their keys [take
//! turns](crate::limits::checks): the files of one endpoint, up to 16 MiB by default.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::RawQuery;
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::stream;
use gristmill_core::access::key::ApiKey;
use gristmill_core::id::JobId;
use gristmill_core::limits::LIST_LOGS;
use gristmill_core::logs::{Follower, LogAnswer, LogLine, LogOrder, LogPage, LogQuery};
use gristmill_wire::management as wire;
use tokio::time::{Instant, timeout};

use super::input::Named;
use crate::answer::error::ApiError;
use crate::answer::wire_time::rfc3339;
use crate::event_stream::{self, COMMENT_INTERVAL};
use crate::identity::auth::{Identity, KEY_CHECK_INTERVAL, KeyCheck};
use crate::identity::caller::{Caller, Manage};
use crate::limits::rate_limit::ConcurrencyPermit;
use crate::openapi::parameters::LogFilter;
use crate::openapi::refusals::{Missing, Mistaken};
use crate::openapi::tag;
use crate::request::query::Query;
use crate::state::ApiState;

/// The newest lines that the endpoint's handlers have logged, the oldest of them first.
///
/// With `Accept: text/event-stream` new lines follow as events, for up to an hour, and with
/// `Last-Event-ID` all lines after that number come first; an event without data gives a client
/// that has no line yet such a number. A stream counts for the limit of streams, and with a `job`
/// that cannot be an id it gets 404. The host keeps 16 MiB of lines for each endpoint, unless its
/// operator chooses another bound, and an array has 4 MiB of them at most.
#[utoipa::path(
    get, path = "/endpoints/{id}/logs", operation_id = "ReadLogs", tag = tag::ENDPOINTS,
    params(LogFilter),
    responses((status = 200, description = "The newest", body = Vec<wire::LogLine<'_>>), Mistaken, Missing),
)]
pub(crate) async fn read(
    Caller { state, key, session, .. }: Caller<Manage>,
    named: Named,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let logs = state.control.endpoints.logs(&key, &named.id()?)?;
    let query = Query(query.as_deref().unwrap_or_default());
    let after =
        event_stream::last_event_id(&headers, "the number of a line", event_stream::number)?;
    let is_stream = event_stream::is_accepted(&headers);
    let mut wanted = LogQuery {
        after: after.unwrap_or(0),
        job: None,
        // A reader who returns misses no line.
        order: if is_stream && after.is_some() { LogOrder::Next } else { LogOrder::Newest },
        count_max: query.bounded("tail", LIST_LOGS)?,
    };
    match job(query)? {
        JobSelection::All => {}
        JobSelection::Job(job) => wanted.job = Some(job),
        // A stream would never have a line, and a client would open it again and again.
        JobSelection::Nothing if is_stream => return Err(ApiError::job_not_found()),
        JobSelection::Nothing => return Ok(Json::<[(); 0]>([]).into_response()),
    }
    if is_stream {
        let permit = state.limiter.enter_stream(&key)?;
        let reader = Reader {
            key: KeyCheck::new(&state, &Identity { key: key.clone(), session }),
            caller: key,
            follower: logs.follow(),
            state,
        };
        return Ok(follow(reader, wanted, permit));
    }
    let answer = logs.read(wanted);
    // There may be 10,000 lines.
    let write = move || {
        let LogPage { lines, .. } = complete(answer);
        let documents: Vec<_> = lines.iter().map(|line| log_line(line)).collect();
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

/// All lines of an answer. Blocks when some of them are on the disk.
fn complete(answer: LogAnswer) -> LogPage {
    match answer {
        LogAnswer::Complete(page) => page,
        LogAnswer::Partial(page) => page.complete(),
    }
}

/// A client that follows an endpoint's lines.
struct Reader {
    state: ApiState,
    caller: Arc<ApiKey>,
    key: KeyCheck,
    follower: Follower,
}

fn follow(reader: Reader, query: LogQuery, permit: ConcurrencyPermit) -> Response {
    let pages = stream::unfold((reader, query, true), async |(reader, mut query, is_first)| {
        let wait = if is_first { Duration::ZERO } else { COMMENT_INTERVAL };
        let lines = reader.next_lines(&mut query, wait).await?;
        Some((events(&lines, query.after), (reader, query, false)))
    });
    event_stream::long_response(pages, permit)
}

impl Reader {
    /// The present lines, or those that arrive within `wait`; empty after that time. The query
    /// continues after them. `None`: the endpoint was deleted, and its id may have another owner
    /// now; the key or the session is not valid any more; or the host is stopping.
    async fn next_lines(&self, query: &mut LogQuery, wait: Duration) -> Option<Vec<Arc<LogLine>>> {
        let until = Instant::now() + wait;
        loop {
            self.key.check().ok()?;
            let mut added = pin!(self.follower.added());
            added.as_mut().enable();
            let LogPage { lines, up_to } = match self.follower.read(*query)? {
                LogAnswer::Complete(page) => page,
                answer @ LogAnswer::Partial(_) => {
                    let pages = &self.state.pages;
                    pages.write(&self.caller, move || Ok(complete(answer))).await.ok()?
                }
            };
            // From now on all lines are sent.
            (query.after, query.order) = (up_to, LogOrder::Next);
            if !lines.is_empty() || Instant::now() >= until {
                return Some(lines);
            }
            tokio::select! {
                _ = timeout(KEY_CHECK_INTERVAL, added) => {}
                () = self.state.jobs.closed() => return None,
            }
        }
    }
}

/// The lines as events; if there are none, an event without data, which keeps the connection alive.
/// All lines up to the number `up_to` were considered.
fn events(lines: &[Arc<LogLine>], up_to: u64) -> Bytes {
    let mut text = vec![];
    for line in lines {
        text.extend_from_slice(format!("id: {}\ndata: ", line.number).as_bytes());
        let start = text.len();
        // Writing into memory does not fail, and the type is JSON.
        let _ = serde_json::to_writer(&mut text, &log_line(line));
        event_stream::one_line(text.get_mut(start..).unwrap_or_default());
        text.extend_from_slice(b"\n\n");
    }
    if text.is_empty() {
        text.extend_from_slice(format!("id: {up_to}\n\n").as_bytes());
    }
    text.into()
}

/// The answer's form of a line.
fn log_line(line: &LogLine) -> wire::LogLine<'_> {
    wire::LogLine {
        number: line.number,
        at: rfc3339(line.at),
        job_id: line.job.to_string(),
        level: line.level.as_str().into(),
        line: (&*line.text).into(),
    }
}
