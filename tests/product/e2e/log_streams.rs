//! `GET /v1/endpoints/{id}/logs` as server-sent events: how many streams there may be, and which
//! jobs they may name.

use std::sync::atomic::{AtomicUsize, Ordering};

use gristmill_client::LogQuery;
use gristmill_tests::{Client, Reply, ScriptedServer, TestHost, eventually, guests, shared_host};
use reqwest::{Method, RequestBuilder};
use serde_json::json;

/// The call that follows the lines of an endpoint, not sent yet. `query` is empty or starts with
/// `?`.
fn follow(client: &Client, endpoint: &str, query: &str) -> RequestBuilder {
    let path = format!("/v1/endpoints/{endpoint}/logs{query}");
    client.request(Method::GET, &path).header("accept", "text/event-stream")
}

#[tokio::test]
async fn the_log_streams_of_an_owner_are_bounded_together_with_its_event_streams() {
    const EVENTS: &str = "/v1/events?topics=overview";
    let host = TestHost::start_configured("[rate-limits.events]\nconcurrent = 3\n");
    let client = host.client();
    let endpoint = host.deploy(&guests::echo(), "log-streams", json!({})).await;
    let mut open = vec![];
    for request in [
        follow(&client, &endpoint, ""),
        follow(&client, &endpoint, "?tail=0"),
        client.request(Method::GET, EVENTS),
    ] {
        let stream = request.send().await.unwrap();
        assert_eq!(stream.status(), 200);
        open.push(stream);
    }
    let refused = client.send(follow(&client, &endpoint, "")).await;
    let sentence = refused.refused(429);
    assert!(sentence.contains("events and logs"), "{sentence}");
    assert!(sentence.contains("at most 3"), "{sentence}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    client.get(EVENTS).await.refused(429);
    // Lines as an array, and streams of other owners, are not bounded by them.
    client.get(&format!("/v1/endpoints/{endpoint}/logs")).await.ok();
    let other = host.client_of("other").await;
    let theirs = other.request(Method::GET, EVENTS).send().await.unwrap();
    assert_eq!(theirs.status(), 200);
    // A stream whose reader has left counts no more.
    open.clear();
    eventually("room for a stream", async || {
        let stream = follow(&client, &endpoint, "").send().await.unwrap();
        (stream.status() == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_stream_of_lines_for_a_text_that_is_no_job_id_is_refused() {
    let host = shared_host();
    let client = &host.client;
    let endpoint = host.deploy(&guests::echo(), "log-no-job", json!({})).await;
    let sentence = client.send(follow(client, &endpoint, "?job=nothing")).await.refused(404);
    assert!(sentence.starts_with("job not found"), "{sentence}");
    let lines = client.get(&format!("/v1/endpoints/{endpoint}/logs?job=nothing")).await.ok();
    assert_eq!(lines, json!([]));
    // The lines of a job outlive it, so an id may be one of a job that was deleted.
    let id = "0192f3a0-0000-7000-8000-000000000000-0000";
    let stream = follow(client, &endpoint, &format!("?job={id}")).send().await.unwrap();
    assert_eq!(stream.status(), 200);
    assert!(stream.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
}

/// Each stream ends after an hour, and other streams of the owner may have taken its place.
#[tokio::test]
async fn a_follower_continues_after_its_last_line_when_a_stream_ended_and_the_next_was_refused() {
    let calls = AtomicUsize::new(0);
    let server = ScriptedServer::start(move |_, _| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::ok("id: 7\ndata: {\"line\":1}\n\n"),
        1..=5 => Reply::with("429 Too Many Requests", &["Retry-After: 0"]),
        _ => Reply::ok("id: 9\ndata: {\"line\":2}\n\n"),
    })
    .await;
    let url = format!("http://{}", server.host()).parse().unwrap();
    let client = gristmill_client::Client::builder(url).key("gm_x").build().unwrap();
    let mut lines = client.follow_logs(&"e".parse().unwrap(), &LogQuery::default());
    for expected in [r#"{"line":1}"#, r#"{"line":2}"#] {
        assert_eq!(lines.next().await.unwrap().text(), expected);
    }
    let heads = server.heads();
    assert_eq!(heads.len(), 7);
    let continues = |head: &String| head.contains("last-event-id: 7\r\n");
    assert!(!continues(&heads[0]) && heads[1..].iter().all(continues), "{heads:?}");
}
