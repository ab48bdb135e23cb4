//! `/stream` as server-sent events: one event per chunk with the chunk's index as its id, then
//! one event `end` with the final status. A reader that comes back with `Last-Event-ID` goes on
//! after that chunk.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures::stream::{self, StreamExt as _};
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::JobStatus;
use gristmill_core::jobs::Jobs;
use gristmill_core::stream::{Position, StreamPage};

use crate::error::ApiError;
use crate::queue::dto;
use crate::queue::query::integer;

/// How long one look at the job waits for something new.
const LOOK_WAIT: Duration = Duration::from_secs(60);

/// The position that a reader who comes back asks for.
pub(crate) fn resume(headers: &HeaderMap) -> Result<Option<Position>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let index = value.to_str().ok().and_then(|text| integer(text.trim())?.try_into().ok());
    let index: u64 = index.ok_or_else(|| {
        ApiError::bad_request("the header Last-Event-ID must be the index of a chunk")
    })?;
    Ok(Some(Position::From(index.saturating_add(1))))
}

/// Answers with all pages as they come.
pub(crate) async fn follow(
    jobs: Arc<Jobs>,
    endpoint: EndpointId,
    id: JobId,
    position: Position,
) -> Result<Response, ApiError> {
    let first = jobs.stream(&endpoint, id, position, Duration::ZERO).await?;
    let first = first.ok_or_else(ApiError::job_not_found)?;
    let reader = Reader { jobs, endpoint, id, moves_cursor: position == Position::Undelivered };
    let pages = stream::unfold(Next::Show(first, reader), |next| async {
        let (page, reader) = match next {
            Next::Show(page, reader) => (page, reader),
            Next::Look { from, reader } => (reader.look(from).await?, reader),
            Next::End { from, reader } => {
                reader.delivered(from).await;
                return None;
            }
        };
        let events = events(reader.id, &page);
        let from = page.page.next();
        let next = if page.status.is_final() {
            Next::End { from, reader }
        } else {
            Next::Look { from, reader }
        };
        Some((events, next))
    });
    let events = pages.flat_map(stream::iter).map(Ok::<_, Infallible>);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// What the connection does next; it asks only once it has taken what came before.
enum Next {
    Show(StreamPage, Reader),
    Look { from: u64, reader: Reader },
    End { from: u64, reader: Reader },
}

struct Reader {
    jobs: Arc<Jobs>,
    endpoint: EndpointId,
    id: JobId,
    moves_cursor: bool,
}

impl Reader {
    /// The next page; `None` when the job was deleted or the host closes down: the connection
    /// then ends without an `end`.
    async fn look(&self, from: u64) -> Option<StreamPage> {
        self.delivered(from).await;
        let position = Position::From(from);
        let page = self.jobs.stream(&self.endpoint, self.id, position, LOOK_WAIT).await.ok()??;
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

fn events(id: JobId, page: &StreamPage) -> Vec<Event> {
    let chunks = (page.page.first..).zip(&page.page.chunks).map(|(index, chunk)| {
        let mut text = Vec::with_capacity(chunk.len() + 64);
        dto::write_chunk(&mut text, index, chunk);
        let text = String::from_utf8(text).expect("chunks are JSON, which is UTF-8");
        Event::default().id(index.to_string()).data(text)
    });
    let end = page.status.is_final().then(|| end(id, page.status, page.error.as_deref()));
    chunks.chain(end).collect()
}

fn end(id: JobId, status: JobStatus, error: Option<&str>) -> Event {
    let data = match error {
        Some(error) => serde_json::json!({ "id": id, "status": status.as_str(), "error": error }),
        None => serde_json::json!({ "id": id, "status": status.as_str() }),
    };
    Event::default().event("end").data(data.to_string())
}
