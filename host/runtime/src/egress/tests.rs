//! Requests of handlers to a real server on loopback: which hosts are reached, and what is bounded,
//! counted and passed on.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use gristmill_core::deploy::egress::HostPattern;
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::AttemptEnd;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::trace::Tracer;
use gristmill_egress::AddressPolicy;
use http::{HeaderMap, Method};
use http_body_util::{BodyExt as _, Empty, Full};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use url::Url;
use wasmtime_wasi_http::{Error, WasiHttpHooks as _};

use super::client::REQUESTS_MAX;
use super::error::REQUESTS_PER_JOB_MAX;
use super::*;
use crate::bindings::gristmill::handler::http::{Host as _, HttpError, Request, Response};
use crate::sandbox::deadline::Watch;
use crate::sandbox::state::{State, Surroundings};
use crate::testing::{Run, TestRuntime, guest, guest_that_uses};

/// A server on a free port of this machine. It answers `/redirect` with a redirect to itself,
/// `/huge` with too many bytes, `/silent` never, `/closed` with the end of the connection, and all
/// other paths with the received request.
async fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            tokio::spawn(async move {
                let request = read_request(&mut socket).await;
                let path = request.split(' ').nth(1).unwrap_or("").to_owned();
                let (status, body) = match path.as_str() {
                    "/redirect" => (format!("302 Found\r\nlocation: http://127.0.0.1:{port}/"), ""),
                    "/silent" => return std::future::pending().await,
                    "/closed" => return,
                    _ => ("200 OK".to_owned(), request.as_str()),
                };
                let body = match path.as_str() {
                    "/huge" => "x".repeat(HTTP_BODY_BYTES_MAX + 1),
                    _ => body.to_owned(),
                };
                let framing = match path.as_str() {
                    "/huge" => String::new(), // ends with the connection
                    _ => format!("content-length: {}\r\n", body.len()),
                };
                let head = format!("HTTP/1.1 {status}\r\n{framing}connection: close\r\n\r\n");
                // A client that has read enough may close first.
                let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
            });
        }
    });
    port
}

async fn read_request(socket: &mut TcpStream) -> String {
    let mut request = String::new();
    let mut buffer = [0; 4_096];
    loop {
        let got = socket.read(&mut buffer).await.unwrap();
        request.push_str(str::from_utf8(&buffer[..got]).unwrap());
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let is_whole = match head.split_once("content-length: ") {
            Some((_, length)) => {
                body.len() >= length.lines().next().unwrap().parse::<usize>().unwrap()
            }
            None => !head.contains("chunked") || body.ends_with("0\r\n\r\n"),
        };
        if is_whole || got == 0 {
            return request;
        }
    }
}

/// The host's state of a job whose endpoint allows these hosts.
async fn job(allowed: &[String]) -> State {
    job_of(&OwnerId::operator(), allowed, &[]).await
}

/// The same for an owner, on a host whose operator permits these hosts to all owners.
async fn job_of(owner: &OwnerId, allowed: &[String], private: &[String]) -> State {
    let runtime = TestRuntime::open();
    let mut run = Run::of(&runtime.add(guest("unreachable")).await);
    let hosts = |list: &[String]| -> Vec<HostPattern> {
        list.iter().map(|host| host.parse().unwrap()).collect()
    };
    run.endpoint.owner = owner.clone();
    run.endpoint.settings.allowed_hosts = hosts(allowed);
    let (_, attempt) = run.attempt().split();
    let watch = Arc::new(Watch::new(attempt.deadline, attempt.stop.clone()));
    State::new(
        attempt,
        run.sink,
        watch,
        Surroundings::alone(Egress::new(
            AddressPolicy::default(),
            hosts(private),
            Tenancy::default(),
            Tracer::default(),
            not_allowed,
        )),
    )
}

fn get(url: String) -> Request {
    let (method, headers, body) = ("GET".to_owned(), vec![], vec![]);
    Request { method, url, headers, body, timeout_ms: Some(5_000) }
}

async fn send(allowed: &[String], url: String) -> Result<Response, HttpError> {
    job(allowed).await.send(get(url)).await
}

fn denied(result: Result<Response, HttpError>) -> String {
    match result {
        Err(HttpError::Denied(reason)) => reason,
        other => panic!("not denied: {other:?}"),
    }
}

#[tokio::test]
async fn only_listed_hosts_are_reached() {
    let port = server().await;
    let url = |host: &str| format!("http://{host}:{port}/");
    let listed = |host: &str| [format!("{host}:{port}")];

    let none = denied(send(&[], url("127.0.0.1")).await);
    let said = format!("endpoint `e` does not allow requests to `127.0.0.1:{port}`; ");
    let remedy = format!("--allow-host 127.0.0.1:{port}, or in `[network] allow`");
    assert!(none.starts_with(&said) && none.contains(&remedy), "{none}");
    let other_port = [format!("127.0.0.1:{}", port ^ 1)];
    denied(send(&other_port, url("127.0.0.1")).await);
    denied(send(&listed("127.0.0.1"), url("localhost")).await);
    assert_eq!(send(&listed("127.0.0.1"), url("127.0.0.1")).await.unwrap().status, 200);
    // Other spellings of the address count as the address.
    assert_eq!(send(&listed("127.0.0.1"), url("0x7f.1")).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_listed_name_reaches_public_addresses_only() {
    let port = server().await;
    let url = format!("http://localhost:{port}/");
    let reason = denied(send(&[format!("localhost:{port}")], url.clone()).await);
    let said = "`localhost` has an address that is not public; ";
    let remedy = format!("--allow-host 'localhost:{port}!private'");
    assert!(reason.starts_with(said) && reason.contains(&remedy), "{reason}");
    let marked = [format!("localhost:{port}!private")];
    assert_eq!(send(&marked, url).await.unwrap().status, 200);
}

#[tokio::test]
async fn private_addresses_are_the_operators_to_permit() {
    let port = server().await;
    let tenant = OwnerId::new("tenant").unwrap();
    let cases = [
        ("127.0.0.1", format!("127.0.0.1:{port}")),
        ("localhost", format!("localhost:{port}!private")),
    ];
    for (host, entry) in cases {
        let url = format!("http://{host}:{port}/");
        let listed = [entry];
        let refused = job_of(&tenant, &listed, &[]).await.send(get(url.clone())).await;
        let reason = denied(refused);
        let said = format!("`{host}` has an address that is not public; only the operator can");
        let remedy = format!("`serve --handler-allow {host}:{port}`, to endpoints that list `");
        assert!(reason.starts_with(&said) && reason.contains(&remedy), "{reason}");
        let mut elsewhere = job_of(&tenant, &listed, &[format!("{host}:1")]).await;
        denied(elsewhere.send(get(url.clone())).await);
        let mut permitted = job_of(&tenant, &listed, &[format!("{host}:{port}")]).await;
        assert_eq!(permitted.send(get(url.clone())).await.unwrap().status, 200, "{host}");
        // The operator's word does not stand for the endpoint's own list.
        let mut unlisted = job_of(&tenant, &[], &[format!("{host}:{port}")]).await;
        denied(unlisted.send(get(url)).await);
    }
}

#[tokio::test]
async fn redirects_are_returned() {
    let port = server().await;
    let allowed = [format!("127.0.0.1:{port}")];
    let response = send(&allowed, format!("http://127.0.0.1:{port}/redirect")).await.unwrap();
    assert_eq!(response.status, 302);
    let location = response.headers.iter().find(|(name, _)| name == "location").unwrap();
    assert_eq!(location.1, format!("http://127.0.0.1:{port}/"));
}

#[tokio::test]
async fn hop_by_hop_headers_are_dropped_and_others_are_sent() {
    let port = server().await;
    let allowed = [format!("127.0.0.1:{port}")];
    let mut request = get(format!("http://127.0.0.1:{port}/x"));
    request.method = "post".to_owned();
    request.body = b"flour".to_vec();
    let headers = [
        ("host", "evil.example"),
        ("connection", "upgrade"),
        ("upgrade", "h2c"),
        ("transfer-encoding", "chunked"),
        ("content-length", "1"),
        ("x-mill", "a"),
        ("x-mill", "b"),
    ];
    request.headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let response = job(&allowed).await.send(request).await.unwrap();
    let seen = String::from_utf8(response.body).unwrap().to_ascii_lowercase();
    assert!(seen.starts_with("post /x http/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("host: 127.0.0.1:{port}\r\n")), "{seen}");
    assert!(seen.contains("content-length: 5\r\n"), "{seen}");
    assert!(seen.contains("x-mill: a\r\n") && seen.contains("x-mill: b\r\n"), "{seen}");
    for absent in ["evil", "upgrade", "chunked"] {
        assert!(!seen.contains(absent), "{absent}: {seen}");
    }
    assert!(!response.headers.iter().any(|(name, _)| name == "connection"));
}

#[tokio::test]
async fn time_and_size_are_bounded() {
    let port = server().await;
    let allowed = [format!("127.0.0.1:{port}")];
    let mut request = get(format!("http://127.0.0.1:{port}/silent"));
    request.timeout_ms = Some(50);
    let silent = job(&allowed).await.send(request).await;
    assert!(matches!(silent, Err(HttpError::Timeout)), "{silent:?}");
    let huge = send(&allowed, format!("http://127.0.0.1:{port}/huge")).await;
    let max = HTTP_BODY_BYTES_MAX as u64;
    assert!(matches!(huge, Err(HttpError::TooLarge(limit)) if limit == max), "{huge:?}");
}

/// The bytes were on the wire, whether the receiver has answered or not.
#[tokio::test]
async fn bytes_of_exchanges_that_fail_are_counted() {
    let port = server().await;
    let allowed = [format!("127.0.0.1:{port}")];
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let with_body = |path: &str| Request { body: vec![b'x'; 1_000], ..get(url(path)) };
    let traffic = async |request: Request| {
        let mut state = Box::new(Box::pin(job(&allowed)).await);
        assert!(state.send(request).await.is_err());
        state.egress().traffic()
    };
    // The attempt ends while the handler waits.
    let mut state = job(&allowed).await;
    let ended = tokio::time::timeout(Duration::from_millis(50), state.send(with_body("/silent")));
    assert!(ended.await.is_err());
    assert_eq!(state.egress().traffic(), (1_000, 0));
    assert_eq!(traffic(with_body("/closed")).await, (1_000, 0));
    let late = Request { timeout_ms: Some(50), ..with_body("/silent") };
    assert_eq!(traffic(late).await, (1_000, 0));
    let (sent, received) = traffic(get(url("/huge"))).await;
    assert!(sent == 0 && received > HTTP_BODY_BYTES_MAX as u64 / 2, "{received}");
    let denied = Request { url: "http://other.example/".to_owned(), ..with_body("/") };
    assert_eq!(traffic(denied).await, (0, 0));
}

#[tokio::test]
async fn errors_are_distinguished() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let allowed = [format!("127.0.0.1:{closed}")];
    let refused = send(&allowed, format!("http://127.0.0.1:{closed}/")).await;
    assert!(
        matches!(&refused, Err(HttpError::Connect(text)) if text.contains("refused")),
        "{refused:?}"
    );
    for url in ["ftp://example.com/", "no url", "http://"] {
        let invalid = send(&allowed, url.to_owned()).await;
        assert!(matches!(invalid, Err(HttpError::InvalidRequest(_))), "{url}: {invalid:?}");
    }
    for method in ["CONNECT", "G T"] {
        let mut request = get(format!("http://127.0.0.1:{closed}/"));
        request.method = method.to_owned();
        let invalid = job(&allowed).await.send(request).await;
        assert!(matches!(invalid, Err(HttpError::InvalidRequest(_))), "{method}: {invalid:?}");
    }
}

/// The answer of `wasi:http` to a request with this body.
async fn wasi_http(allowed: &[String], url: String, body: &'static str) -> Result<String, Error> {
    let body = match body {
        "" => Empty::new().map_err(|never| match never {}).boxed_unsync(),
        body => Full::new(body.into()).map_err(|never| match never {}).boxed_unsync(),
    };
    let request = http::Request::post(url).body(body).unwrap();
    let done = Box::new(std::future::ready(Ok(())));
    let sending = job(allowed).await.egress().send_request(request, None, done);
    let (response, _) = Box::into_pin(sending).await?;
    let body = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8_lossy(&body).to_ascii_lowercase())
}

#[tokio::test]
async fn wasi_http_follows_the_same_policy() {
    let port = server().await;
    let allowed = [format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let url = |host: &str, path: &str| format!("http://{host}:{port}{path}");
    let seen = wasi_http(&allowed, url("127.0.0.1", "/"), "flour").await.unwrap();
    assert!(seen.starts_with("post / http/1.1\r\n") && seen.contains("flour"), "{seen}");
    let seen = wasi_http(&allowed, url("127.0.0.1", "/"), "").await.unwrap();
    assert!(!seen.contains("chunked"), "{seen}");
    let private = wasi_http(&allowed, url("localhost", "/"), "").await;
    assert!(matches!(private, Err(Error::DestinationIpProhibited)), "{private:?}");
    let unlisted = wasi_http(&[], url("127.0.0.1", "/"), "").await;
    assert!(matches!(unlisted, Err(Error::HttpRequestDenied)), "{unlisted:?}");
    let huge = wasi_http(&allowed, url("127.0.0.1", "/huge"), "").await;
    assert!(matches!(huge, Err(Error::HttpResponseBodySize(_))), "{huge:?}");
}

#[tokio::test]
async fn a_job_has_a_bounded_number_of_open_requests() {
    let port = server().await;
    let mut state = job(&[format!("127.0.0.1:{port}")]).await;
    let request = || OutgoingRequest {
        method: Method::GET,
        url: Url::parse(&format!("http://127.0.0.1:{port}/")).unwrap(),
        headers: HeaderMap::new(),
        body: None,
        until: None,
    };
    let mut open = Vec::new();
    for _ in 0..REQUESTS_PER_JOB_MAX {
        open.push(state.egress().send(request()).await.unwrap());
    }
    assert!(matches!(state.egress().send(request()).await, Err(EgressError::TooMany)));
    open.clear();
    assert!(state.egress().send(request()).await.is_ok());
}

#[tokio::test]
async fn every_way_inside_is_denied() {
    let port = server().await;
    // A wildcard, and a name with an internal address; no address is listed.
    let allowed = [format!("*.example.com:{port}"), format!("localhost:{port}")];
    for host in [
        "127.0.0.1",
        "2130706433",
        "0177.0.0.1",
        "0.0.0.0",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:a9fe:a9fe]",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "localhost",
        "LOCALHOST",
        "user:password@localhost",
        "localhost.example.com@127.0.0.1",
    ] {
        denied(send(&allowed, format!("http://{host}:{port}/")).await);
    }
}

#[tokio::test]
async fn a_request_has_a_bounded_head() {
    let port = server().await;
    let allowed = [format!("127.0.0.1:{port}")];
    let url = format!("http://127.0.0.1:{port}/");
    let many = |count: usize| (0..count).map(|n| (format!("x-{n}"), String::new())).collect();
    let plain = || get(url.clone());
    let fits = Request { headers: many(1_000), ..plain() };
    assert_eq!(job(&allowed).await.send(fits).await.unwrap().status, 200);
    for huge in [
        // More headers than a map of headers can hold.
        Request { headers: many(40_000), ..plain() },
        Request { url: format!("{url}{}", "x".repeat(HTTP_HEAD_BYTES_MAX)), ..plain() },
        Request { method: "X".repeat(HTTP_HEAD_BYTES_MAX), ..plain() },
    ] {
        let refused = job(&allowed).await.send(huge).await;
        assert!(
            matches!(&refused, Err(HttpError::InvalidRequest(text)) if text.contains("limit: 32768")),
            "{refused:?}"
        );
    }
}

fn endpoint_of(owner: &str, id: &str) -> Endpoint {
    let (owner, id) = (OwnerId::new(owner).unwrap(), EndpointId::new(id).unwrap());
    Endpoint { owner, id, ..crate::testing::endpoint() }
}

#[test]
fn an_owner_has_a_share_of_all_open_requests() {
    let tenancy = Tenancy::default();
    tenancy.set_several_owners(true);
    let egress =
        Egress::new(AddressPolicy::default(), Vec::new(), tenancy, Tracer::default(), not_allowed);
    let open = |owner: &str, endpoint: u64| {
        let of_job = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        egress.slot(&endpoint_of(owner, &format!("{owner}-{endpoint}")), of_job).now_or_never()
    };
    let open: Vec<_> = (0..5 * REQUESTS_MAX / 4).map(|n| open("greedy", n % 5)).collect();
    let held: Vec<_> = open.into_iter().flatten().collect();
    assert_eq!(held.len(), 768, "three quarters of 1,024");
    let other = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    assert!(egress.slot(&endpoint_of("other", "e"), other).now_or_never().is_some());
}

#[test]
fn an_endpoint_has_a_share_of_all_open_requests() {
    let egress = Egress::plain();
    let [greedy, other] = ["greedy", "other"].map(|id| endpoint_of("owner", id));
    let slot = |endpoint: &Endpoint| {
        let of_job = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        egress.slot(endpoint, of_job).now_or_never()
    };
    let mut open = Vec::new();
    for _ in 0..REQUESTS_MAX / 4 {
        open.push(slot(&greedy).unwrap());
    }
    assert!(slot(&greedy).is_none(), "the endpoint waits for itself");
    assert!(slot(&other).is_some(), "and nobody else does");
    open.pop();
    assert!(slot(&greedy).is_some());
}

/// The response of `wasi:http`, with the body unread.
async fn open_call(
    state: &mut State,
    url: String,
) -> Result<http::Response<calls::WasiBody>, Error> {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let request = http::Request::get(url).body(body).unwrap();
    let done = Box::new(std::future::ready(Ok(())));
    let (response, _) = Box::into_pin(state.egress().send_request(request, None, done)).await?;
    Ok(response)
}

/// The handles stay in the table of an instance that is used again, and no task polls them.
#[tokio::test]
async fn calls_that_a_job_leaves_open_end_with_it() {
    let port = server().await;
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let mut state = job(&[format!("127.0.0.1:{port}")]).await;
    let mut left = Vec::new();
    for _ in 0..REQUESTS_PER_JOB_MAX - 1 {
        left.push(open_call(&mut state, url("/")).await.unwrap());
    }
    // Its answer never comes; wasmtime has it in a task of its own.
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let request = http::Request::get(url("/silent")).body(body).unwrap();
    let done = Box::new(std::future::ready(Ok(())));
    let waiting = tokio::spawn(Box::into_pin(state.egress().send_request(request, None, done)));
    while state.egress().open_requests() < REQUESTS_PER_JOB_MAX {
        tokio::task::yield_now().await;
    }
    state.end();
    let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
    assert!(matches!(ended, Err(Error::ConnectionTerminated)));
    assert_eq!(state.egress().open_requests(), 0, "all slots are back");
    let mut first = left.remove(0).into_body();
    let read = first.frame().await;
    assert!(matches!(read, Some(Err(Error::ConnectionTerminated))), "{read:?}");
    // The next job of the instance has all of its requests.
    let attempt = state.attempt.clone();
    state.begin(attempt, state.sink.clone(), state.watch.clone());
    let answer = open_call(&mut state, url("/")).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"GET / HTTP/1.1"), "{body:?}");
}

/// A request whose body the handler has not finished holds a connection, also after its answer.
#[tokio::test]
async fn a_body_that_a_job_has_not_finished_ends_with_it() {
    let port = server().await;
    let mut state = job(&[format!("127.0.0.1:{port}")]).await;
    let endless = futures::stream::pending::<Result<http_body::Frame<bytes::Bytes>, Error>>();
    let body = http_body_util::StreamBody::new(endless).boxed_unsync();
    let request = http::Request::post(format!("http://127.0.0.1:{port}/")).body(body).unwrap();
    let done = Box::new(std::future::ready(Ok(())));
    let waiting = tokio::spawn(Box::into_pin(state.egress().send_request(request, None, done)));
    while state.egress().open_requests() == 0 {
        tokio::task::yield_now().await;
    }
    state.end();
    let ended = tokio::time::timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap();
    assert!(ended.is_err());
    assert_eq!(state.egress().open_requests(), 0);
}

/// A server that reads no bodies. It returns its sockets after their heads; it has answered
/// requests for `/early`.
async fn deaf_server() -> (u16, mpsc::UnboundedReceiver<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (sockets, received) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                socket.read_buf(&mut head).await.unwrap();
            }
            if head.windows(6).any(|path| path == b"/early") {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                socket.write_all(answer).await.unwrap();
            }
            sockets.send(socket).unwrap();
        }
    });
    (port, received)
}

/// Reads until the connection ends, and fails if the whole body comes.
async fn ends_without_the_body(sockets: &mut mpsc::UnboundedReceiver<TcpStream>) {
    let mut socket = sockets.recv().await.unwrap();
    let (mut rest, mut buffer) = (0, vec![0; 64 << 10]);
    let reading = async {
        while let Ok(bytes @ 1..) = socket.read(&mut buffer).await {
            rest += bytes;
        }
    };
    let ended = tokio::time::timeout(Duration::from_secs(10), reading).await;
    assert!(ended.is_ok(), "the connection is open");
    assert!(rest < HTTP_BODY_BYTES_MAX - (64 << 10), "{rest} bytes came after the call");
}

/// The receiver takes the kernel's buffers only, so most of the body waits in the host.
#[tokio::test]
async fn a_connection_ends_with_its_call_whatever_the_receiver_does() {
    let (port, mut sockets) = deaf_server().await;
    let allowed = [format!("127.0.0.1:{port}")];
    let mut state = job(&allowed).await;
    let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
    let post = |path: &str, timeout_ms: u32| Request {
        method: "POST".to_owned(),
        body: vec![b'x'; HTTP_BODY_BYTES_MAX],
        timeout_ms: Some(timeout_ms),
        ..get(url(path))
    };
    assert_eq!(state.send(post("/early", 10_000)).await.unwrap().status, 200);
    ends_without_the_body(&mut sockets).await;
    let late = state.send(post("/never", 200)).await;
    assert!(matches!(late, Err(HttpError::Timeout)), "{late:?}");
    ends_without_the_body(&mut sockets).await;
    // The end of an attempt drops its call.
    let dropped = state.send(post("/never", 10_000));
    assert!(tokio::time::timeout(Duration::from_millis(200), dropped).await.is_err());
    ends_without_the_body(&mut sockets).await;
}

#[tokio::test]
async fn a_connection_of_wasi_http_ends_with_its_answer_the_deadline_or_the_job() {
    let (port, mut sockets) = deaf_server().await;
    let mut state = job(&[format!("127.0.0.1:{port}")]).await;
    let post = |state: &mut State, path: &str| {
        let body = Full::new(vec![b'x'; HTTP_BODY_BYTES_MAX].into());
        let body = body.map_err(|never| match never {}).boxed_unsync();
        let url = format!("http://127.0.0.1:{port}{path}");
        let done = Box::new(std::future::ready(Ok(())));
        let request = http::Request::post(url).body(body).unwrap();
        Box::into_pin(state.egress().send_request(request, None, done))
    };
    let (answer, _) = post(&mut state, "/early").await.unwrap();
    drop(answer);
    ends_without_the_body(&mut sockets).await;
    // A handle that the job leaves open.
    let left = post(&mut state, "/early").await.unwrap();
    state.end();
    ends_without_the_body(&mut sockets).await;
    drop(left);
    let mut attempt = state.attempt.clone();
    attempt.deadline = std::time::Instant::now() + Duration::from_millis(200);
    state.begin(attempt, state.sink.clone(), state.watch.clone());
    let late = post(&mut state, "/never").await;
    assert!(matches!(late, Err(Error::HttpResponseTimeout)));
    ends_without_the_body(&mut sockets).await;
}

/// A server that answers with two headers of `bytes` each.
async fn server_of_headers(bytes: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            read_request(&mut socket).await;
            let value = "v".repeat(bytes);
            let head = format!("content-length: 0\r\nx-a: {value}\r\nx-b: {value}\r\n\r\n");
            // The client may have enough.
            let _ = socket.write_all(format!("HTTP/1.1 200 OK\r\n{head}").as_bytes()).await;
        }
    });
    port
}

#[tokio::test]
async fn an_answer_with_large_headers_fails() {
    let port = server_of_headers(HTTP_HEAD_BYTES_MAX / 2).await;
    let (allowed, url) = ([format!("127.0.0.1:{port}")], format!("http://127.0.0.1:{port}/"));
    let refused = send(&allowed, url.clone()).await;
    assert!(
        matches!(&refused, Err(HttpError::Other(text)) if text.contains("limit: 32768 bytes")),
        "{refused:?}"
    );
    let refused = wasi_http(&allowed, url, "").await;
    assert!(matches!(refused, Err(Error::HttpResponseHeaderSectionSize(_))), "{refused:?}");
}

/// Parts of one buffer lie as far apart as they came.
#[tokio::test]
async fn an_answer_does_not_keep_the_buffer_of_its_connection() {
    const BYTES: usize = 5_000;
    let port = server_of_headers(BYTES).await;
    let mut state = job(&[format!("127.0.0.1:{port}")]).await;
    let answer = open_call(&mut state, format!("http://127.0.0.1:{port}/")).await.unwrap();
    let [a, b] = ["x-a", "x-b"].map(|name| &answer.headers()[name]);
    assert_eq!((a.len(), b.len()), (BYTES, BYTES));
    let [a, b] = [a, b].map(|value| value.as_bytes().as_ptr().addr());
    assert_ne!(b.wrapping_sub(a), BYTES + "\r\nx-b: ".len());
}

/// Handlers in Python and JavaScript end their requests by dropping them.
#[tokio::test]
async fn requests_without_an_answer_are_counted_once() {
    let port = server().await;
    let mut state = job(&[format!("127.0.0.1:{port}")]).await;
    let run = Run::of(&TestRuntime::open().add(guest("unreachable")).await);
    let mut attempt = state.attempt.clone();
    attempt.deadline = std::time::Instant::now() + Duration::from_secs(10);
    state.begin(attempt.clone(), run.sink.clone(), state.watch.clone());
    let silent = |state: &mut State| {
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let request = http::Request::get(format!("http://127.0.0.1:{port}/silent"));
        let done = Box::new(std::future::ready(Ok(())));
        tokio::spawn(Box::into_pin(state.egress().send_request(
            request.body(body).unwrap(),
            None,
            done,
        )))
    };
    let dropped = silent(&mut state);
    while state.egress().open_requests() == 0 {
        tokio::task::yield_now().await;
    }
    dropped.abort();
    assert!(dropped.await.is_err());
    // The next request reports it.
    assert!(open_call(&mut state, format!("http://127.0.0.1:{port}/")).await.is_ok());
    assert_eq!(run.sink.requests(), [RequestEnd::Abandoned, RequestEnd::Answered]);
    // A request is under way when the attempt ends.
    let left = silent(&mut state);
    while state.egress().open_requests() == 0 {
        tokio::task::yield_now().await;
    }
    state.egress().report_end().await;
    state.end();
    assert!(left.await.unwrap().is_err());
    state.egress().report_end().await;
    let [first, second] = [RequestEnd::Abandoned; 2];
    assert_eq!(run.sink.requests(), [first, second, RequestEnd::Answered]);
}

/// A handler that waits for an answer until its attempt ends.
#[tokio::test]
async fn a_request_that_the_end_of_its_attempt_ends_is_counted_and_so_are_its_bytes() {
    let port = server().await;
    let runtime = TestRuntime::open();
    let url = format!("http://127.0.0.1:{port}/silent");
    let strings = [&i32s(32, url.len()), &i32s(0, 0), &i32s(64, 3)].map(String::as_str).concat();
    let import = r#"(import "gristmill:handler/http@0.1.0" "send" (func $send
        (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32)))"#;
    let fields = format!(r#"(data (i32.const 16) "POST") (data (i32.const 32) "{url}")"#);
    let body = format!(
        "(call $send {}{strings}{}(i32.const 2048)) (call $ok (i32.const 16) (i32.const 0))",
        i32s(16, 4),
        i32s(0, 0)
    );
    let handler = runtime.add(guest_that_uses(import, &fields, &body)).await;
    let mut run = Run::of(&handler);
    run.endpoint.owner = OwnerId::operator();
    let allowed = format!("127.0.0.1:{port}").parse().unwrap();
    run.endpoint.settings.allowed_hosts = vec![allowed];
    run.timeout_ms = 1_000;
    let report = runtime.perform(&run).await;
    assert_eq!(run.sink.requests(), [RequestEnd::TimedOut], "{:?}", report.end);
    assert_eq!(report.usage.sent_bytes, 3);
    // A cancel ends the attempt while its handler waits.
    (run.timeout_ms, run.sink) = (60_000, Arc::default());
    let cancel = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        run.stop.cancel();
    };
    let (report, ()) = tokio::join!(runtime.perform(&run), cancel);
    assert!(matches!(report.end, AttemptEnd::Stopped), "{:?}", report.end);
    assert_eq!(run.sink.requests(), [RequestEnd::Abandoned]);
    assert_eq!(report.usage.sent_bytes, 3);
}

/// Two constants.
fn i32s(first: usize, second: usize) -> String {
    format!("(i32.const {first})(i32.const {second})")
}
