//! Heads that violate HTTP but that an HTTP library accepts: each is refused, in the format of the
//! path's API.

use gristmill_tests::{PATIENCE, TestHost, WireAnswer, guests, next_answer, shared_host};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Sends a head and a body, and reads the answer.
async fn send(host: &TestHost, call: &str, headers: &str, body: &[u8]) -> WireAnswer {
    let mut stream = TcpStream::connect(host.address()).await.unwrap();
    let length = body.len();
    let head = format!("{call} HTTP/1.1\r\n{headers}content-length: {length}\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let answer = timeout(PATIENCE, next_answer(&mut stream)).await.expect("the host answers");
    answer.unwrap_or_else(|| panic!("no answer to {call} with {headers}"))
}

fn json(answer: &WireAnswer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

fn authorization(host: &TestHost) -> String {
    format!("authorization: Bearer {}\r\n", host.admin_key())
}

#[tokio::test]
async fn a_host_header_is_there_once_and_in_order() {
    let host = shared_host();
    let key = authorization(&host);
    let hosts = [
        ("", "is missing"),
        ("host: localhost\r\nhost: evil.example\r\n", "more than once"),
        ("host: localhost\r\nhost: localhost\r\n", "more than once"),
        ("host: a b\r\n", "must be a name or an address"),
        ("host: user@localhost\r\n", "must be a name or an address"),
    ];
    for (lines, word) in hosts {
        let headers = format!("{lines}{key}");
        for call in ["GET /openapi.json", "GET /v2/none/health"] {
            let refused = send(&host, call, &headers, b"").await;
            assert_eq!(refused.status, 400, "{call} {lines}: {refused:?}");
            let body = json(&refused);
            assert_eq!(body["code"], "bad_request");
            assert!(body["error"].as_str().unwrap().contains(word), "{body}");
        }
        let management = json(&send(&host, "GET /v1/templates", &headers, b"").await);
        assert_eq!(management["message"], management["error"], "{management}");
        let openai = json(&send(&host, "GET /v2/none/openai/v1/models", &headers, b"").await);
        assert_eq!(openai["error"]["type"], "invalid_request_error", "{openai}");
        let registry = json(&send(&host, "GET /v2/mill/manifests/1", &headers, b"").await);
        assert!(registry["errors"][0]["message"].as_str().unwrap().contains(word), "{registry}");
    }
    let headers = format!("host: [::1]:8080\r\n{key}");
    assert_eq!(send(&host, "GET /openapi.json", &headers, b"").await.status, 200);
}

#[tokio::test]
async fn one_key_is_taken() {
    let host = shared_host();
    let headers = format!("host: x\r\n{}authorization: Bearer wrong\r\n", authorization(&host));
    let refused = send(&host, "GET /v1/templates", &headers, b"").await;
    assert_eq!(refused.status, 400, "{refused:?}");
    assert!(refused.body.contains("`authorization` is given more than once"), "{refused:?}");
}

#[tokio::test]
async fn codings_that_are_not_understood_are_refused() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "heads-codings", json!({})).await;
    let headers = format!("host: x\r\n{}", authorization(&host));
    let gzip = format!("{headers}content-encoding: gzip\r\n");
    for call in [
        format!("POST /v2/{endpoint}/runsync"),
        format!("POST /v2/{endpoint}/openai/v1/models"),
        "POST /v1/templates".to_owned(),
        "PUT /v1/handlers/coded:1".to_owned(),
        "PUT /v2/coded/manifests/1".to_owned(),
    ] {
        let refused = send(&host, &call, &gzip, b"\x1f\x8b\x08").await;
        assert_eq!(refused.status, 415, "{call}: {refused:?}");
        assert_eq!(refused.header("accept-encoding"), Some("identity"), "{call}: {refused:?}");
        assert!(refused.body.contains("Content-Encoding"), "{call}: {refused:?}");
    }
    let identity = format!("{headers}content-encoding: identity\r\n");
    let call = format!("POST /v2/{endpoint}/runsync");
    assert_eq!(send(&host, &call, &identity, b"{\"input\":{}}").await.status, 200);

    let mut stream = TcpStream::connect(host.address()).await.unwrap();
    let chunks = "c\r\n{\"input\":{}}\r\n0\r\n\r\n";
    let text =
        format!("{call} HTTP/1.1\r\n{headers}transfer-encoding: gzip, chunked\r\n\r\n{chunks}");
    stream.write_all(text.as_bytes()).await.unwrap();
    let refused = timeout(PATIENCE, next_answer(&mut stream)).await.unwrap().unwrap();
    assert_eq!((refused.status, &json(&refused)["code"]), (501, &"not_implemented".into()));
}

#[tokio::test]
async fn a_head_has_100_lines_at_most() {
    let host = shared_host();
    // With `host` and `content-length`.
    for (lines, status) in [(98, 200), (99, 431)] {
        let headers = format!("host: x\r\n{}", "x-line: y\r\n".repeat(lines));
        let answer = send(&host, "GET /openapi.json", &headers, b"").await;
        assert_eq!(answer.status, status, "{lines} lines: {}", answer.head);
    }
}
