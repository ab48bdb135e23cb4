//! `GET /{endpoint}/stream/{job}` and its chunks, sentence by sentence.

use gristmill_tests::{guests, shared_host};
use reqwest::Method;
use serde_json::json;

use crate::support::{MIB, failing, id, shared};

fn three_chunks() -> serde_json::Value {
    json!({ "op": "stream", "count": 3 })
}

/// Returns the emitted chunks while the job runs.
#[tokio::test]
async fn receives_incremental_results() {
    let endpoint = shared("stream-purpose", json!({})).await;
    let input = json!({ "op": "stream", "count": 1000, "delay_ms": 200 });
    let job = endpoint.submit(input).await;
    let mut outputs = vec![];
    while outputs.len() < 3 {
        let answer = endpoint.stream(&job).await.ok();
        outputs.extend(answer.as_array().unwrap().iter().map(|chunk| chunk["output"].clone()));
    }
    assert_eq!(outputs[..3], [json!({ "i": 0 }), json!({ "i": 1 }), json!({ "i": 2 })]);
    assert_eq!(endpoint.status(&job).await.ok()["status"], "IN_PROGRESS");
    endpoint.cancel(&job).await.ok();
}

/// It takes no body; a body is ignored.
#[tokio::test]
async fn no_body() {
    let endpoint = shared("stream-body", json!({})).await;
    let job = id(&endpoint.finish(three_chunks()).await);
    let answer = endpoint.with_nonsense_body(Method::GET, &format!("stream/{job}")).await;
    assert_eq!(answer.ok().as_array().map(Vec::len), Some(3));
}

/// The answer is an array of chunks; each has `output` and an object `metrics`.
#[tokio::test]
async fn response_is_an_array() {
    let endpoint = shared("stream-array", json!({})).await;
    let job = id(&endpoint.finish(three_chunks()).await);
    let answer = endpoint.stream(&job).await.ok();
    let chunks = answer.as_array().unwrap_or_else(|| panic!("no array: {answer}"));
    assert_eq!(chunks.len(), 3);
    for chunk in chunks {
        assert!(chunk.get("output").is_some() && chunk["metrics"].is_object(), "{chunk}");
    }
}

/// A chunk's `output` is the emitted value, of any type.
#[tokio::test]
async fn chunk_output() {
    let endpoint = shared("stream-output", json!({})).await;
    for value in [json!({ "text": "☼" }), json!([1, null]), json!("plain"), json!(7)] {
        let job = id(&endpoint.finish(json!({ "op": "emit", "values": [value] })).await);
        assert_eq!(endpoint.stream(&job).await.ok()[0]["output"], value);
    }
}

/// A chunk's `metrics` are the handler's own.
#[tokio::test]
async fn chunk_metrics() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::token_stream(), "stream-metrics", json!({})).await;
    let done = host.client.finish(&endpoint, json!({ "prompt": "Slow mills grind fine." })).await;
    let chunks = host.client.stream(&endpoint, &id(&done)).await.ok();
    let chunks = chunks.as_array().unwrap();
    assert_eq!(chunks.len(), 5);
    for (index, chunk) in chunks.iter().enumerate() {
        let expected =
            json!({ "input_tokens": 5, "output_tokens": index + 1, "stream_index": index });
        assert_eq!(chunk["metrics"], expected);
    }
}

/// A handler must support streaming: otherwise the stream is empty.
#[tokio::test]
async fn handler_must_support_streaming() {
    let endpoint = shared("stream-none", json!({})).await;
    for input in [json!({ "op": "echo" }), failing()] {
        let job = id(&endpoint.finish(input).await);
        assert_eq!(endpoint.stream(&job).await.ok(), json!([]));
    }
}

/// One chunk is 1 MB at most; a larger one becomes several, without any loss.
#[tokio::test]
async fn chunk_maximum() {
    let endpoint = shared("stream-maximum", json!({})).await;
    // A chunk is its JSON text: this one has two quotes.
    let whole = id(&endpoint.finish(json!({ "op": "chunk", "bytes": MIB - 2 })).await);
    assert_eq!(endpoint.stream(&whole).await.ok().as_array().map(Vec::len), Some(1));
    let bytes = 2_500_000;
    let split = id(&endpoint.finish(json!({ "op": "chunk", "bytes": bytes })).await);
    let chunks = endpoint.stream(&split).await.ok();
    let chunks = chunks.as_array().unwrap();
    assert!(chunks.len() > 1);
    assert!(chunks.iter().all(|chunk| chunk["output"].to_string().len() <= MIB));
    let sizes = chunks.iter().map(|chunk| chunk["output"].as_str().unwrap().len());
    assert_eq!(sizes.sum::<usize>(), bytes);
}
