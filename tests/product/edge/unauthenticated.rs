//! What callers without a key make the host keep: the host's memory during floods of calls, and the
//! answers to other callers meanwhile.

use std::ops::Range;
use std::pin::pin;
use std::time::Duration;

use futures::future::join_all;
use gristmill_tests::http2::{Event, HEADER_TABLE_SIZE, Http2, INITIAL_WINDOW_SIZE};
use gristmill_tests::{PATIENCE, TestHost, next_answer, shared_host};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

const MIB: u64 = 1 << 20;

/// As many connections as an address may have where the process may open 20,000 files.
const CONNECTIONS: u32 = 850;

/// So many of them are opened and used at one time, so that the host has no time between them.
const CONNECTIONS_AT_ONCE: usize = 300;

/// A little less than a connection may have.
const STREAMS: u32 = 250;

/// The bytes that a host has more at most: its allocator keeps some MiB for each of its threads.
fn little() -> u64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    (48 + 8 * cores as u64) * MIB
}

/// A connection without room for any byte of an answer's body.
async fn begin(host: &TestHost) -> Http2<TcpStream> {
    let stream = TcpStream::connect(host.address()).await.unwrap();
    Http2::begin_with(stream, &[(HEADER_TABLE_SIZE, 0), (INITIAL_WINDOW_SIZE, 0)]).await
}

/// One call on a connection of its own.
async fn call(host: &TestHost, head: &str) -> u16 {
    let mut stream = TcpStream::connect(host.address()).await.unwrap();
    stream.write_all(format!("{head}\r\nhost: x\r\n\r\n").as_bytes()).await.unwrap();
    let answer = timeout(PATIENCE, next_answer(&mut stream)).await.expect("the host answers");
    answer.map_or(0, |answer| answer.status)
}

/// Calls of callers who do no harm: supervisors, and clients with a key on new connections.
async fn innocents_are_answered(host: &TestHost) {
    let key = host.admin_key();
    let with_key = format!("GET /v1/templates HTTP/1.1\r\nauthorization: Bearer {key}");
    let heads = ["GET /livez HTTP/1.1", "GET /readyz HTTP/1.1", &with_key];
    for head in heads {
        assert_eq!(call(host, head).await, 200, "{head}");
    }
    let stream = TcpStream::connect(host.address()).await.unwrap();
    let mut connection = Http2::begin_with(stream, &[(HEADER_TABLE_SIZE, 0)]).await;
    let authorization = format!("Bearer {key}");
    for number in 0..STREAMS {
        let fields = [("authorization", authorization.as_str())];
        connection.get(2 * number + 1, "/v1/templates", &fields).await;
    }
    let mut answered = 0;
    while answered < STREAMS {
        match connection.next().await {
            Event::Status { status: 200, .. } => answered += 1,
            other => panic!("{other:?} after {answered} answers"),
        }
    }
}

/// Floods the host, which other callers call meanwhile and afterwards; returns the bytes that it
/// has more then.
async fn growth<F>(host: &TestHost, connections: Range<u32>, flood: impl Fn(u32) -> F) -> u64
where
    F: Future<Output = Http2<TcpStream>>,
{
    innocents_are_answered(host).await;
    let before = host.anonymous_memory();
    let mut most = before;
    let mut held = vec![];
    for first in connections.clone().step_by(CONNECTIONS_AT_ONCE) {
        let end = connections.end.min(first + CONNECTIONS_AT_ONCE as u32);
        let mut flooding = pin!(join_all((first..end).map(&flood)));
        let begun = loop {
            match timeout(Duration::from_millis(20), &mut flooding).await {
                Ok(begun) => break begun,
                Err(_) => most = most.max(host.anonymous_memory()),
            }
        };
        held.extend(begun);
        innocents_are_answered(host).await;
        most = most.max(host.anonymous_memory());
    }
    // The subject: what stays, of calls that are not read.
    sleep(Duration::from_secs(1)).await;
    innocents_are_answered(host).await;
    most = most.max(host.anonymous_memory());
    drop(held);
    println!("{} MiB more", (most - before) / MIB);
    most - before
}

fn bounded_host() -> TestHost {
    TestHost::start_with(&["--max-address-connections", "1000"])
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_address_without_a_key_take_little_memory() {
    let host = bounded_host();
    for path in ["/v1/endpoints", "/livez"] {
        let grown = growth(&host, 0..CONNECTIONS, async |_| {
            let mut connection = begin(&host).await;
            connection.flood(1, STREAMS, path, 0).await;
            connection
        });
        assert!(grown.await < little(), "{path}");
    }
}

/// An answer waits a moment for the rest of its call's body, which costs a task.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_address_whose_bodies_never_come_take_little_memory() {
    let host = bounded_host();
    for bytes in [0, 200] {
        let grown = growth(&host, 0..CONNECTIONS, async |_| {
            let mut connection = begin(&host).await;
            connection.flood_of_open_bodies(STREAMS, "/v2/none/run", bytes).await;
            connection
        });
        assert!(grown.await < little(), "{bytes} bytes of each body");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_of_one_address_without_a_key_take_little_memory() {
    let host = bounded_host();
    // Too many for the size of a head, and for its number of fields.
    for fields in [1_800, 400] {
        let grown = growth(&host, 0..100, async |_| {
            let mut connection = begin(&host).await;
            connection.flood(1, STREAMS, "/v1/endpoints", fields).await;
            connection
        });
        assert!(grown.await < little(), "{fields} fields");
    }
    // Heads that never end.
    let grown = growth(&host, 0..CONNECTIONS, async |_| {
        let mut connection = begin(&host).await;
        connection.begin_head(1, 400).await;
        connection
    });
    assert!(grown.await < little());
}

/// HTTP/2 keeps the room for the most streams that a connection has had.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_have_made_many_calls_without_a_key_take_little_memory() {
    let host = bounded_host();
    let grown = growth(&host, 0..CONNECTIONS, async |_| {
        let stream = TcpStream::connect(host.address()).await.unwrap();
        let mut connection = Http2::begin_with(stream, &[(HEADER_TABLE_SIZE, 0)]).await;
        connection.flood(1, STREAMS, "/livez", 0).await;
        let mut answered = 0;
        while answered < STREAMS {
            match connection.next().await {
                Event::Status { .. } => answered += 1,
                // It was closed for the next one.
                _ => break,
            }
        }
        connection
    });
    assert!(grown.await < little());
}

/// A reverse proxy on this machine has one address for all clients.
#[tokio::test(flavor = "multi_thread")]
async fn all_callers_without_a_key_together_have_a_bound_on_loopback_too() {
    let host = TestHost::start();
    let grown = growth(&host, 0..CONNECTIONS, async |_| {
        let mut connection = begin(&host).await;
        connection.flood(1, STREAMS, "/v1/endpoints", 0).await;
        connection
    });
    assert!(grown.await < 384 * MIB);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_of_a_caller_without_a_key_is_not_kept() {
    let host = bounded_host();
    let body = vec![b'x'; 1 << 20];
    let grown = growth(&host, 0..100, async |_| {
        let mut connection = begin(&host).await;
        connection.post_without_body(1, "/v2/none/run", &[]).await;
        connection.send_body(1, &body).await;
        connection
    });
    assert!(grown.await < 32 * MIB);
}

#[tokio::test]
async fn a_head_of_http_2_has_100_fields_at_most() {
    let host = shared_host();
    let stream = TcpStream::connect(host.address()).await.unwrap();
    let mut connection = Http2::begin_with(stream, &[(HEADER_TABLE_SIZE, 0)]).await;
    for (stream, fields, status) in [(1, 99, 200), (3, 100, 431), (5, 99, 200)] {
        connection.flood(stream, 1, "/livez", fields).await;
        assert_eq!(connection.status_of(stream).await, status, "{fields} and one");
    }
}

/// Opens a connection with so many calls whose answers it does not read.
async fn holding(host: &TestHost, calls: u32) -> Http2<TcpStream> {
    let mut connection = begin(host).await;
    connection.flood(1, calls, "/livez", 0).await;
    for _ in 0..calls {
        assert!(matches!(connection.next().await, Event::Status { status: 200, .. }));
    }
    connection
}

#[tokio::test]
async fn the_connection_that_holds_the_most_makes_room_and_gets_no_more() {
    let host = bounded_host();
    // A call counts as 4,101 bytes, and the address may hold 2,045 of them.
    let mut largest = holding(&host, 250).await;
    let mut others = vec![];
    for _ in 0..7 {
        others.push(holding(&host, 249).await);
    }
    let mut last = holding(&host, 2_045 - 250 - 7 * 249).await;
    largest.get(2 * 250 + 1, "/livez", &[]).await;
    let refused = Event::Status { stream: 2 * 250 + 1, status: 503 };
    assert_eq!(largest.next().await, refused);
    assert!(matches!(largest.next().await, Event::GoAway { code: 0 }));
    assert_eq!(call(&host, "GET /livez HTTP/1.1").await, 200, "a small one");
    last.get(2 * 250 + 1, "/livez", &[]).await;
    assert_eq!(last.status_of(2 * 250 + 1).await, 200);
    while largest.next().await != Event::Closed {}
}

#[tokio::test]
async fn a_connection_of_http_1_ends_in_order_after_refusals() {
    let host = TestHost::start_configured("[rate-limits.unauthenticated]\ncalls-per-10s = 1\n");
    let mut stream = TcpStream::connect(host.address()).await.unwrap();
    let mut refused = 0;
    loop {
        stream.write_all(b"GET /v1/endpoints HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let answer = timeout(PATIENCE, next_answer(&mut stream)).await.expect("the host answers");
        let answer = answer.expect("an answer");
        refused += u32::from(answer.status == 429);
        if answer.header("connection") == Some("close") {
            break;
        }
    }
    assert_eq!(refused, 16);
    let end = timeout(PATIENCE, next_answer(&mut stream)).await.expect("the host closes it");
    assert!(end.is_none());
}

#[tokio::test]
async fn a_connection_of_http_2_that_goes_on_after_refusals_is_closed() {
    let host = TestHost::start_configured("[rate-limits.unauthenticated]\ncalls-per-10s = 1\n");
    let stream = TcpStream::connect(host.address()).await.unwrap();
    let mut connection = Http2::begin_with(stream, &[(HEADER_TABLE_SIZE, 0)]).await;
    let mut refused = 0;
    for call in 0.. {
        connection.get(2 * call + 1, "/v1/endpoints", &[]).await;
        let event = loop {
            match connection.next().await {
                // The subject: a client that goes on.
                Event::GoAway { .. } => {}
                event => break event,
            }
        };
        match event {
            Event::Status { status: 429, .. } => refused += 1,
            Event::Status { status, .. } => assert_eq!(status, 401),
            other => {
                assert_eq!(other, Event::Closed);
                break;
            }
        }
    }
    // A call that is admitted meanwhile counts too.
    assert!(
        (30..=32).contains(&refused),
        "16 until it is asked to end, and as many again: {refused}"
    );
    let with_key =
        format!("GET /v1/templates HTTP/1.1\r\nauthorization: Bearer {}", host.admin_key());
    assert_eq!(call(&host, &with_key).await, 200);
}
