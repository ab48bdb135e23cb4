//! Server-sent events: splits the text of a stream into events.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderValue};
use reqwest::{RequestBuilder, Response};
use url::Url;

use super::{Client, ClientError};

/// Largest event that is read, in bytes (4 MiB): a chunk has 1 MiB at most.
pub(crate) const EVENT_BYTES_MAX: usize = 4 << 20;

/// Most time without a byte: the host sends a comment every 15 seconds.
const SILENCE_TIME_MAX: Duration = Duration::from_secs(60);

/// Most time for a whole stream: the longest ttl of a job.
const STREAM_TIME_MAX: Duration = Duration::from_hours(7 * 24);

/// One event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its kind; empty for an ordinary message.
    pub(crate) kind: String,
    /// Its id, if it has one.
    pub(crate) id: Option<String>,
    /// Its content.
    pub(crate) data: String,
}

/// The events of one answer.
#[derive(Debug)]
pub(crate) struct EventStream {
    response: Response,
    base: Url,
    parser: EventParser,
    ready: VecDeque<Event>,
}

impl EventStream {
    /// Opens the stream of `request`; if `after` is given, after the event with this id.
    pub(super) async fn open(
        client: &Client,
        mut request: RequestBuilder,
        after: Option<&str>,
    ) -> Result<Self, ClientError> {
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let request = request
            .header(ACCEPT, HeaderValue::from_static("text/event-stream"))
            .timeout(STREAM_TIME_MAX);
        let response = client.open(request).await?;
        let base = client.base.clone();
        Ok(Self { response, base, parser: EventParser::default(), ready: VecDeque::new() })
    }

    /// The next event; `None` once the host has ended the answer.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            let part = tokio::time::timeout(SILENCE_TIME_MAX, self.response.chunk())
                .await
                .map_err(|_| ClientError::Interrupted("the stream has fallen silent".to_owned()))?
                .map_err(|error| ClientError::transport(error, &self.base))?;
            let Some(part) = part else { return Ok(None) };
            let events = self.parser.push(&part);
            self.ready.extend(events.ok_or_else(|| {
                ClientError::Garbled(format!("an event is larger than {EVENT_BYTES_MAX} bytes"))
            })?);
        }
    }
}

/// Splits text into events, whatever the boundaries of its pieces.
#[derive(Debug, Default)]
struct EventParser {
    /// The unfinished line.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return, so that a line feed now does not end a further
    /// line.
    after_return: bool,
    event: Event,
    has_data: bool,
}

impl EventParser {
    /// Adds the next bytes, and returns the completed events; `None` when one is too large.
    fn push(&mut self, bytes: &[u8]) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        for byte in bytes {
            let is_second_half = std::mem::take(&mut self.after_return) && *byte == b'\n';
            match byte {
                b'\n' if is_second_half => {}
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    events.extend(self.end_line());
                }
                _ if self.line.len() + self.event.data.len() >= EVENT_BYTES_MAX => return None,
                _ => self.line.push(*byte),
            }
        }
        Some(events)
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let line = String::from_utf8_lossy(&line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.kind),
            "id" => self.event.id = Some(value.to_owned()),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // An empty field is a comment; other fields are ignored.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, id: Option<&str>, data: &str) -> Event {
        Event { kind: kind.to_owned(), id: id.map(str::to_owned), data: data.to_owned() }
    }

    #[test]
    fn events_are_the_same_however_the_text_is_cut() {
        let text = "id: 0\ndata: {\"output\":1}\n\n: keep-alive\n\nid:1\r\ndata: a\r\ndata:  b\r\n\r\n\
                    event: end\ndata: {\"é\":true}\n\nid: 9\n\ndata: unfinished\n";
        let expected = [
            event("", Some("0"), "{\"output\":1}"),
            event("", Some("1"), "a\n b"),
            event("end", None, "{\"é\":true}"),
        ];
        for size in [1, 2, 3, 7, text.len()] {
            let mut parser = EventParser::default();
            let events: Vec<_> =
                text.as_bytes().chunks(size).flat_map(|part| parser.push(part).unwrap()).collect();
            assert_eq!(events, expected, "pieces of {size} bytes");
        }
    }

    #[test]
    fn an_endless_event_is_given_up() {
        let mut parser = EventParser::default();
        let line = vec![b'x'; EVENT_BYTES_MAX];
        assert!(parser.push(&line).is_some());
        assert!(parser.push(b"x").is_none());
        let mut parser = EventParser::default();
        let line = format!("data: {}\n", "x".repeat(1 << 20));
        assert!((0..8).any(|_| parser.push(line.as_bytes()).is_none()));
    }
}
