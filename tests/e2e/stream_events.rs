//! `/stream` as server-sent events.

use std::time::Instant;

use futures::StreamExt as _;
use gristmill_tests::{Answer, SseEvent, guests, parse_events, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

fn data(event: &SseEvent) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

/// Checks the answer's type and its last event, and returns the chunks' events.
fn chunk_events(answer: &Answer, job: &str, status: &str) -> Vec<SseEvent> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let media_type = answer.header("content-type").unwrap_or_default();
    assert!(media_type.starts_with("text/event-stream"), "{answer:?}");
    let mut events = parse_events(&answer.text);
    let end = events.pop().unwrap_or_default();
    assert_eq!(end.event, "end", "{answer:?}");
    assert_eq!(data(&end)["status"], status);
    assert_eq!(data(&end)["id"], job);
    events
}

#[tokio::test]
async fn events_carry_the_chunks_with_their_index_as_id_and_end_with_the_status() {
    let host = shared_host();
    for (name, client) in [("sse-v2", host.client.clone()), ("sse-sdk", host.client.sdk())] {
        let endpoint = host.deploy(&guests::playground(), name, json!({})).await;
        let input = json!({ "op": "stream", "count": 4, "delay_ms": 60 });
        let job = client.submit(&endpoint, input).await;
        let path = client.path(&endpoint, &format!("stream/{job}"));
        let request = client.request(Method::GET, &path).header("accept", "text/event-stream");
        let answer = client.send(request).await;
        let events = chunk_events(&answer, &job, "COMPLETED");
        assert_eq!(events.len(), 4, "{answer:?}");
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event.id.as_deref(), Some(index.to_string().as_str()), "{event:?}");
            let expected =
                json!({ "output": { "i": index }, "metrics": { "stream_index": index } });
            assert_eq!(data(event), expected);
        }
    }
}

#[tokio::test]
async fn events_come_while_the_job_runs() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sse-live", json!({})).await;
    let input = json!({ "op": "stream", "count": 3, "delay_ms": 700 });
    let job = host.client.submit(&endpoint, input).await;
    let path = host.client.path(&endpoint, &format!("stream/{job}"));
    let request = host.client.request(Method::GET, &path).header("accept", "text/event-stream");
    let mut body = request.send().await.unwrap().bytes_stream();
    let begun = Instant::now();
    let (mut text, mut first, mut last) = (String::new(), None, None);
    while let Some(bytes) = body.next().await {
        text.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
        let seen = parse_events(&text);
        if seen.iter().any(|event| event.id.is_some()) {
            first.get_or_insert_with(|| begun.elapsed());
        }
        if seen.iter().any(|event| event.event == "end") {
            last.get_or_insert_with(|| begun.elapsed());
        }
    }
    let (first, last) = (first.unwrap(), last.unwrap());
    println!("first event after {first:?}, end after {last:?}");
    assert!(last - first > std::time::Duration::from_millis(800), "{first:?} {last:?}");
}

#[tokio::test]
async fn the_end_of_a_failed_job_says_why() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sse-failed", json!({})).await;
    let input = json!({ "op": "fail", "message": "no flour" });
    let job = host.client.submit(&endpoint, input).await;
    let path = host.client.path(&endpoint, &format!("stream/{job}"));
    let request = host.client.request(Method::GET, &path).header("accept", "text/event-stream");
    let answer = host.client.send(request).await;
    assert_eq!(chunk_events(&answer, &job, "FAILED"), []);
    assert!(answer.text.contains("no flour"), "{answer:?}");

    let unknown = host.client.path(&endpoint, "stream/0192f3a0-0000-7000-8000-000000000000-0000");
    let request = host.client.request(Method::GET, &unknown).header("accept", "text/event-stream");
    host.client.send(request).await.refused(404);
}
