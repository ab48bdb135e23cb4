//! Chunks, and the pages of `/stream`. They are written by hand, because a handler's outputs are
//! copied into them unchanged.

use std::collections::HashMap;

use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, StreamPosition};
use gristmill_core::job::state::Claim;
use gristmill_core::jobs::stream;
use gristmill_wire::queue::StreamChunk;
use gristmill_wire::schema;
use serde::de::IgnoredAny;

use crate::openapi::StreamShape;

/// An answer of `/stream` under `/v2`, and as server-sent events.
#[derive(utoipa::IntoResponses)]
#[response(
    status = 200,
    description = "The chunks",
    headers(
        ("X-Job-Status" = schema::Status, description = "Final only with the last chunk"),
        ("X-Stream-Next" = u64, description = "The index of the next chunk"),
        ("X-Stream-Attempt" = u32, description = "The attempt that emitted the chunks; each attempt begins with index 0"),
    ),
)]
#[expect(dead_code, reason = "the shape of what is written by hand")]
pub(crate) struct StreamAnswer(Vec<StreamChunk>);

/// Writes an answer of `/stream`: a list of [`StreamChunk`], or a
/// [`StreamPage`](gristmill_wire::queue::StreamPage).
pub(crate) fn stream_page(shape: StreamShape, page: &stream::StreamPage) -> Vec<u8> {
    let stream::StreamPage { status, page, .. } = page;
    let bytes = 64 + page.chunks.iter().map(|chunk| chunk.len() + 64).sum::<usize>();
    let mut text = Vec::with_capacity(bytes);
    if shape == StreamShape::Object {
        text.extend_from_slice(format!("{{\"status\":\"{status}\",\"stream\":").as_bytes());
    }
    text.push(b'[');
    for (index, chunk) in (page.first..).zip(&page.chunks) {
        if index > page.first {
            text.push(b',');
        }
        write_chunk(&mut text, StreamPosition { attempt: page.attempt, index }, chunk);
    }
    text.push(b']');
    if shape == StreamShape::Object {
        text.push(b'}');
    }
    text
}

/// The attempt whose chunks have no `stream_attempt`, and whose events have indexes alone as ids.
pub(crate) const FIRST_ATTEMPT: Claim = Claim(1);

/// Writes one element of a stream: `{"output":…,"metrics":{…,"stream_index":n}}`.
pub(crate) fn write_chunk(into: &mut Vec<u8>, at: StreamPosition, chunk: &Chunk) {
    into.extend_from_slice(b"{\"output\":");
    into.extend_from_slice(chunk.output.as_bytes());
    into.extend_from_slice(b",\"metrics\":");
    write_metrics(into, at, chunk.metrics.as_ref());
    if let Some(part) = chunk.shown_part() {
        let text = format!(",\"part\":{},\"parts\":{}", part.index, part.count);
        into.extend_from_slice(text.as_bytes());
    }
    into.push(b'}');
}

/// The handler's metrics with the chunk's position: `stream_index`, and `stream_attempt` unless it
/// is the first. A field that the handler has set, also to null, stays as it is.
fn write_metrics(into: &mut Vec<u8>, at: StreamPosition, metrics: Option<&Json>) {
    let text = metrics.map_or("{}", Json::as_str);
    // Most metrics have neither the names nor an escape that may hide one, and are not parsed.
    let own: HashMap<String, IgnoredAny> = if text.contains("stream_") || text.contains('\\') {
        serde_json::from_str(text).unwrap_or_default()
    } else {
        HashMap::new()
    };
    let Some(without_brace) = text.strip_suffix('}') else {
        into.extend_from_slice(text.as_bytes());
        return;
    };
    into.extend_from_slice(without_brace.as_bytes());
    let mut is_empty = without_brace.trim_end() == "{";
    let attempt = (at.attempt != FIRST_ATTEMPT).then_some(u64::from(at.attempt.0));
    for (name, value) in [("stream_index", Some(at.index)), ("stream_attempt", attempt)] {
        let Some(value) = value.filter(|_| !own.contains_key(name)) else { continue };
        let comma = if std::mem::take(&mut is_empty) { "" } else { "," };
        into.extend_from_slice(format!("{comma}\"{name}\":{value}").as_bytes());
    }
    into.push(b'}');
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
