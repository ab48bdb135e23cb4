//! HTTP requests in the sandbox alone: streams in both directions, and the ends of answers.

use std::io;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt as _;
use gristmill_core::deploy::endpoint::EndpointType;
use gristmill_core::http_call::{HttpBody, NoResponse};
use gristmill_core::runtime::{AttemptEnd, FailureReason};
use gristmill_tests::guests;
use http::{HeaderMap, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::bench::{Bench, Run};

fn get(path: &str) -> Request<HttpBody> {
    request("GET", path, Empty::new().map_err(|never| match never {}).boxed_unsync())
}

fn request(method: &str, path: &str, body: HttpBody) -> Request<HttpBody> {
    let uri = format!("https://site.example{path}");
    Request::builder().method(method).uri(uri).header("x-one", "1").body(body).unwrap()
}

fn text(text: &'static str) -> HttpBody {
    Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed_unsync()
}

/// Requests of an endpoint for them.
fn run_of(bench: &Bench) -> Run<'_> {
    let mut run = bench.run("null");
    run.endpoint.kind = EndpointType::LoadBalancer;
    run
}

/// A body of the pieces and trailers that are sent to the channel, and its errors.
fn sent() -> (mpsc::UnboundedSender<io::Result<Frame<Bytes>>>, HttpBody) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let frames = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
    (sender, StreamBody::new(frames).boxed_unsync())
}

type Answer = Result<Response<HttpBody>, NoResponse>;

/// The status and the whole body, or what of it came before an error.
async fn whole(answer: Answer) -> (u16, String, Result<Option<HeaderMap>, String>) {
    let answer = answer.unwrap();
    let (status, mut body) = (answer.status().as_u16(), answer.into_body());
    let (mut read, mut trailers) = (Vec::new(), None);
    loop {
        let text = |read: Vec<u8>| String::from_utf8(read).unwrap();
        match body.frame().await {
            None => return (status, text(read), Ok(trailers)),
            Some(Err(error)) => return (status, text(read), Err(error.to_string())),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => read.extend(piece),
                Err(frame) => trailers = frame.into_trailers().ok(),
            },
        }
    }
}

async fn answer_to(run: &Run<'_>, path: &str) -> (u16, String, Result<Option<HeaderMap>, String>) {
    let (answer, report) = run.serve(&run.deployment(), get(path), whole).await;
    answer.unwrap_or_else(|| panic!("{path}: no answer: {:?}", report.end))
}

#[tokio::test]
async fn a_request_is_answered_and_counted() {
    let bench = Bench::open(&guests::http_playground()).await;
    let run = run_of(&bench);
    let (answer, report) = run.serve(&run.deployment(), get("/"), whole).await;
    assert_eq!(answer.unwrap(), (200, "hello\n".to_owned(), Ok(None)));
    assert!(matches!(report.end, AttemptEnd::Returned(())), "{:?}", report.end);
    assert!(report.usage.fuel.unwrap() > 0 && report.usage.memory_bytes_peak > 0);
    assert_eq!(answer_to(&run, "/status?code=418").await, (418, String::new(), Ok(None)));
    assert_eq!(bench.running(), 0);
}

#[tokio::test]
async fn the_handler_sees_the_head_without_what_belongs_to_the_connection() {
    let bench = Bench::open(&guests::http_playground()).await;
    let run = run_of(&bench);
    let mut head = request("PUT", "/head?a=%2F&b=//..", text("body"));
    for (name, value) in [("connection", "x-one"), ("transfer-encoding", "chunked"), ("x-two", "2")]
    {
        head.headers_mut().append(name, value.parse().unwrap());
    }
    let (answer, _) = run.serve(&run.deployment(), head, whole).await;
    let seen: Value = serde_json::from_str(&answer.unwrap().1).unwrap();
    let expected = json!({
        "method": "PUT", "scheme": "https", "authority": "site.example",
        "target": "/head?a=%2F&b=//..", "headers": [["x-one", "1"], ["x-two", "2"]],
    });
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn bodies_stream_in_both_directions_and_trailers_follow() {
    let bench = Bench::open(&guests::http_playground()).await;
    let run = run_of(&bench);
    let (sender, body) = sent();
    let piece = |text: &'static str| Ok(Frame::data(Bytes::from(text)));
    sender.send(piece("one")).unwrap();
    let client = async |answer: Answer| {
        let mut body = answer.unwrap().into_body();
        for next in ["two", "three"] {
            let seen = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert!(!seen.is_empty());
            // The next piece is sent only after the one before has come back.
            sender.send(piece(next)).unwrap();
        }
        let trailers = HeaderMap::from_iter([("x-sum".parse().unwrap(), "9".parse().unwrap())]);
        sender.send(Ok(Frame::trailers(trailers))).unwrap();
        drop(sender);
        body.collect().await.unwrap()
    };
    let request = request("POST", "/echo", body);
    let (rest, _) = run.serve(&run.deployment(), request, client).await;
    let rest = rest.unwrap();
    assert_eq!(rest.trailers().unwrap()["x-sum"], "9");
    assert_eq!(rest.to_bytes(), "three");
}

/// A client could not distinguish the whole from a part otherwise.
#[tokio::test]
async fn an_answer_that_was_not_finished_ends_with_an_error() {
    let bench = Bench::open(&guests::http_playground()).await;
    let mut run = run_of(&bench);
    for path in ["/panic-later", "/unfinished"] {
        let (status, body, end) = answer_to(&run, path).await;
        assert_eq!((status, &*body), (200, "half"), "{path}");
        assert!(end.is_err(), "{path}");
    }
    run.timeout = Duration::from_millis(300);
    let (answer, report) = run.serve(&run.deployment(), get("/sleep-later"), whole).await;
    let (_, body, end) = answer.unwrap();
    assert!(body == "half" && end.is_err(), "{body} {end:?}");
    assert!(matches!(report.end, AttemptEnd::DeadlineReached), "{:?}", report.end);
    run.timeout = Duration::from_secs(60);
    let client = async |answer: Answer| {
        let mut body = answer.unwrap().into_body();
        body.frame().await.unwrap().unwrap();
        run.stop.cancel();
        body.collect().await.is_err()
    };
    let (is_error, report) = run.serve(&run.deployment(), get("/sleep-later"), client).await;
    assert!(is_error.unwrap());
    assert!(matches!(report.end, AttemptEnd::Stopped), "{:?}", report.end);
}

#[tokio::test]
async fn a_handler_without_an_answer_is_reported() {
    let bench = Bench::open(&guests::http_playground()).await;
    let mut run = run_of(&bench);
    run.endpoint.settings.memory_mib = 64;
    for (path, reason, expected) in [
        ("/panic", FailureReason::Trap, "as asked"),
        ("/alloc?mib=80", FailureReason::MemoryLimit, "memory limit of 64 MiB exceeded"),
    ] {
        let (answer, report) = run.serve(&run.deployment(), get(path), whole).await;
        assert!(answer.is_none(), "{path}");
        assert_eq!(report.reason(), reason, "{path}: {:?}", report.end);
        assert!(report.error().contains(expected), "{path}: {}", report.error());
    }
    for (path, expected) in [("/fail", "no answer"), ("/status?code=103", "103")] {
        let client = async |answer: Answer| answer.unwrap_err().to_string();
        let (error, _) = run.serve(&run.deployment(), get(path), client).await;
        assert!(error.as_ref().unwrap().contains(expected), "{path}: {error:?}");
    }
    run.timeout = Duration::from_millis(300);
    let started = Instant::now();
    for path in ["/spin", "/sleep"] {
        let (answer, report) = run.serve(&run.deployment(), get(path), whole).await;
        assert!(answer.is_none(), "{path}");
        assert!(matches!(report.end, AttemptEnd::DeadlineReached), "{path}: {:?}", report.end);
    }
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_handler() {
    const BYTES: usize = 64 << 20;
    let bench = Bench::open(&guests::http_playground()).await;
    let run = run_of(&bench);
    let client = async |answer: Answer| {
        let body = answer.unwrap().into_body();
        tokio::time::sleep(Duration::from_millis(300)).await;
        let still_running = bench.running();
        let pieces = body.into_data_stream().map(|piece| piece.unwrap().len());
        (still_running, pieces.fold(0, async |sum, bytes| sum + bytes).await)
    };
    let request = get(&format!("/bytes?count={BYTES}"));
    let (read, _) = run.serve(&run.deployment(), request, client).await;
    assert_eq!(read.unwrap(), (1, BYTES));
}

#[tokio::test]
async fn a_body_that_breaks_off_does_not_end_for_the_handler() {
    let bench = Bench::open(&guests::http_playground()).await;
    let run = run_of(&bench);
    let (sender, body) = sent();
    sender.send(Ok(Frame::data(Bytes::from("one")))).unwrap();
    sender.send(Err(io::ErrorKind::ConnectionReset.into())).unwrap();
    let request = request("POST", "/echo", body);
    let (answer, _) = run.serve(&run.deployment(), request, whole).await;
    let (_, body, end) = answer.unwrap();
    assert!(body.len() <= 3 && end.is_err(), "{body} {end:?}");
}

#[tokio::test]
async fn an_answer_may_come_before_the_body() {
    let bench = Bench::open(&guests::http_playground()).await;
    let run = run_of(&bench);
    let (_sender, body) = sent();
    let (answer, _) = run.serve(&run.deployment(), request("POST", "/early", body), whole).await;
    assert_eq!(answer.unwrap(), (200, "early\n".to_owned(), Ok(None)));
}

#[tokio::test]
async fn an_instance_is_reused_only_after_an_answer_without_fault() {
    let bench = Bench::open(&guests::http_playground()).await;
    let mut run = run_of(&bench);
    run.endpoint.settings.reuse.max_jobs = 10;
    let deployment = run.deployment();
    for (path, expected) in
        [("/count", "1\n"), ("/count", "2\n"), ("/panic-later", "half"), ("/count", "1\n")]
    {
        let (answer, _) = run.serve(&deployment, get(path), whole).await;
        assert_eq!(answer.unwrap().1, expected, "{path}");
    }
}

#[tokio::test]
async fn a_component_of_the_other_kind_says_so() {
    let http = Bench::open(&guests::http_playground()).await;
    let report = http.run("null").perform().await;
    assert!(report.error().contains("handles no jobs, only HTTP requests"), "{}", report.error());
    let jobs = Bench::open(&guests::echo()).await;
    let run = run_of(&jobs);
    let (answer, report) = run.serve(&run.deployment(), get("/"), whole).await;
    assert!(answer.is_none());
    assert!(report.error().contains("handles no HTTP requests, only jobs"), "{}", report.error());
}
