//! Caps on calls at one time. A call counts until the last byte of its answer has been taken, so
//! HTTP/2 streams with a window of zero hold as many places as they have calls: their answers
//! are there, and are not taken.

use std::time::Duration;

use gristmill_tests::{Answer, TestHost, eventually};
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::{Endpoint, echo, paused, shared};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// Calls on one connection.
const CALLS_PER_CONNECTION: usize = 100;

fn frame(kind: u8, flags: u8, stream: usize, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let stream = u32::try_from(stream).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream, payload].concat()
}

/// A header field as HPACK has it: a literal, with a new name, in no table.
fn field(name: &str, value: &str) -> Vec<u8> {
    assert!(name.len() < 127 && value.len() < 127, "these lengths are one byte");
    let [name_bytes, value_bytes] = [name, value].map(|text| u8::try_from(text.len()).unwrap());
    [&[0, name_bytes], name.as_bytes(), &[value_bytes], value.as_bytes()].concat()
}

/// Makes `count` calls and leaves their answers untaken for as long as the connection lives. All
/// of them have been let in when this returns.
async fn hold(host: &TestHost, method: &Method, path: &str, body: &str, count: usize) -> TcpStream {
    let mut connection = TcpStream::connect(host.address()).await.unwrap();
    let no_window = [0, 4, 0, 0, 0, 0]; // SETTINGS_INITIAL_WINDOW_SIZE
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &no_window));
    let fields = [
        field(":method", method.as_str()),
        field(":scheme", "http"),
        field(":path", path),
        field(":authority", "localhost"),
        field("authorization", host.admin_key()),
    ]
    .concat();
    for call in 0..count {
        let stream = 2 * call + 1;
        bytes.extend(frame(HEADERS, END_HEADERS, stream, &fields));
        bytes.extend(frame(DATA, END_STREAM, stream, body.as_bytes()));
    }
    connection.write_all(&bytes).await.unwrap();
    let mut answered = 0;
    while answered < count {
        let mut head = [0; 9];
        let reading = connection.read_exact(&mut head);
        timeout(Duration::from_secs(30), reading).await.unwrap().unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        connection.read_exact(&mut payload).await.unwrap();
        if head[3] == HEADERS {
            // HPACK's index 8, after changes of the table's size, is the status 200.
            let status = payload.iter().find(|byte| **byte & 0xe0 != 0x20);
            assert_eq!(status, Some(&0x88), "{payload:x?}");
            answered += 1;
        }
    }
    connection
}

/// Asserts that exactly `cap` calls may be under way at one time, and that a place is free again
/// when one of them is gone.
async fn assert_cap(
    endpoint: &Endpoint<gristmill_tests::Shared>,
    method: Method,
    rest: &str,
    body: &str,
    cap: usize,
) {
    let path = endpoint.path(rest);
    let per_connection = CALLS_PER_CONNECTION.min(cap / 2);
    let mut held = vec![];
    for _ in 0..cap / per_connection {
        held.push(hold(&endpoint.host, &method, &path, body, per_connection).await);
    }
    let call = async || -> Answer {
        let request = endpoint.client.request(method.clone(), &path);
        endpoint.client.send(request.body(body.to_owned())).await
    };
    let refused = call().await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.text.contains(&format!("at most {cap}")), "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    assert!(refused.header("ratelimit").unwrap().contains(";r=0;"), "{refused:?}");
    let policy = format!(";q={cap};qu=\"concurrent-requests\"");
    assert!(refused.header("ratelimit-policy").unwrap().ends_with(&policy), "{refused:?}");
    held.pop();
    eventually("a place to be free", async || (call().await.status == 200).then_some(())).await;
}

fn submission() -> String {
    json!({ "input": echo() }).to_string()
}

/// /run: 200 at one time.
#[tokio::test]
async fn run() {
    let endpoint = shared("concurrency-run", paused()).await;
    assert_cap(&endpoint, Method::POST, "run", &submission(), 200).await;
}

/// /runsync: 400 at one time.
#[tokio::test]
async fn runsync() {
    let endpoint = shared("concurrency-runsync", json!({})).await;
    assert_cap(&endpoint, Method::POST, "runsync", &submission(), 400).await;
}

/// /status: 400 at one time.
#[tokio::test]
async fn status() {
    let endpoint = shared("concurrency-status", paused()).await;
    let job = endpoint.submit(echo()).await;
    assert_cap(&endpoint, Method::GET, &format!("status/{job}"), "", 400).await;
}

/// /stream: 400 at one time.
#[tokio::test]
async fn stream() {
    let endpoint = shared("concurrency-stream", paused()).await;
    let job = endpoint.submit(echo()).await;
    assert_cap(&endpoint, Method::GET, &format!("stream/{job}?wait=0"), "", 400).await;
}

/// /cancel: 20 at one time.
#[tokio::test]
async fn cancel() {
    let endpoint = shared("concurrency-cancel", paused()).await;
    let job = endpoint.submit(echo()).await;
    assert_cap(&endpoint, Method::POST, &format!("cancel/{job}"), "", 20).await;
}

/// /openai/*: 400 at one time.
#[tokio::test]
async fn openai() {
    let endpoint = shared("concurrency-openai", json!({})).await;
    assert_cap(&endpoint, Method::POST, "openai/v1/echo", &echo().to_string(), 400).await;
}

/// /requests: 2 at one time.
#[tokio::test]
async fn requests() {
    let endpoint = shared("concurrency-requests", paused()).await;
    assert_cap(&endpoint, Method::GET, "requests", "", 2).await;
}
