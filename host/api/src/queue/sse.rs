//! `/stream` as server-sent events: one event for each chunk, then one event `end` with the final
//! status, or `deleted` if the job is deleted meanwhile. A reader that returns with `Last-Event-ID` continues after that chunk.
//!
//! The id of an event names the attempt and the chunk's index, such as `2-30`; ids of the first
//! attempt are the index alone. Each attempt has a stream of its own. A reader whose position is in
//! the stream of an earlier attempt gets an event `restart`, and then the current attempt's chunks
//! from the first on.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use gristmill_core::access::key::ApiKey;
use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::operations::Jobs;
use gristmill_core::job::record::StreamPosition;
use gristmill_core::job::state::Claim;
use gristmill_core::job::stream::{Position, StreamPage};
use gristmill_wire::queue::{StreamDeleted, StreamEnd, StreamRestart};
use tokio::time::sleep;

use crate::answer::error::ApiError;
use crate::answer::event::write_event;
use crate::identity::auth::KeyCheck;
use crate::limits::checks::CallerPages;
use crate::limits::rate_limit::ConcurrencyPermit;
use crate::queue::dto::FIRST_ATTEMPT;
use crate::queue::{dto, waiting};
use crate::request::query::integer;
use crate::state::ApiState;

/// How long a connection is silent before it gets a comment.
pub(crate) const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// A stream of the management API ends after this time; its reader connects again.
pub(crate) const STREAM_TIME_MAX: Duration = Duration::from_hours(1);

/// Whether the caller prefers events to JSON, by the `Accept` headers (RFC 9110, section 12.5.1): of
/// `text/event-stream` and `application/json`, the type with the greater weight, or of equal ones the first.
/// Ranges with `*` do not count.
pub(crate) fn is_accepted(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut preferred = (false, 0.0);
    for range in values.flat_map(|value| value.split(',')) {
        let (media_type, parameters) = range.split_once(';').unwrap_or((range, ""));
        let is_events = media_type.trim().eq_ignore_ascii_case("text/event-stream");
        let is_json = media_type.trim().eq_ignore_ascii_case("application/json");
        let weight = weight_of(parameters);
        if (is_events || is_json) && weight > preferred.1 {
            preferred = (is_events, weight);
        }
    }
    preferred.0
}

/// The weight `q` among the parameters of a media range, from 0 to 1. An invalid one counts as absent.
fn weight_of(parameters: &str) -> f32 {
    let mut named = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    let weight = named.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    let weight = weight.and_then(|(_, value)| value.trim().parse::<f32>().ok());
    weight.filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(1.0)
}

/// The id of the last event that a returning reader has seen, as `parse` reads it.
///
/// # Errors
/// 400 when `parse` returns `None`; `what` says what the header must be.
pub(crate) fn last_event_id<T>(
    headers: &HeaderMap,
    what: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, ApiError> {
    let Some(value) = headers.get("last-event-id") else { return Ok(None) };
    let id = value.to_str().ok().and_then(|text| parse(text.trim()));
    id.map(Some)
        .ok_or_else(|| ApiError::bad_request(format!("the header Last-Event-ID must be {what}")))
}

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

/// A number that is not negative; with too many digits it saturates.
pub(crate) fn number(text: &str) -> Option<u64> {
    integer(text)?.try_into().ok()
}

/// Answers with all pages, each as soon as it exists.
pub(crate) async fn follow(
    state: &ApiState,
    (caller, key): (Arc<ApiKey>, KeyCheck),
    endpoint: EndpointId,
    id: JobId,
    position: Position,
) -> Result<Response, ApiError> {
    let (jobs, pages) = (state.jobs.clone(), state.pages.of(caller));
    let first = jobs.stream(&endpoint, id, position, Duration::ZERO).await?;
    let first = first.ok_or_else(ApiError::job_not_found)?;
    let moves_cursor = position == Position::Undelivered;
    let reader = Reader { pages, jobs, key, endpoint, id, moves_cursor };
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
        let text = reader.pages.write_sized(bytes, move || text(id, &page)).await.ok()?;
        let next = if is_last { Next::End { at, reader } } else { Next::Look { at, reader } };
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

/// An answer of server-sent events that could go on for ever: it ends after [`STREAM_TIME_MAX`], between two of
/// its pieces. The permit is held until the answer has ended or its reader has left.
pub(crate) fn long_response(
    pieces: impl Stream<Item = Bytes> + Send + 'static,
    permit: ConcurrencyPermit,
) -> Response {
    let end = async move {
        let _permit = permit;
        sleep(STREAM_TIME_MAX).await;
    };
    response(Body::from_stream(pieces.take_until(end).map(Ok::<_, Infallible>)))
}

/// Puts JSON text on one line, as an event has it: a line break can only be white space between
/// its tokens.
pub(crate) fn one_line(json: &mut [u8]) {
    for byte in json.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
}

/// The connection's next step, which begins once the connection has taken the previous text.
enum Next {
    Show(StreamPage, Reader),
    Look { at: StreamPosition, reader: Reader },
    End { at: StreamPosition, reader: Reader },
    Stop,
}

struct Reader {
    pages: CallerPages,
    jobs: Arc<Jobs>,
    key: KeyCheck,
    endpoint: EndpointId,
    id: JobId,
    moves_cursor: bool,
}

impl Reader {
    /// The next page, or none when the job was deleted. `None` when the key is not valid any more, or the
    /// host is stopping: the connection then ends without an event `end`.
    async fn look(&self, at: StreamPosition) -> Option<Option<StreamPage>> {
        self.delivered(at).await;
        self.key.check().ok()?;
        let Self { jobs, key, endpoint, id, .. } = self;
        let (position, wait) = (Position::At(at), COMMENT_INTERVAL);
        let page = waiting::for_page(key, jobs, endpoint, *id, position, wait).await.ok()?;
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
    use gristmill_core::access::key::{ApiKey, NewKey, Scope};
    use gristmill_core::id::OwnerId;
    use gristmill_core::time::{ManualClock, Timestamp};
    use gristmill_wire::management::RateLimit;
    use tokio::time::Instant;

    use super::*;
    use crate::limits::rate_limit::{RateLimiter, RateLimits};

    #[tokio::test(start_paused = true)]
    async fn an_answer_without_an_end_ends_after_an_hour_and_counts_until_then() {
        let events = RateLimit { calls_per_10s: 10, concurrent: Some(1), calls_per_worker: 0 };
        let limits = RateLimits { events, ..RateLimits::default() };
        let clock = Arc::new(ManualClock::new(Timestamp::from_millis(0)));
        let limiter = RateLimiter::new(limits, 100, clock);
        let new = NewKey {
            name: String::new(),
            owner: OwnerId::new("a").unwrap(),
            scopes: vec![Scope::Read],
            endpoints: None,
            expires_at: None,
        };
        let key = ApiKey::generate(new, Timestamp::from_millis(0)).0;
        // Without the end, the pieces alone would last for a day.
        let pieces = stream::unfold(0, async |count: u64| {
            sleep(COMMENT_INTERVAL).await;
            (count < 24 * 240).then(|| (Bytes::from_static(b":\n\n"), count + 1))
        });
        let begun = Instant::now();
        let permit = limiter.enter_stream(&key).unwrap();
        let mut body = long_response(pieces, permit).into_body().into_data_stream();
        while let Some(piece) = body.next().await {
            assert_eq!(piece.unwrap(), ":\n\n");
            assert!(limiter.enter_stream(&key).is_err(), "the stream counts while it lasts");
        }
        let lasted = begun.elapsed();
        assert!(lasted >= STREAM_TIME_MAX, "{lasted:?}");
        assert!(lasted < STREAM_TIME_MAX + COMMENT_INTERVAL, "{lasted:?}");
        let permit = limiter.enter_stream(&key).expect("the stream has ended");
        let left = long_response(stream::pending(), permit);
        assert!(limiter.enter_stream(&key).is_err());
        drop(left);
        assert!(limiter.enter_stream(&key).is_ok(), "its reader has left");
    }

    #[test]
    fn events_are_sent_to_callers_who_prefer_them_to_json() {
        let cases: [(&[&'static str], bool); 17] = [
            (&[], false),
            (&["*/*"], false),
            (&["text/*"], false),
            (&["application/json"], false),
            (&["text/event-stream"], true),
            (&["Text/Event-Stream; charset=utf-8"], true),
            (&["text/event-stream, */*"], true),
            (&["text/event-stream;q=0.1, */*"], true),
            (&["text/event-stream;q=0"], false),
            (&["text/event-stream; Q=0.000, application/json;q=0"], false),
            (&["text/event-stream, application/json"], true),
            (&["application/json, text/event-stream"], false),
            (&["application/json", "text/event-stream"], false),
            (&["application/json, text/event-stream;q=0.1"], false),
            (&["application/json;q=0.5, text/event-stream;q=0.6"], true),
            (&["application/json;q=0.5", "text/event-stream;q=much"], true),
            (&["application/x-text/event-stream"], false),
        ];
        for (values, expected) in cases {
            let mut headers = HeaderMap::new();
            for &value in values {
                headers.append(header::ACCEPT, HeaderValue::from_static(value));
            }
            assert_eq!(is_accepted(&headers), expected, "{values:?}");
        }
    }

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
