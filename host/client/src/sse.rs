//! The parser of server-sent events.
//!
//! **Bound.** An [`EventParser`] keeps as many bytes of one event as its user permits. Own code,
//! because the parser `eventsource-stream` has no such bound, has had no release since 2022, and
//! needs a second parser library.

/// The kind of an event that names none.
const MESSAGE: &str = "message";

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its kind: `message`, unless the server named another one.
    pub kind: String,
    /// Its id, if it has one.
    pub id: Option<String>,
    /// Its content; lines are joined by `\n`.
    pub data: String,
}

impl Default for Event {
    fn default() -> Self {
        Self { kind: MESSAGE.to_owned(), id: None, data: String::new() }
    }
}

/// Splits text into events, whatever the boundaries of its pieces. Leaves out comments, and events
/// without data, as browsers do.
#[derive(Debug)]
pub struct EventParser {
    event_bytes_max: usize,
    /// The unfinished line.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return, so that a line feed now does not end a further
    /// line.
    after_return: bool,
    event: Event,
    has_data: bool,
    last_id: Option<String>,
}

impl EventParser {
    /// A parser of events that have this many bytes at most.
    pub fn new(event_bytes_max: usize) -> Self {
        Self {
            event_bytes_max,
            line: Vec::new(),
            after_return: false,
            event: Event::default(),
            has_data: false,
            last_id: None,
        }
    }

    /// The id of the last event that had one, also of an event without data.
    pub(crate) fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Adds the next bytes, and returns the completed events; `None` when an event is larger than
    /// the bound.
    pub fn push(&mut self, bytes: &[u8]) -> Option<Vec<Event>> {
        let mut events = Vec::new();
        for byte in bytes {
            let is_second_half = std::mem::take(&mut self.after_return) && *byte == b'\n';
            match byte {
                b'\n' if is_second_half => {}
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    events.extend(self.end_line());
                }
                _ if self.line.len() + self.event.data.len() >= self.event_bytes_max => {
                    return None;
                }
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
            self.last_id = event.id.clone().or_else(|| self.last_id.take());
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" if value.is_empty() => MESSAGE.clone_into(&mut self.event.kind),
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

    const EVENT_BYTES_MAX: usize = 4 << 20;

    fn event(kind: &str, id: Option<&str>, data: &str) -> Event {
        Event { kind: kind.to_owned(), id: id.map(str::to_owned), data: data.to_owned() }
    }

    #[test]
    fn events_are_the_same_however_the_text_is_cut() {
        let text = "id: 0\ndata: {\"output\":1}\n\n: keep-alive\n\nid:1\r\ndata: a\r\ndata:  b\r\n\r\n\
                    event: end\ndata: {\"é\":true}\n\nid: 9\n\nevent: x\nevent:\ndata\n\n\
                    event: no data\n\ndata: unfinished\n";
        let expected = [
            event("message", Some("0"), "{\"output\":1}"),
            event("message", Some("1"), "a\n b"),
            event("end", None, "{\"é\":true}"),
            event("message", None, ""),
        ];
        for size in [1, 2, 3, 7, text.len()] {
            let mut parser = EventParser::new(EVENT_BYTES_MAX);
            let events: Vec<_> =
                text.as_bytes().chunks(size).flat_map(|part| parser.push(part).unwrap()).collect();
            assert_eq!(events, expected, "pieces of {size} bytes");
            assert_eq!(parser.last_id(), Some("9"), "that of an event without data");
        }
    }

    #[test]
    fn an_endless_event_is_given_up() {
        let mut parser = EventParser::new(EVENT_BYTES_MAX);
        let line = vec![b'x'; EVENT_BYTES_MAX];
        assert!(parser.push(&line).is_some());
        assert!(parser.push(b"x").is_none());
        let mut parser = EventParser::new(EVENT_BYTES_MAX);
        let line = format!("data: {}\n", "x".repeat(1 << 20));
        assert!((0..8).any(|_| parser.push(line.as_bytes()).is_none()));
    }
}
