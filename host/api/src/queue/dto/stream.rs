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
mod tests {
    use gristmill_core::job::record::{ChunkPage, Part};
    use gristmill_core::job::state::JobStatus;
    use gristmill_wire::queue::{StreamMetrics, StreamPage};

    use super::*;

    #[test]
    fn a_stream_matches_its_schema() {
        let chunk = |metrics: Option<&str>, part| Chunk {
            output: Json::parse("{\"a\":1}").unwrap(),
            metrics: metrics.map(|text| Json::parse(text.to_owned()).unwrap()),
            part,
        };
        let part = Part { index: 1, count: 3 };
        let chunks = vec![chunk(None, None), chunk(Some("{\"tokens\":4}"), Some(part))];
        let page = stream::StreamPage {
            status: JobStatus::InProgress,
            error: None,
            is_restart: false,
            page: ChunkPage { attempt: Claim(1), first: 7, chunks },
        };
        let list = stream_page(StreamShape::Array, &page);
        let written = list.clone();
        let list: Vec<StreamChunk> = serde_json::from_slice(&list).unwrap();
        assert_eq!(serde_json::to_vec(&list).unwrap(), written, "no other field");
        let object = stream_page(StreamShape::Object, &page);
        let object: StreamPage = serde_json::from_slice(&object).unwrap();
        assert_eq!(object.status, JobStatus::InProgress);
        for [first, second] in
            [list, object.stream].map(|list| <[_; 2]>::try_from(list).ok().unwrap())
        {
            assert_eq!((first.part, first.parts), (None, None));
            assert_eq!((second.part, second.parts), (Some(1), Some(3)));
            let index = |chunk: &StreamChunk| {
                let metrics: StreamMetrics = serde_json::from_str(chunk.metrics.get()).unwrap();
                metrics.stream_index.get().to_owned()
            };
            assert_eq!([index(&first), index(&second)], ["7", "8"]);
            assert_eq!([first, second].map(|c| c.output.get().to_owned()), ["{\"a\":1}"; 2]);
        }
    }

    #[test]
    fn the_position_joins_the_handlers_metrics() {
        let cases = [
            (None, r#"{"stream_index":4}"#),
            (Some("{}"), r#"{"stream_index":4}"#),
            (Some("{ }"), r#"{ "stream_index":4}"#),
            (Some(r#"{"a":1}"#), r#"{"a":1,"stream_index":4}"#),
            (Some(r#"{"stream_index":9}"#), r#"{"stream_index":9}"#),
            (Some(r#"{"a":"stream_index"}"#), r#"{"a":"stream_index","stream_index":4}"#),
            (Some(r#"{"stream_index":null}"#), r#"{"stream_index":null}"#),
            (Some(r#"{"stream\u005findex":9}"#), r#"{"stream\u005findex":9}"#),
            (Some(r#"{"a":"\n"}"#), r#"{"a":"\n","stream_index":4}"#),
            (
                Some(r#"{"stream_index":1,"stream_index":2}"#),
                r#"{"stream_index":1,"stream_index":2}"#,
            ),
        ];
        for (metrics, expected) in cases {
            let metrics = metrics.map(|text| Json::parse(text).unwrap());
            let mut text = Vec::new();
            let at = StreamPosition { attempt: Claim(1), index: 4 };
            write_metrics(&mut text, at, metrics.as_ref());
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
        let later = [
            (None, r#"{"stream_index":4,"stream_attempt":2}"#),
            (Some(r#"{"a":1}"#), r#"{"a":1,"stream_index":4,"stream_attempt":2}"#),
            (Some(r#"{"stream_index":9}"#), r#"{"stream_index":9,"stream_attempt":2}"#),
            (Some(r#"{"stream_attempt":9}"#), r#"{"stream_attempt":9,"stream_index":4}"#),
        ];
        for (metrics, expected) in later {
            let metrics = metrics.map(|text| Json::parse(text).unwrap());
            let mut text = Vec::new();
            let at = StreamPosition { attempt: Claim(2), index: 4 };
            write_metrics(&mut text, at, metrics.as_ref());
            assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }
}
