//! `/stream` as server-sent events: one event for each chunk, then one event `end` with the final
//! status, or `deleted` if the job is deleted meanwhile. A reader that returns with `Last-Event-ID`
//! continues after that chunk.
//!
//! The id of an event names the attempt and the chunk's index, such as `2-30`; ids of the first
//! attempt are the index alone. Each attempt has a stream of its own. A reader whose position is in
//! the stream of an earlier attempt gets an event `restart`, and then the current attempt's chunks
//! from the first on.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use gristmill_core::access::key::ApiKey;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::record::StreamPosition;
use gristmill_core::job::state::Claim;
use gristmill_core::jobs::operations::Jobs;
use gristmill_core::jobs::stream::{Position, StreamPage};
use gristmill_wire::queue::{StreamDeleted, StreamEnd, StreamRestart};

use crate::answer::error::ApiError;
use crate::event_stream::{
    COMMENT_INTERVAL, last_event_id, number, one_line, response, write_event,
};
use crate::identity::auth::KeyCheck;
use crate::limits::checks::CallerPages;
use crate::queue::dto::FIRST_ATTEMPT;
use crate::queue::results::Memory;
use crate::queue::waiting::HeldPage;
use crate::queue::{dto, waiting};
use crate::state::ApiState;

/// The position of a returning reader: after the event that `Last-Event-ID` names.
///
/// # Errors
/// 400 when the header is no id of a chunk's event.
pub(crate) fn resume(headers: &HeaderMap) -> Result<Option<Position>, ApiError> {
    let what = "the id of a chunk's event: its index, or its attempt and its index, such as `2-30`";
    let last = last_event_id(headers, what, parse_id)?;
    Ok(last.map(|StreamPosition { attempt, index }| {
        Position::At(StreamPosition { attempt, index: index.saturating_add(1) })
    }))
}

/// The id of a chunk's event.
fn event_id(StreamPosition { attempt, index }: StreamPosition) -> String {
    if attempt == FIRST_ATTEMPT { index.to_string() } else { format!("{}-{index}", attempt.0) }
}

/// The inverse. A number with too many digits saturates.
fn parse_id(text: &str) -> Option<StreamPosition> {
    let (attempt, index) = match text.split_once('-') {
        Some((attempt, index)) if !attempt.is_empty() => {
            let attempt = u32::try_from(number(attempt)?).unwrap_or(u32::MAX);
            (Claim(attempt), index)
        }
        _ => (FIRST_ATTEMPT, text),
    };
    Some(StreamPosition { attempt, index: number(index)? })
}

/// Answers with all pages, each as soon as it exists.
pub(crate) async fn follow(
    state: &ApiState,
    (caller, key): (Arc<ApiKey>, KeyCheck),
    endpoint: EndpointId,
    id: JobId,
    position: Position,
) -> Result<Response, ApiError> {
    let memory = Memory::new(&state.results, &caller.id);
    let (jobs, pages) = (state.jobs.clone(), state.pages.of(caller));
    let job = (&endpoint, id);
    let first = waiting::for_page(&key, &jobs, &memory, job, position, Duration::ZERO).await?;
    let first = first.ok_or_else(ApiError::job_not_found)?;
    let moves_cursor = position == Position::Undelivered;
    let reader = Reader { pages, memory, jobs, key, endpoint, id, moves_cursor };
    // The text of a page is one piece, and the next page is not read before the reader has taken
    // it.
    let pages = stream::unfold(Next::Show(first, reader), |next| async {
        let (page, reader) = match next {
            Next::Show(page, reader) => (page, reader),
            Next::Look { at, reader } => match reader.look(at).await? {
                Some(page) => (page, reader),
                None => return Some((Ok(deleted(reader.id)), Next::Stop)),
            },
            Next::End { at, reader } => {
                reader.delivered(at).await;
                return None;
            }
            Next::Stop => return None,
        };
        let (at, is_last, id) = (page.page.end(), page.status.is_final(), reader.id);
        let bytes = page.page.text_bytes();
        let write = move || (text(id, &page), page);
        // The page and its memory are dropped when the connection gets the text, which it counts.
        let (text, _page) = reader.pages.write_sized(bytes, write).await.ok()?;
        let next = if is_last { Next::End { at, reader } } else { Next::Look { at, reader } };
        Some((Ok::<_, Infallible>(text), next))
    });
    Ok(response(Body::from_stream(pages)))
}

/// The connection's next step, which begins once the connection has taken the previous text.
enum Next {
    Show(HeldPage, Reader),
    Look { at: StreamPosition, reader: Reader },
    End { at: StreamPosition, reader: Reader },
    Stop,
}

struct Reader {
    pages: CallerPages,
    memory: Memory,
    jobs: Arc<Jobs>,
    key: KeyCheck,
    endpoint: EndpointId,
    id: JobId,
    moves_cursor: bool,
}

impl Reader {
    /// The next page, or none when the job was deleted. `None` when the key is not valid any more,
    /// or the host is stopping: the connection then ends without an event `end`.
    async fn look(&self, at: StreamPosition) -> Option<Option<HeldPage>> {
        self.delivered(at).await;
        self.key.check().ok()?;
        let Self { memory, jobs, key, endpoint, id, .. } = self;
        let (job, position, wait) = ((endpoint, *id), Position::At(at), COMMENT_INTERVAL);
        let page = waiting::for_page(key, jobs, memory, job, position, wait).await.ok()?;
        let is_silent = page.as_ref().is_some_and(|page| !waiting::has_news(page));
        (!is_silent || !self.jobs.is_closing()).then_some(page)
    }

    async fn delivered(&self, next: StreamPosition) {
        if self.moves_cursor {
            // The store is closing: then the position is forgotten anyway.
            let _ = self.jobs.mark_delivered(self.id, next).await;
        }
    }
}

/// The events of a page; a comment if the page has none.
fn text(id: JobId, page: &StreamPage) -> Bytes {
    const FRAME_BYTES: usize = 96;
    let bytes = page.page.chunks.iter().map(|chunk| chunk.len() + FRAME_BYTES).sum::<usize>();
    let mut text = Vec::with_capacity(bytes + 2 * FRAME_BYTES);
    let attempt = page.page.attempt;
    if page.is_restart {
        write_event(
            &mut text,
            "restart",
            &StreamRestart { id: id.to_string(), attempt: attempt.0 },
        );
    }
    for (index, chunk) in (page.page.first..).zip(&page.page.chunks) {
        let at = StreamPosition { attempt, index };
        let event = event_id(at);
        text.extend_from_slice(format!("id: {event}\ndata: ").as_bytes());
        let data = text.len();
        dto::write_chunk(&mut text, at, chunk);
        text.get_mut(data..).map(one_line);
        text.extend_from_slice(b"\n\n");
    }
    if page.status.is_final() {
        let error = page.error.clone();
        write_event(
            &mut text,
            "end",
            &StreamEnd { id: id.to_string(), status: page.status, error },
        );
    } else if text.is_empty() {
        text.extend_from_slice(b": wait\n\n");
    }
    text.into()
}

/// The last event of a job that was deleted.
fn deleted(id: JobId) -> Bytes {
    let mut text = vec![];
    let error = "the job was removed by purge-queue or with its endpoint, or its ttl is over";
    write_event(&mut text, "deleted", &StreamDeleted { id: id.to_string(), error: error.into() });
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_ids_name_the_attempt_unless_it_is_the_first() {
        let stream_position = |attempt, index| StreamPosition { attempt: Claim(attempt), index };
        let cases = [
            ("0", stream_position(1, 0)),
            ("30", stream_position(1, 30)),
            ("2-0", stream_position(2, 0)),
            ("17-5", stream_position(17, 5)),
        ];
        for (text, expected) in cases {
            assert_eq!(event_id(expected), text);
            assert_eq!(parse_id(text), Some(expected), "{text}");
        }
        let lenient = [
            ("1-30", stream_position(1, 30)),
            ("-0", stream_position(1, 0)),
            ("99999999999-99999999999999999999", stream_position(u32::MAX, i64::MAX as u64)),
        ];
        for (text, expected) in lenient {
            assert_eq!(parse_id(text), Some(expected), "{text}");
        }
        for text in ["", "-", "-1", "2-", "2--1", "a-1", "1-a", "1-2-3", "1.5", "2- 3"] {
            assert_eq!(parse_id(text), None, "{text}");
        }
    }
}
