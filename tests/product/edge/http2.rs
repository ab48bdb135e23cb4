//! The bounds of one HTTP/2 connection.

use std::time::Duration;

use futures::future::join_all;
use gristmill_tests::http2::{
    ENHANCE_YOUR_CALM, Event, Http2, INITIAL_WINDOW_SIZE, REFUSED_STREAM,
};
use gristmill_tests::{TestHost, guests, shared_host};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const MAX_CONCURRENT_STREAMS: u16 = 3;
const STREAMS_MAX: u32 = 256;

async fn begin(host: &TestHost) -> Http2<TcpStream> {
    Http2::begin(TcpStream::connect(host.address()).await.unwrap()).await
}

#[tokio::test]
async fn streams_beyond_the_bound_are_refused() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "http2-streams", json!({})).await;
    let mut connection = begin(&host).await;
    let settings = connection.settings().await;
    assert_eq!(settings.get(&MAX_CONCURRENT_STREAMS), Some(&STREAMS_MAX), "{settings:?}");
    let path = host.client.path(&endpoint, "runsync");
    let authorization = format!("Bearer {}", host.admin_key());
    let fields = [("authorization", authorization.as_str()), ("content-length", "9")];
    for stream in 0..=STREAMS_MAX {
        connection.post_without_body(2 * stream + 1, &path, &fields).await;
    }
    let refused = Event::Reset { stream: 2 * STREAMS_MAX + 1, code: REFUSED_STREAM };
    assert_eq!(connection.next().await, refused);
}

#[tokio::test]
async fn a_flood_of_resets_ends_its_connection() {
    let host = shared_host();
    let mut connection = begin(&host).await;
    // Without a key, each stream would be handled before its reset is read.
    let authorization = format!("Bearer {}", host.admin_key());
    connection.get(1, "/openapi.json", &[("authorization", &authorization)]).await;
    assert_eq!(connection.status_of(1).await, 200);
    connection.flood_with_resets(3, 2_000).await;
    let end = loop {
        match connection.next().await {
            end @ (Event::GoAway { .. } | Event::Closed) => break end,
            Event::Status { .. } | Event::Reset { .. } => {}
        }
    };
    assert_eq!(end, Event::GoAway { code: ENHANCE_YOUR_CALM });
    let mut other = begin(&host).await;
    other.get(1, "/openapi.json", &[]).await;
    assert_eq!(other.status_of(1).await, 200);
}

#[tokio::test]
async fn a_connection_may_be_opened_ahead_of_its_first_call() {
    let host = shared_host();
    let mut connection = begin(&host).await;
    connection.settings().await;
    // The time for an incomplete head is 20 s.
    sleep(Duration::from_secs(22)).await;
    connection.get(1, "/openapi.json", &[]).await;
    assert_eq!(connection.next().await, Event::Status { stream: 1, status: 200 });
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let host = shared_host();
    let mut connection = begin(&host).await;
    let (fits, large) = ("x".repeat(15_000), "x".repeat(17_000));
    connection.get(1, "/openapi.json", &[("x-large", &fits)]).await;
    assert_eq!(connection.status_of(1).await, 200);
    connection.get(3, "/openapi.json", &[("x-large", &large)]).await;
    assert_eq!(connection.status_of(3).await, 431);
}

/// A client that never makes room for an answer, or only for a part of it, would hold the permit of
/// its call or the answer's memory for ever.
#[tokio::test]
async fn an_answer_that_is_never_read_to_its_end_ends_its_connection() {
    let host = shared_host();
    let openapi = host.client().get("/openapi.json").await.text.len();
    let most = u32::try_from(openapi - 1_000).unwrap();
    let cases =
        [("/livez", 0), ("/openapi.json", 0), ("/openapi.json", 1), ("/openapi.json", most)];
    join_all(cases.map(async |(path, window)| {
        let stream = TcpStream::connect(host.address()).await.unwrap();
        let mut connection = Http2::begin_with(stream, &[(INITIAL_WINDOW_SIZE, window)]).await;
        connection.widen(1 << 30).await;
        connection.get(1, path, &[]).await;
        assert_eq!(connection.status_of(1).await, 200);
        // 30 s for the answer, and 5 s for the client to end the connection.
        let ended = async { while !matches!(connection.next().await, Event::Closed) {} };
        let ended = timeout(Duration::from_secs(60), ended).await;
        assert!(ended.is_ok(), "a window of {window} B for {path}");
    }))
    .await;
}
