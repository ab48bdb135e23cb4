//! `/stream` as server-sent events: one event per chunk with the chunk's index as its id, then
//! one event `end` with the final status. A reader that comes back with `Last-Event-ID` goes on
//! after that chunk.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::stream;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::JobStatus;
use gristmill_core::jobs::Jobs;
use gristmill_core::stream::{Position, StreamPage};

use crate::auth::KeyInUse;
use crate::error::ApiError;
use crate::query::integer;
use crate::queue::{dto, waiting};

/// How long a connection is silent before it gets a comment.
pub(crate) const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// Whether the caller wants events.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .any(|value| value.to_ascii_lowercase().contains("text/event-stream"))
}

/// The last event that a reader who comes back has seen.
///
/// # Errors
/// 400 when it is no number; `what` says what it must be.
pub(crate) fn last_event_id(headers: &HeaderMap, what: &str) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| integer(text.trim())?.try_into().ok());
    id.map(Some)
        .ok_or_else(|| ApiError::bad_request(format!("the header Last-Event-ID must be {what}")))
}

/// The position that a reader who comes back asks for.
pub(crate) fn resume(headers: &HeaderMap) -> Result<Option<Position>, ApiError> {
    let index = last_event_id(headers, "the index of a chunk")?;
    Ok(index.map(|index| Position::From(index.saturating_add(1))))
}

/// Answers with all pages as they come.
pub(crate) async fn follow(
    jobs: Arc<Jobs>,
    key: KeyInUse,
    endpoint: EndpointId,
    id: JobId,
    position: Position,
) -> Result<Response, ApiError> {
    let first = jobs.stream(&endpoint, id, position, Duration::ZERO).await?;
    let first = first.ok_or_else(ApiError::job_not_found)?;
    let moves_cursor = position == Position::Undelivered;
    let reader = Reader { jobs, key, endpoint, id, moves_cursor };
    // The text of a page is one piece, which is all that is in memory until the reader has taken it.
    let pages = stream::unfold(Next::Show(first, reader), |next| async {
        let (page, reader) = match next {
            Next::Show(page, reader) => (page, reader),
            Next::Look { from, reader } => (reader.look(from).await?, reader),
            Next::End { from, reader } => {
                reader.delivered(from).await;
                return None;
            }
        };
        let text = text(reader.id, &page);
        let from = page.page.next();
        let next = if page.status.is_final() {
            Next::End { from, reader }
        } else {
            Next::Look { from, reader }
        };
        Some((Ok::<_, Infallible>(text), next))
    });
    Ok(response(Body::from_stream(pages)))
}

/// An answer of server-sent events.
pub(crate) fn response(events: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, events).into_response()
}

/// Puts JSON text on one line, as an event has it: a line break can only be white space between
/// its tokens.
pub(crate) fn one_line(json: &mut [u8]) {
    for byte in json.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
}

/// What the connection does next; it asks only once it has taken what came before.
enum Next {
    Show(StreamPage, Reader),
    Look { from: u64, reader: Reader },
    End { from: u64, reader: Reader },
}

struct Reader {
    jobs: Arc<Jobs>,
    key: KeyInUse,
    endpoint: EndpointId,
    id: JobId,
    moves_cursor: bool,
}

impl Reader {
    /// The next page; `None` when the job was deleted, the key does not hold any more, or the host
    /// closes down: the connection then ends without an `end`.
    async fn look(&self, from: u64) -> Option<StreamPage> {
        self.delivered(from).await;
        self.key.check().ok()?;
        let Self { jobs, key, endpoint, id, .. } = self;
        let (position, wait) = (Position::From(from), COMMENT_INTERVAL);
        let page = waiting::for_page(key, jobs, endpoint, *id, position, wait).await.ok()??;
        let is_silent = page.page.chunks.is_empty() && !page.status.is_final();
        (!is_silent || !self.jobs.is_closing()).then_some(page)
    }

    async fn delivered(&self, next: u64) {
        if self.moves_cursor {
            // The store is closing: then the position is forgotten anyway.
            let _ = self.jobs.mark_delivered(self.id, next).await;
        }
    }
}

/// The events of a page; of one without any, a comment.
fn text(id: JobId, page: &StreamPage) -> Bytes {
    const FRAME_BYTES: usize = 96;
    let bytes = page.page.chunks.iter().map(|chunk| chunk.len() + FRAME_BYTES).sum::<usize>();
    let mut text = Vec::with_capacity(bytes + FRAME_BYTES);
    for (index, chunk) in (page.page.first..).zip(&page.page.chunks) {
        text.extend_from_slice(format!("id: {index}\ndata: ").as_bytes());
        let data = text.len();
        dto::write_chunk(&mut text, index, chunk);
        text.get_mut(data..).map(one_line);
        text.extend_from_slice(b"\n\n");
    }
    if page.status.is_final() {
        let end = end(id, page.status, page.error.as_deref());
        text.extend_from_slice(format!("event: end\ndata: {end}\n\n").as_bytes());
    } else if page.page.chunks.is_empty() {
        text.extend_from_slice(b": wait\n\n");
    }
    text.into()
}

fn end(id: JobId, status: JobStatus, error: Option<&str>) -> serde_json::Value {
    match error {
        Some(error) => serde_json::json!({ "id": id, "status": status.as_str(), "error": error }),
        None => serde_json::json!({ "id": id, "status": status.as_str() }),
    }
}
