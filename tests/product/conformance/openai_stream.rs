//! `/openai/*` with `"stream": true`: the handler's chunks as OpenAI clients read them.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use gristmill_tests::{Answer, guests, parse_events, shared_host};
use serde_json::{Value, json};

const CHAT: &str = "v1/chat/completions";

fn events(answer: &Answer) -> Vec<String> {
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert!(answer.header("x-job-id").is_some());
    parse_events(&answer.text).into_iter().map(|event| event.data).collect()
}

#[tokio::test]
async fn chunks_are_events_and_strings_are_their_raw_text() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "openai-events", json!({})).await;
    let cases = [
        (
            json!([{ "z": 1, "a": [2] }, 3]),
            json!(null),
            "data: {\"z\":1,\"a\":[2]}\n\ndata: 3\n\ndata: [DONE]\n\n",
        ),
        (
            json!(["data: 1\n\ndata: 2\n\n", ": note\n\n", "event: x\ndata: 3\n\n"]),
            json!({ "ignored": true }),
            "data: 1\n\ndata: 2\n\n: note\n\nevent: x\ndata: 3\n\ndata: [DONE]\n\n",
        ),
        (json!(["data: 1\n\n", "data: [DONE]\n\n"]), json!(null), "data: 1\n\ndata: [DONE]\n\n"),
        // Without chunks, the returned value is the only event.
        (json!([]), json!({ "b": 1, "a": 2 }), "data: {\"b\":1,\"a\":2}\n\ndata: [DONE]\n\n"),
        (json!([]), json!(null), "data: [DONE]\n\n"),
    ];
    for (values, value, expected) in cases {
        let mut body = json!({ "op": "emit", "stream": true });
        body["values"] = values;
        if !value.is_null() {
            body["value"] = value;
        }
        let answer = host.client.openai(&endpoint, CHAT, &body).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, expected), "{body}");
    }
}

#[tokio::test]
async fn large_chunks_are_one_event_or_raw_text_again() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "openai-large", json!({})).await;
    let value = json!({ "text": "é\n\"".repeat(800_000) });
    let raw = format!("data: {}\n\n", "7".repeat(3 << 20));
    let body = json!({ "op": "emit", "values": [value, raw], "stream": true });
    let events = events(&host.client.openai(&endpoint, CHAT, &body).await);
    assert_eq!(events.len(), 3);
    assert_eq!(serde_json::from_str::<Value>(&events[0]).unwrap(), value);
    assert_eq!(events[1].len(), 3 << 20);
    assert_eq!(events[2], "[DONE]");
}

#[tokio::test]
async fn a_failure_after_chunks_is_the_last_event() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "openai-late", json!({})).await;
    let body = json!({ "op": "emit", "values": [1], "message": "no flour", "stream": true });
    let events = events(&host.client.openai(&endpoint, CHAT, &body).await);
    let [first, last] = &events[..] else { panic!("{events:?}") };
    assert_eq!(first, "1");
    assert_eq!(
        serde_json::from_str::<Value>(last).unwrap(),
        json!({ "error": {
            "message": "no flour", "type": "server_error", "param": null, "code": "job_failed",
        } })
    );
}

#[tokio::test]
async fn a_cancel_ends_the_stream_with_an_error() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "openai-cancel", json!({})).await;
    let values: Vec<u32> = (0..1_000).collect();
    let body = json!({ "op": "emit", "values": values, "delay_ms": 100, "stream": true });
    let path = host.client.path(&endpoint, &format!("openai/{CHAT}"));
    let request = host.client.request(reqwest::Method::POST, &path).json(&body);
    // The head is sent with the first chunk.
    let response = request.send().await.unwrap();
    let job = response.headers()["x-job-id"].to_str().unwrap().to_owned();
    host.client.cancel(&endpoint, &job).await.ok();
    let text = response.text().await.unwrap();
    assert!(text.starts_with("data: 0\n\n"), "{text}");
    let events = parse_events(&text);
    let last = events.last().unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(&last.data).unwrap()["error"]["code"],
        "job_cancelled"
    );
}

#[tokio::test]
async fn events_come_while_the_job_runs_and_a_reader_that_leaves_stops_it() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "openai-live", json!({})).await;
    let path = host.client.path(&endpoint, &format!("openai/{CHAT}"));
    let values: Vec<u32> = (0..1_000).collect();
    let body = json!({ "op": "emit", "values": values, "delay_ms": 300, "stream": true });
    let begun = Instant::now();
    let response =
        host.client.request(reqwest::Method::POST, &path).json(&body).send().await.unwrap();
    let job = response.headers()["x-job-id"].to_str().unwrap().to_owned();
    let mut bytes = response.bytes_stream();
    let mut text = String::new();
    while parse_events(&text).len() < 3 {
        text.push_str(std::str::from_utf8(&bytes.next().await.unwrap().unwrap()).unwrap());
    }
    // The whole stream would take five minutes.
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    assert_eq!(host.client.status(&endpoint, &job).await.ok()["status"], "IN_PROGRESS");
    drop(bytes);
    host.client.until(&endpoint, &job, "CANCELLED").await;
    host.client.workers_running(&endpoint, 0).await;
}

#[tokio::test]
async fn a_slow_reader_gets_every_page() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "openai-slow", json!({})).await;
    // 16 MB: more than a page, and more than the connection buffers.
    let piece = "x".repeat(400_000);
    let values: Vec<_> = (0..40).map(|i| json!({ "i": i, "text": piece })).collect();
    let body = json!({ "op": "emit", "values": values, "stream": true });
    let path = host.client.path(&endpoint, &format!("openai/{CHAT}"));
    let response =
        host.client.request(reqwest::Method::POST, &path).json(&body).send().await.unwrap();
    let job = response.headers()["x-job-id"].to_str().unwrap().to_owned();
    host.client.until(&endpoint, &job, "COMPLETED").await;
    let events = parse_events(&response.text().await.unwrap());
    assert_eq!(events.len(), 41);
    for (index, event) in events.iter().take(40).enumerate() {
        assert_eq!(serde_json::from_str::<Value>(&event.data).unwrap()["i"], index);
    }
}
