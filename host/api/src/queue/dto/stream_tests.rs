//! Pages of a stream, read back by their schema, and the position that is added to the metrics.

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
    for [first, second] in [list, object.stream].map(|list| <[_; 2]>::try_from(list).ok().unwrap())
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
        (Some(r#"{"stream_index":1,"stream_index":2}"#), r#"{"stream_index":1,"stream_index":2}"#),
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
