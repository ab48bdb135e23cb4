//! Server-sent events: the wishes of a caller in the head of a request, the text of an event, and
//! the answer.
//!
//! **Bounds.** [`STREAM_TIME_MAX`] for an answer that could go on for ever.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use serde::Serialize;
use tokio::time::sleep;

use crate::answer::error::ApiError;
use crate::limits::rate_limit::ConcurrencyPermit;
use crate::request::query::integer;

/// How long a connection is silent before it gets a comment.
pub(crate) const COMMENT_INTERVAL: Duration = Duration::from_secs(15);

/// A stream of the management API ends after this time; its reader connects again.
pub(crate) const STREAM_TIME_MAX: Duration = Duration::from_hours(1);

/// Whether the caller prefers events to JSON, by the `Accept` headers (RFC 9110, section 12.5.1):
/// of `text/event-stream` and `application/json`, the type with the greater weight, or of equal
/// ones the first. Ranges with `*` do not count.
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

/// The weight `q` among the parameters of a media range, from 0 to 1. An invalid one counts as
/// absent.
fn weight_of(parameters: &str) -> f32 {
    let mut named = parameters.split(';').filter_map(|parameter| parameter.split_once('='));
    let weight = named.find(|(name, _)| name.trim().eq_ignore_ascii_case("q"));
    let weight = weight.and_then(|(_, value)| value.trim().parse::<f32>().ok());
    weight.filter(|weight| (0.0..=1.0).contains(weight)).unwrap_or(1.0)
}

/// The id of the last event that a returning reader has seen, as `parse` reads it. An empty header
/// counts as absent: it is the last id of a reader that has seen no event.
///
/// # Errors
/// 400 when `parse` returns `None`; `what` says what the header must be.
pub(crate) fn last_event_id<T>(
    headers: &HeaderMap,
    what: &str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, ApiError> {
    let mut values = headers.get_all("last-event-id").iter();
    let Some(value) = values.next() else { return Ok(None) };
    let id = match (value.to_str(), values.next()) {
        (Ok(""), None) => return Ok(None),
        (Ok(text), None) => parse(text.trim()),
        (Err(_), _) | (_, Some(_)) => None,
    };
    id.map(Some)
        .ok_or_else(|| ApiError::bad_request(format!("one header Last-Event-ID must be {what}")))
}

/// A number that is not negative; with too many digits it saturates.
pub(crate) fn number(text: &str) -> Option<u64> {
    integer(text)?.try_into().ok()
}

/// Writes an event without an id.
pub(crate) fn write_event(text: &mut Vec<u8>, kind: &str, data: &impl Serialize) {
    let data = serde_json::to_string(data).expect("the event is plain data");
    text.extend_from_slice(format!("event: {kind}\ndata: {data}\n\n").as_bytes());
}

/// Puts JSON text on one line, as an event has it: a line break can only be white space between
/// its tokens.
pub(crate) fn one_line(json: &mut [u8]) {
    for byte in json.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
}

/// An answer of server-sent events.
pub(crate) fn response(events: Body) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, events).into_response()
}

/// An answer of server-sent events that could go on for ever: it ends after [`STREAM_TIME_MAX`],
/// between two of its pieces. The permit is held until the answer has ended or its reader has left.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::stream;
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
}
