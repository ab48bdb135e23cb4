//! Answers that are sent before the request's body has been read: on HTTP/1.1 the client reads each
//! of them, and either the connection serves the next call or the answer announces its close.

use std::time::Duration;

use gristmill_tests::{PATIENCE, TestHost, WireAnswer, guests, next_answer, shared_host};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const CLOSE: Option<&str> = Some("close");

/// A call whose answer does not depend on its body.
#[derive(Debug, Clone)]
struct Early {
    method: &'static str,
    path: String,
    /// The value of `Authorization`.
    authorization: String,
    status: u16,
}

fn early(method: &'static str, path: &str, authorization: &str, status: u16) -> Early {
    Early { method, path: path.to_owned(), authorization: authorization.to_owned(), status }
}

/// Each part of the host that answers without reading the body.
fn all_early(endpoint: &str, key: &str) -> Vec<Early> {
    let valid = format!("Bearer {key}");
    let run = format!("/v2/{endpoint}/run");
    vec![
        early("POST", &run, "Bearer wrong", 401),
        early("POST", "/v2/none/run", &valid, 404),
        early("POST", "/v2/none/openai/v1/chat/completions", &valid, 404),
        early("POST", "/nowhere", &valid, 404),
        early("POST", "/v1/nowhere", &valid, 404),
        early("POST", "/v1/templates", "Bearer wrong", 401),
        early("PUT", &run, &valid, 405),
        early("POST", "/v2/mill/blobs/uploads/", "Bearer wrong", 401),
        early("POST", "/v2/sp%20ace/blobs/uploads/", &valid, 400),
        early("PUT", "/v2/sp%20ace/manifests/1", &valid, 400),
        early("PATCH", "/v2/mill/blobs/uploads/0", &valid, 404),
        // This operation ignores its body, and succeeds.
        early("GET", &format!("/v2/{endpoint}/health"), &valid, 200),
    ]
}

fn head(call: &Early, headers: &str) -> String {
    let Early { method, path, authorization, .. } = call;
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: {authorization}\r\n{headers}\r\n"
    )
}

fn length(bytes: usize) -> String {
    format!("content-length: {bytes}\r\n")
}

async fn connect(host: &TestHost) -> TcpStream {
    let stream = TcpStream::connect(host.address()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

async fn answer(reader: &mut (impl AsyncRead + Unpin), what: &str) -> WireAnswer {
    let answer = timeout(PATIENCE, next_answer(reader)).await.expect("the host answers");
    answer.unwrap_or_else(|| panic!("{what}: the connection ended without an answer"))
}

/// Runs a job on the same connection.
async fn serves_the_next_call(stream: &mut TcpStream, endpoint: &str, key: &str, what: &str) {
    let call = early("POST", &format!("/v2/{endpoint}/runsync"), &format!("Bearer {key}"), 200);
    let body = "{\"input\":{}}";
    let text = format!("{}{body}", head(&call, &length(body.len())));
    stream.write_all(text.as_bytes()).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(answer(stream, what).await.status, 200, "{what}");
}

/// The host closes in order: an end, and no reset, which could destroy the answer.
async fn ends_without_reset(reader: &mut (impl AsyncRead + Unpin), what: &str) {
    let mut rest = vec![];
    let end = timeout(PATIENCE, reader.read_to_end(&mut rest)).await.expect("the host closes");
    assert!(end.is_ok(), "{what}: {end:?}");
    assert_eq!(rest, b"", "{what}");
}

#[tokio::test]
async fn a_short_rest_of_a_body_is_read_and_the_connection_stays_open() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "early-short", json!({})).await;
    let key = host.admin_key();
    for call in all_early(&endpoint, key) {
        // The body follows the head as one write, as two, and in chunks.
        for shape in ["together", "apart", "chunked"] {
            let what = format!("{call:?}, {shape}");
            let body = vec![b'x'; 100_000];
            let mut stream = connect(&host).await;
            if shape == "chunked" {
                let mut bytes = head(&call, "transfer-encoding: chunked\r\n").into_bytes();
                bytes.extend(format!("{:x}\r\n", body.len()).into_bytes());
                bytes.extend(&body);
                bytes.extend(b"\r\n0\r\n\r\n");
                stream.write_all(&bytes).await.unwrap();
            } else {
                let mut bytes = head(&call, &length(body.len())).into_bytes();
                if shape == "apart" {
                    stream.write_all(&bytes).await.unwrap();
                    bytes.clear();
                    // The subject: a body that comes after the answer.
                    sleep(Duration::from_millis(20)).await;
                }
                bytes.extend(&body);
                stream.write_all(&bytes).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            let refused = answer(&mut stream, &what).await;
            assert_eq!(refused.status, call.status, "{what}: {refused:?}");
            assert_eq!(refused.header("connection"), None, "{what}");
            serves_the_next_call(&mut stream, &endpoint, key, &what).await;
        }
    }
}

#[tokio::test]
async fn a_call_beyond_its_limit_leaves_the_connection_to_the_next() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "early-limited", json!({})).await;
    let key = host.admin_key();
    let mut stream = connect(&host).await;
    for status in [200, 200, 429] {
        let path = format!("/v2/{endpoint}/purge-queue");
        let call = early("POST", &path, &format!("Bearer {key}"), status);
        let mut bytes = head(&call, &length(100_000)).into_bytes();
        bytes.extend(vec![b'x'; 100_000]);
        stream.write_all(&bytes).await.unwrap();
        assert_eq!(answer(&mut stream, "purge-queue").await.status, status);
    }
    serves_the_next_call(&mut stream, &endpoint, key, "after 429").await;
}

/// A client that reads nothing before it has sent everything, like Python's `urllib`.
#[tokio::test]
async fn a_large_body_is_taken_before_the_connection_ends() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "early-large", json!({})).await;
    let mut calls = all_early(&endpoint, host.admin_key());
    let submission = format!("Bearer {}", host.admin_key());
    calls.push(early("POST", &format!("/v2/{endpoint}/run"), &submission, 413));
    for call in calls {
        let (what, bytes) = (format!("{call:?}"), 11 << 20);
        let (mut reader, mut writer) = connect(&host).await.into_split();
        writer.write_all(head(&call, &length(bytes)).as_bytes()).await.unwrap();
        let piece = vec![b'x'; 64 << 10];
        for _ in 0..bytes / piece.len() {
            writer.write_all(&piece).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        }
        let refused = answer(&mut reader, &what).await;
        assert_eq!((refused.status, refused.header("connection")), (call.status, CLOSE), "{what}");
        ends_without_reset(&mut reader, &what).await;
    }
}

/// A client that reads while it writes, in pieces of 4 KiB, like Go's `net/http`: it uses the
/// answer of whichever ends first, and an error of either is the call's error.
#[tokio::test]
async fn a_client_that_reads_and_writes_at_once_gets_its_answer() {
    let host = shared_host();
    let key = host.admin_key();
    let endpoint = host.deploy(&guests::echo(), "early-both", json!({})).await;
    for bytes in [5_000, 100_000, 1 << 20, 5 << 20] {
        for _ in 0..5 {
            let call = early("POST", "/v2/none/run", &format!("Bearer {key}"), 404);
            let (mut reader, mut writer) = connect(&host).await.into_split();
            let text = head(&call, &length(bytes));
            let writing = async move {
                writer.write_all(text.as_bytes()).await?;
                for piece in vec![b'x'; bytes].chunks(4 << 10) {
                    writer.write_all(piece).await?;
                }
                Ok::<_, std::io::Error>(writer)
            };
            let what = format!("{bytes} bytes");
            let (written, refused) = tokio::join!(writing, answer(&mut reader, &what));
            let writer = written.unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(refused.status, 404, "{what}");
            let mut stream = reader.reunite(writer).unwrap();
            match refused.header("connection") {
                CLOSE => ends_without_reset(&mut stream, &what).await,
                _ => serves_the_next_call(&mut stream, &endpoint, key, &what).await,
            }
        }
    }
}

/// The client asks before it sends its body, and is not asked to continue.
#[tokio::test]
async fn a_body_that_waits_for_100_continue_is_not_requested() {
    let host = shared_host();
    let expects = format!("{}expect: 100-continue\r\n", length(100));
    for is_sent_anyway in [false, true] {
        let call = early("POST", "/v2/none/run", "Bearer wrong", 401);
        let mut stream = connect(&host).await;
        stream.write_all(head(&call, &expects).as_bytes()).await.unwrap();
        let refused = answer(&mut stream, "expect").await;
        assert_eq!((refused.status, refused.header("connection")), (401, CLOSE));
        if is_sent_anyway {
            stream.write_all(&[b'x'; 100]).await.unwrap();
        }
        ends_without_reset(&mut stream, "expect").await;
    }
}

/// Heads that HTTP itself refuses, with more bytes behind them than the host reads.
#[tokio::test]
async fn a_refused_head_is_answered_however_much_follows() {
    let host = shared_host();
    let large = format!("GET / HTTP/1.1\r\nhost: x\r\nx-large: {}", "x".repeat(4 << 20));
    let malformed = format!("GET / HTTP/1.1\r\nno header\r\n\r\n{}", "x".repeat(4 << 20));
    for (bytes, status) in [(large, 431), (malformed, 400)] {
        let (mut reader, mut writer) = connect(&host).await.into_split();
        let written = writer.write_all(bytes.as_bytes()).await;
        written.unwrap_or_else(|error| panic!("{status}: {error}"));
        assert_eq!(answer(&mut reader, "a head").await.status, status);
        ends_without_reset(&mut reader, "a head").await;
    }
}

/// Reading for a refused client is bounded: in time when it stops, in bytes when it does not.
#[tokio::test]
async fn a_refused_client_cannot_hold_the_connection() {
    let host = shared_host();
    let call = early("POST", "/v2/none/run", "Bearer wrong", 401);
    let mut stalled = connect(&host).await;
    stalled.write_all(head(&call, &length(100)).as_bytes()).await.unwrap();
    let refused = answer(&mut stalled, "stalled").await;
    assert_eq!((refused.status, refused.header("connection")), (401, CLOSE));
    ends_without_reset(&mut stalled, "stalled").await;

    let (mut reader, mut writer) = connect(&host).await.into_split();
    writer.write_all(head(&call, &length(1 << 40)).as_bytes()).await.unwrap();
    assert_eq!(answer(&mut reader, "endless").await.status, 401);
    let piece = vec![b'x'; 1 << 20];
    let endless = async { while writer.write_all(&piece).await.is_ok() {} };
    timeout(PATIENCE, endless).await.expect("the host stops reading");
}
