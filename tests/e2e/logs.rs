//! Log lines of handlers, live.

use std::time::Instant;

use gristmill_tests::{PATIENCE, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::timeout;

fn lines(document: &Value) -> Vec<&str> {
    document.as_array().unwrap().iter().map(|line| line["line"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn lines_are_read_and_followed() {
    let host = shared_host();
    let [loud, other] = ["logs-loud", "logs-other"];
    for name in [loud, other] {
        host.deploy(&guests::playground(), name, json!({ "workersMax": 1 })).await;
    }
    let say = async |endpoint: &str, text: &str| {
        let document = host.client.finish(endpoint, json!({ "op": "log", "message": text })).await;
        document["id"].as_str().unwrap().to_owned()
    };
    let first = say(loud, "one").await;
    say(other, "elsewhere").await;
    let second = say(loud, "two\u{1b}[2J").await;
    let path = format!("/v1/endpoints/{loud}/logs");
    let all = host.client.get(&path).await.ok();
    assert_eq!(lines(&all), ["one", "two[2J"], "{all}");
    assert_eq!((&all[1]["jobId"], &all[1]["level"]), (&json!(second), &json!("info")), "{all}");
    let of_first = host.client.get(&format!("{path}?job={first}")).await.ok();
    assert_eq!(lines(&of_first), ["one"]);
    assert_eq!(lines(&host.client.get(&format!("{path}?tail=1")).await.ok()), ["two[2J"]);

    // The newest existing line, then new ones.
    let request = host.client.request(Method::GET, &format!("{path}?tail=1"));
    let mut events = request.header("accept", "text/event-stream").send().await.unwrap();
    let mut seen = String::new();
    say(loud, "three").await;
    while !seen.contains("three") {
        let part = timeout(PATIENCE, events.chunk()).await.expect("lines come").unwrap();
        seen += &String::from_utf8_lossy(&part.expect("the stream goes on"));
    }
    assert!(seen.contains("two[2J") && !seen.contains("\"one\"") && !seen.contains("elsewhere"));
    // A client that reconnects continues after the last line that it has seen.
    let id = format!("id: {}\n", all[1]["number"]);
    assert!(seen.contains(&id), "{seen}");
    let request = host.client.request(Method::GET, &path);
    let request = request.header("last-event-id", all[1]["number"].to_string());
    assert_eq!(lines(&host.client.send(request).await.ok()), ["three"]);

    for query in ["tail=10001", "tail=-1", "job=no%20id"] {
        host.client.get(&format!("{path}?{query}")).await.refused(400);
    }
    host.client.get("/v1/endpoints/logs-none/logs").await.refused(404);
}

/// Comments come every 15 s, as long as there is nothing else to send.
#[tokio::test]
async fn a_follower_of_a_silent_endpoint_sees_no_lines_of_a_loud_one() {
    let host = shared_host();
    let [silent, loud] = ["logs-silent", "logs-noisy"];
    for name in [silent, loud] {
        host.deploy(&guests::playground(), name, json!({ "workersMax": 1 })).await;
    }
    let begun = Instant::now();
    let path = format!("/v1/endpoints/{silent}/logs");
    let request = host.client.request(Method::GET, &path);
    let mut events = request.header("accept", "text/event-stream").send().await.unwrap();
    // Lines of 64 bytes.
    host.client.finish(loud, json!({ "op": "stdout", "bytes": 64_000 })).await;
    let noise = host.client.get(&format!("/v1/endpoints/{loud}/logs?tail=10000")).await.ok();
    assert_eq!(lines(&noise).len(), 1_000);
    host.client.finish(silent, json!({ "op": "log", "message": "at last" })).await;
    let mut seen = String::new();
    while !seen.contains("at last") {
        let part = timeout(PATIENCE, events.chunk()).await.expect("lines come").unwrap();
        seen += &String::from_utf8_lossy(&part.expect("the stream goes on"));
    }
    let comments = seen.lines().filter(|line| line.starts_with(':')).count() as u64;
    assert!(comments <= begun.elapsed().as_secs() / 15, "{comments} comments: {seen}");
}
