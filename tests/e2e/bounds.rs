//! The sizes of requests: 10 MiB for `/run`, 20 MiB for `/runsync`.

use std::time::Duration;

use gristmill_tests::{Shared, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

const MIB: usize = 1 << 20;

/// Sends a request's head only, and returns the head and body of what comes back meanwhile.
async fn answer_to_head(
    host: &Shared,
    path: &str,
    content_length: usize,
) -> Option<(String, Value)> {
    let mut connection = TcpStream::connect(host.address()).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {content_length}\r\n\r\n",
        host.admin_key()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut text = vec![];
    let mut buffer = [0; 4096];
    while let Ok(Ok(count @ 1..)) =
        timeout(Duration::from_millis(1_000), connection.read(&mut buffer)).await
    {
        text.extend_from_slice(&buffer[..count]);
    }
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n")?;
    Some((head.to_owned(), serde_json::from_str(body).unwrap()))
}

#[tokio::test]
async fn an_announced_size_over_the_limit_is_refused_before_a_byte_is_read() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "bounds-announced", json!({})).await;
    for (operation, limit) in [("run", 10 * MIB), ("runsync", 20 * MIB)] {
        let path = host.client.path(&endpoint, operation);
        let (head, body) = answer_to_head(&host, &path, limit + 1).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
        assert!(body["error"].as_str().unwrap().contains(&limit.to_string()), "{body}");
        assert!(body["code"].is_string() && body.get("status").is_none(), "{body}");
        assert_eq!(answer_to_head(&host, &path, limit).await, None, "the limit itself is allowed");
    }
}

/// A submission of exactly this many bytes.
fn submission(bytes: usize) -> String {
    let frame = r#"{"input":{"op":"sleep","ms":1,"unread":""}}"#;
    let (start, end) = frame.split_at(frame.len() - 3);
    format!("{start}{}{end}", "x".repeat(bytes - frame.len()))
}

#[tokio::test]
async fn a_body_of_the_largest_size_is_taken_and_one_byte_more_is_not() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "bounds-sizes", json!({})).await;
    let run = host.client.path(&endpoint, "run");
    let accepted = host.client.post_text(&run, submission(10 * MIB)).await.ok();
    host.client.until(&endpoint, accepted["id"].as_str().unwrap(), "COMPLETED").await;
    let run_sync = host.client.path(&endpoint, "runsync");
    let answer = host.client.post_text(&run_sync, submission(20 * MIB)).await.ok();
    assert_eq!(answer["status"], "COMPLETED", "{answer}");
    let answer = host.client.post_text(&run_sync, submission(10 * MIB + 1)).await.ok();
    assert_eq!(answer["status"], "COMPLETED", "{answer}");
}

#[tokio::test]
async fn a_body_without_an_announced_size_is_refused_while_it_is_read() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "bounds-chunked", json!({})).await;
    let pieces = futures::stream::iter((0..11).map(|_| Ok::<_, std::io::Error>("x".repeat(MIB))));
    let request = host.client.request(Method::POST, &host.client.path(&endpoint, "run"));
    let answer = host.client.try_send(request.body(reqwest::Body::wrap_stream(pieces))).await;
    // A client that is still writing may see the connection close instead of the answer.
    if let Ok(answer) = answer {
        answer.refused(413);
    }
    let health = host.client.health(&endpoint).await;
    assert_eq!(health["jobs"]["inQueue"], 0, "{health}");
}
