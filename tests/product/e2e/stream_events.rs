//! `/stream` as server-sent events.

use futures::StreamExt as _;
use gristmill_client::Event;
use gristmill_tests::{Answer, Client, clocked_host, guests, parse_events, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

fn data(event: &Event) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

/// Checks the answer's type and its last event, and returns the chunks' events.
fn chunk_events(answer: &Answer, job: &str, status: &str) -> Vec<Event> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let media_type = answer.header("content-type").unwrap_or_default();
    assert!(media_type.starts_with("text/event-stream"), "{answer:?}");
    let mut events = parse_events(&answer.text);
    let end = events.pop().unwrap_or_default();
    assert_eq!(end.kind, "end", "{answer:?}");
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
async fn a_caller_who_prefers_json_gets_a_page() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sse-preferred", json!({})).await;
    let job = host.client.submit(&endpoint, json!({ "op": "stream", "count": 1 })).await;
    host.client.until(&endpoint, &job, "COMPLETED").await;
    let path = host.client.path(&endpoint, &format!("stream/{job}?from=0"));
    for (accept, media_type) in [
        ("application/json, text/event-stream;q=0.1", "application/json"),
        ("application/json, text/event-stream", "application/json"),
        ("text/event-stream;q=0", "application/json"),
        ("text/event-stream, application/json", "text/event-stream"),
    ] {
        let request = host.client.request(Method::GET, &path).header("accept", accept);
        let answer = host.client.send(request).await;
        assert_eq!(answer.header("content-type"), Some(media_type), "{accept}: {answer:?}");
    }
    // A page begins where `from` says. An invalid `Last-Event-ID` is refused all the same; an empty
    // one is what a reader has before the first event.
    for (id, status) in [("2", 200), ("", 200), ("2-x", 400)] {
        let request = host.client.request(Method::GET, &path).header("last-event-id", id);
        assert_eq!(host.client.send(request).await.status, status, "{id}");
    }
}

#[tokio::test]
async fn events_come_while_the_job_runs() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sse-live", json!({})).await;
    let input = json!({ "op": "stream", "count": 1_000, "delay_ms": 300 });
    let job = host.client.submit(&endpoint, input).await;
    let path = host.client.path(&endpoint, &format!("stream/{job}"));
    let request = host.client.request(Method::GET, &path).header("accept", "text/event-stream");
    let mut body = request.send().await.unwrap().bytes_stream();
    let (mut text, mut is_cancelled) = (String::new(), false);
    while let Some(bytes) = body.next().await {
        text.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
        let has_chunk = parse_events(&text).iter().any(|event| event.id.is_some());
        if has_chunk && !is_cancelled {
            let running = host.client.status(&endpoint, &job).await.ok();
            assert_eq!(running["status"], "IN_PROGRESS", "the job runs for 300 s: {running}");
            host.client.cancel(&endpoint, &job).await.ok();
            is_cancelled = true;
        }
    }
    assert!(is_cancelled, "no event has a chunk: {text}");
    let end = parse_events(&text).pop().unwrap_or_default();
    assert_eq!(end.kind, "end", "{text}");
    assert_eq!(data(&end)["status"], "CANCELLED");
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

/// All events of a job's stream for a reader whose last event was `last`.
async fn resumed(client: &Client, endpoint: &str, job: &str, last: Option<&str>) -> Vec<Event> {
    let path = client.path(endpoint, &format!("stream/{job}?from=0"));
    let mut request = client.request(Method::GET, &path).header("accept", "text/event-stream");
    if let Some(last) = last {
        request = request.header("last-event-id", last);
    }
    let answer = client.send(request).await;
    chunk_events(&answer, job, "FAILED")
}

fn ids(events: &[Event]) -> Vec<&str> {
    events.iter().filter_map(|event| event.id.as_deref()).collect()
}

/// Submits a job that emits four chunks and fails.
async fn failed_stream(client: &Client, endpoint: &str) -> String {
    let input = json!({ "op": "emit", "values": [0, 1, 2, 3], "message": "no flour" });
    let job = client.submit(endpoint, input).await;
    client.until(endpoint, &job, "FAILED").await;
    job
}

#[tokio::test]
async fn a_reader_of_an_earlier_attempt_gets_the_next_one_from_its_start() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sse-attempts", json!({})).await;
    let job = failed_stream(&host.client, &endpoint).await;
    let first = resumed(&host.client, &endpoint, &job, None).await;
    assert_eq!(ids(&first), ["0", "1", "2", "3"]);

    host.client.retry(&endpoint, &job).await.ok();
    host.client.until(&endpoint, &job, "FAILED").await;
    for last in ["1", "3", "1-1", "7-1"] {
        let events = resumed(&host.client, &endpoint, &job, Some(last)).await;
        assert_eq!(events[0].kind, "restart", "{last}");
        assert_eq!(data(&events[0]), json!({ "id": job, "attempt": 2 }));
        assert_eq!(ids(&events), ["2-0", "2-1", "2-2", "2-3"], "{last}");
        assert_eq!(data(&events[1])["metrics"]["stream_index"], 0);
    }
    let events = resumed(&host.client, &endpoint, &job, Some("2-1")).await;
    assert_eq!((ids(&events), events.len()), (vec!["2-2", "2-3"], 2), "the same attempt");
    let events = resumed(&host.client, &endpoint, &job, None).await;
    assert_eq!((ids(&events)[0], events.len()), ("2-0", 4), "a new reader has nothing to discard");

    let path = host.client.path(&endpoint, &format!("stream/{job}"));
    let request = host.client.request(Method::GET, &path).header("accept", "text/event-stream");
    let refused = host.client.send(request.header("last-event-id", "2-x")).await.refused(400);
    assert!(refused.contains("such as `2-30`"), "{refused}");
}

#[tokio::test]
async fn an_event_stream_goes_on_with_the_next_attempt_of_a_job_that_waits() {
    let host = clocked_host();
    let endpoint = host.deploy(&guests::playground(), "sse-waits", json!({})).await;
    let job = failed_stream(&host.client, &endpoint).await;
    let settings = format!("/v1/endpoints/{endpoint}");
    host.client.patch(&settings, &json!({ "workersMax": 0 })).await.ok();
    host.client.retry(&endpoint, &job).await.ok();
    let reader = tokio::spawn({
        let (client, endpoint, job) = (host.client.clone(), endpoint.clone(), job.clone());
        async move { resumed(&client, &endpoint, &job, Some("2")).await }
    });
    host.client.calls_waiting(1).await;
    host.client.patch(&settings, &json!({ "workersMax": 1 })).await.ok();
    let events = reader.await.unwrap();
    let restarts = events.iter().filter(|event| event.kind == "restart").count();
    assert_eq!((restarts, ids(&events)), (1, vec!["2-0", "2-1", "2-2", "2-3"]));
}

/// Each of the four chunks names its attempt, unless it is the first.
fn assert_marks(chunks: &Value, attempt: &str) {
    let chunks = chunks.as_array().unwrap();
    let expected = (attempt != "1").then(|| attempt.parse::<u64>().unwrap());
    let marks = chunks.iter().map(|chunk| chunk["metrics"]["stream_attempt"].as_u64());
    assert_eq!(marks.collect::<Vec<_>>(), [expected; 4], "{chunks:?}");
}

#[tokio::test]
async fn pages_name_their_attempt_and_each_attempt_is_delivered_whole() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sse-pages", json!({})).await;
    let job = failed_stream(&host.client, &endpoint).await;
    for attempt in ["1", "2", "3"] {
        let page = host.client.stream(&endpoint, &job).await;
        assert_eq!(page.header("x-stream-attempt"), Some(attempt), "{page:?}");
        assert_eq!(page.header("x-stream-next"), Some("4"), "{page:?}");
        assert_marks(&page.ok(), attempt);
        let object = host.client.sdk().stream(&endpoint, &format!("{job}?from=0")).await.ok();
        assert_marks(&object["stream"], attempt);
        assert_eq!(host.client.stream(&endpoint, &job).await.ok(), json!([]));
        host.client.retry(&endpoint, &job).await.ok();
        host.client.until(&endpoint, &job, "FAILED").await;
    }
}

/// A reader can tell the end of the job from the end of a connection.
#[tokio::test]
async fn the_events_of_a_job_that_is_deleted_end_with_an_event() {
    let host = clocked_host();
    let endpoint =
        host.deploy(&guests::playground(), "sse-deleted", json!({ "workersMax": 0 })).await;
    let job = host.client.submit(&endpoint, json!({ "op": "echo" })).await;
    let path = host.client.path(&endpoint, &format!("stream/{job}"));
    let request = host.client.request(Method::GET, &path).header("accept", "text/event-stream");
    let reader = tokio::spawn({
        let client = host.client.clone();
        async move { client.send(request).await }
    });
    host.client.calls_waiting(1).await;
    host.client.purge(&endpoint).await.ok();
    let events = parse_events(&reader.await.unwrap().text);
    let last = events.last().unwrap();
    assert_eq!((last.kind.as_str(), &data(last)["id"]), ("deleted", &json!(job)), "{events:?}");
}
