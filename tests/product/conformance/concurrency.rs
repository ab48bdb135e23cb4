//! Caps on concurrent calls. A call counts until the client has read the last byte of its answer.
//! The tests therefore use HTTP/2 streams with a window of zero: the answers are ready, and are
//! never read.

use gristmill_tests::http2::{Event, Http2, INITIAL_WINDOW_SIZE};
use gristmill_tests::{Answer, TestHost, eventually};
use reqwest::Method;
use serde_json::json;
use tokio::net::TcpStream;

use crate::support::{Endpoint, echo, paused, shared};

/// Calls on one connection.
const CALLS_PER_CONNECTION: usize = 100;

/// Makes `count` calls and leaves their answers unread while the connection is open. All of them
/// have been admitted when this returns.
async fn hold(
    host: &TestHost,
    method: &Method,
    path: &str,
    body: &str,
    count: usize,
) -> Http2<TcpStream> {
    let stream = TcpStream::connect(host.address()).await.unwrap();
    let mut connection = Http2::begin_with(stream, &[(INITIAL_WINDOW_SIZE, 0)]).await;
    let fields = [("authorization", host.admin_key())];
    let streams = (1_u32..).step_by(2).take(count);
    for stream in streams {
        connection.call(stream, method.as_str(), path, &fields, body).await;
    }
    let mut answered = 0;
    while answered < count {
        match connection.next().await {
            Event::Status { status: 200, .. } => answered += 1,
            other => panic!("{other:?}"),
        }
    }
    connection
}

/// Asserts that exactly `cap` calls may be concurrent, and that another one is admitted when one of
/// them has ended.
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
