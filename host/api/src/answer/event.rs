//! The text of a server-sent event.

use serde::Serialize;

/// Writes an event without an id.
pub(crate) fn write_event(text: &mut Vec<u8>, kind: &str, data: &impl Serialize) {
    let data = serde_json::to_string(data).expect("the event is plain data");
    text.extend_from_slice(format!("event: {kind}\ndata: {data}\n\n").as_bytes());
}
