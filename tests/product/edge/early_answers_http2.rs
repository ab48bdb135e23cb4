//! Answers on HTTP/2 that are ready before the request's body has arrived: the host reads a short
//! body first, so that no stream is reset. Some clients, such as curl 7.88, lose an answer whose
//! stream is reset after it.

use std::time::{Duration, Instant};

use gristmill_tests::http2::{Event, HEADER_TABLE_SIZE, Http2};
use gristmill_tests::{TestHost, guests, shared_host};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::sleep;

/// An error code of RFC 9113.
const NO_ERROR: u32 = 0;

const BODY: &str = r#"{"input":{"grain":1}}"#;

async fn begin(host: &TestHost) -> Http2<TcpStream> {
    let stream = TcpStream::connect(host.address()).await.unwrap();
    stream.set_nodelay(true).unwrap();
    // Without a table of headers, each answer begins with its status itself.
    Http2::begin_with(stream, &[(HEADER_TABLE_SIZE, 0)]).await
}

/// Calls whose answers do not depend on their bodies: the method, the path and the status.
fn early(endpoint: &str) -> Vec<(&'static str, String, u16)> {
    vec![
        ("POST", "/v2/none/run".to_owned(), 404),
        ("POST", "/nowhere".to_owned(), 404),
        ("PUT", format!("/v2/{endpoint}/run"), 405),
        ("POST", "/v1/templates?dryrun=true".to_owned(), 400),
        ("PUT", "/v1/handlers/mill:1?dryRun=true".to_owned(), 400),
        // This operation ignores its body, and succeeds.
        ("GET", format!("/v2/{endpoint}/health"), 200),
    ]
}

#[tokio::test]
async fn a_refusal_before_a_small_body_arrives_whole_and_without_a_reset() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "early-http2", json!({})).await;
    let authorization = format!("Bearer {}", host.admin_key());
    let length = BODY.len().to_string();
    let fields = [("authorization", authorization.as_str()), ("content-length", length.as_str())];
    let mut connection = begin(&host).await;
    let mut stream = 1;
    for (method, path, status) in early(&endpoint) {
        // The body follows the head at once, or when the refusal was ready long ago.
        for delay in [None; 20].into_iter().chain([Some(Duration::from_millis(20)); 5]) {
            let what = format!("{method} {path}, {delay:?}, stream {stream}");
            match delay {
                None => connection.call(stream, method, &path, &fields, BODY).await,
                Some(delay) => {
                    connection.begin_call(stream, method, &path, &fields).await;
                    sleep(delay).await;
                    connection.end_body(stream, BODY).await;
                }
            }
            // A reset of this stream would come before the next answer.
            let answer = connection.whole_answer(stream).await;
            let (code, body) = answer.unwrap_or_else(|event| panic!("{what}: {event:?}"));
            assert_eq!(code, status, "{what}: {body}");
            let document: Value = serde_json::from_str(&body).unwrap();
            assert_eq!(document["error"].is_string(), status != 200, "{what}: {body}");
            stream += 2;
        }
    }
    connection.get(stream, "/livez", &[]).await;
    let last = connection.whole_answer(stream).await;
    assert!(matches!(last, Ok((200, _))), "{last:?}");
}

/// A client that does not send its body waits for at most a second, and other streams do not wait
/// for it.
#[tokio::test]
async fn a_body_that_never_comes_delays_its_own_answer_alone() {
    let host = shared_host();
    let authorization = format!("Bearer {}", host.admin_key());
    let fields = [("authorization", authorization.as_str()), ("content-length", "9")];
    let mut connection = begin(&host).await;
    let begun = Instant::now();
    connection.post_without_body(1, "/v2/none/run", &fields).await;
    connection.get(3, "/livez", &[]).await;
    let other = connection.whole_answer(3).await;
    assert!(matches!(other, Ok((200, _))), "{other:?}");
    let refused = connection.whole_answer(1).await;
    assert!(matches!(refused, Ok((404, _))), "{refused:?}");
    assert!(begun.elapsed() > Duration::from_millis(900), "{:?}", begun.elapsed());
    // The host needs no more of the body.
    assert_eq!(connection.next().await, Event::Reset { stream: 1, code: NO_ERROR });
}
