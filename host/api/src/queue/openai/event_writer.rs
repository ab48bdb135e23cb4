//! Chunks as the text of server-sent events. A chunk that is a string is raw event text, which the
//! handler has written; any other value becomes an event.

use bytes::Bytes;
use gristmill_core::job::record::Chunk;

use crate::event_stream::one_line;

/// Bytes of the text's end that are examined.
const TAIL_BYTES: usize = 16;

const DONE: &str = "[DONE]";

/// Collects the text of events.
#[derive(Debug, Default)]
pub(super) struct EventWriter {
    /// The end of the text that was returned already, and then the text that was not.
    text: Vec<u8>,
    taken: usize,
}

impl EventWriter {
    /// Adds a chunk. One part of a split value is one part of an event.
    pub(super) fn chunk(&mut self, chunk: &Chunk) {
        match (chunk.shown_part(), chunk.output.read::<String>()) {
            (None, Ok(raw)) => self.text.extend_from_slice(raw.as_bytes()),
            (Some(part), Ok(piece)) => {
                if part.index == 0 {
                    self.begin();
                }
                self.line(&piece);
                if part.index + 1 == part.count {
                    self.text.extend_from_slice(b"\n\n");
                }
            }
            // A string that is JSON but no text, such as half of a surrogate pair, is a value too.
            (_, Err(_)) => self.event(chunk.output.as_str()),
        }
    }

    /// Adds an event with this data: JSON text.
    pub(super) fn event(&mut self, data: &str) {
        self.begin();
        self.line(data);
        self.text.extend_from_slice(b"\n\n");
    }

    /// Adds a comment, unless that would cut an event in two.
    pub(super) fn comment(&mut self) {
        if self.is_between_events() {
            self.text.extend_from_slice(b": wait\n\n");
        }
    }

    /// Adds the closing event, unless the handler wrote it.
    pub(super) fn close(&mut self) {
        let text = self.tail().trim_ascii_end();
        let is_done = [format!("data: {DONE}"), format!("data:{DONE}")]
            .iter()
            .any(|last| text.ends_with(last.as_bytes()));
        if is_done {
            self.end_event();
        } else {
            self.event(DONE);
        }
    }

    /// Returns the text that was added since the last call.
    pub(super) fn take(&mut self) -> Bytes {
        let tail = self.tail().to_vec();
        let taken = std::mem::replace(&mut self.taken, tail.len());
        Bytes::from(std::mem::replace(&mut self.text, tail)).slice(taken..)
    }

    fn tail(&self) -> &[u8] {
        self.text.split_at(self.text.len().saturating_sub(TAIL_BYTES)).1
    }

    fn begin(&mut self) {
        self.end_event();
        self.text.extend_from_slice(b"data: ");
    }

    /// Ends the event that raw text may have left open.
    fn end_event(&mut self) {
        if !self.is_between_events() {
            self.text.extend_from_slice(b"\n\n");
        }
    }

    fn is_between_events(&self) -> bool {
        let ends: [&[u8]; 3] = [b"\n\n", b"\r\n\r\n", b"\r\r"];
        self.text.is_empty() || ends.iter().any(|end| self.text.ends_with(end))
    }

    fn line(&mut self, json: &str) {
        let start = self.text.len();
        self.text.extend_from_slice(json.as_bytes());
        self.text.get_mut(start..).map(one_line);
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::job::payload::Json;
    use gristmill_core::job::record::Part;

    use super::*;

    fn chunk(output: &str, part: Option<Part>) -> Chunk {
        Chunk { output: Json::parse(output.to_owned()).unwrap(), metrics: None, part }
    }

    /// The text of these chunks and the close, taken chunk by chunk.
    fn written(chunks: &[&str]) -> String {
        let mut writer = EventWriter::default();
        let mut text = Vec::new();
        for output in chunks {
            writer.chunk(&chunk(output, None));
            text.extend_from_slice(&writer.take());
        }
        writer.close();
        text.extend_from_slice(&writer.take());
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn strings_are_raw_text_and_other_values_are_events() {
        let cases: [(&[&str], &str); 6] = [
            (&[], "data: [DONE]\n\n"),
            (&[r#"{"a":1}"#, "[2]"], "data: {\"a\":1}\n\ndata: [2]\n\ndata: [DONE]\n\n"),
            (&["{\"a\":\r\n1}"], "data: {\"a\":  1}\n\ndata: [DONE]\n\n"),
            (&[r#""data: 1\n\ndata: 2\n\n""#], "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"),
            (&[r#""data: 1""#, "2"], "data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"),
            (&[r#""\ud800""#], "data: \"\\ud800\"\n\ndata: [DONE]\n\n"),
        ];
        for (chunks, expected) in cases {
            assert_eq!(written(chunks), expected, "{chunks:?}");
        }
    }

    #[test]
    fn a_handlers_own_close_is_enough() {
        for (chunks, expected) in [
            (&[r#""data: [DONE]\n\n""#][..], "data: [DONE]\n\n"),
            (&[r#""data:[DONE]\r\n\r\n""#], "data:[DONE]\r\n\r\n"),
            (&[r#""data: [DONE]""#], "data: [DONE]\n\n"),
            (&["1", r#""data: [DO""#, r#""NE]\n\n""#], "data: 1\n\ndata: [DONE]\n\n"),
        ] {
            assert_eq!(written(chunks), expected, "{chunks:?}");
        }
    }

    #[test]
    fn the_pieces_of_a_string_are_raw_text() {
        let mut writer = EventWriter::default();
        writer.chunk(&chunk(r#""data: a""#, None));
        writer.chunk(&chunk(r#""b\n\n""#, Some(Part { index: 1, count: 0 })));
        assert_eq!(writer.take(), "data: ab\n\n");
    }

    #[test]
    fn the_parts_of_a_split_value_are_one_event() {
        let mut writer = EventWriter::default();
        let mut text = Vec::new();
        for (index, piece) in (0..).zip([r#""{\"a\":""#, r#""\n\"b\"""#, r#""}""#]) {
            writer.chunk(&chunk(piece, Some(Part { index, count: 3 })));
            writer.comment();
            text.extend_from_slice(&writer.take());
        }
        assert_eq!(String::from_utf8(text).unwrap(), "data: {\"a\": \"b\"}\n\n: wait\n\n");
    }
}
