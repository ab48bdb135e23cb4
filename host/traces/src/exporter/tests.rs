//! The exporter against a small HTTP server with scripted answers.

use std::io::Read as _;

use flate2::read::GzDecoder;
use gristmill_core::trace::{
    Span, SpanCounts, SpanId, SpanKind, SpanSink as _, TraceContext, TraceId, TraceState,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::SpanQueue;
use crate::messages::ExportRequest;

/// Longer than any of the tests takes: a call that does not come fails its test.
const PATIENCE: Duration = Duration::from_secs(30);

struct Running {
    queue: Arc<SpanQueue>,
    calls: mpsc::UnboundedReceiver<Call>,
    stop: oneshot::Sender<()>,
    exporter: JoinHandle<()>,
}

/// A call that the collector has received.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    /// The number of spans in it.
    spans: usize,
    is_gzip: bool,
}

/// An exporter whose collector gives these answers, and the last one again; it hangs at an empty
/// one.
async fn start(answers: Vec<Vec<u8>>, variables: &'static [(&str, &str)]) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, calls) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for number in 0.. {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut call = Vec::new();
            let (head, body) = loop {
                let mut piece = [0; 4_096];
                let length = connection.read(&mut piece).await.unwrap();
                call.extend_from_slice(&piece[..length]);
                let Some(end) = call.windows(4).position(|four| four == b"\r\n\r\n") else {
                    continue;
                };
                let head = String::from_utf8_lossy(&call[..end]).to_lowercase();
                let length: usize = head
                    .split("content-length: ")
                    .nth(1)
                    .unwrap()
                    .lines()
                    .next()
                    .unwrap()
                    .parse()
                    .unwrap();
                if call.len() >= end + 4 + length {
                    break (head, call.split_off(end + 4));
                }
            };
            let is_gzip = head.contains("content-encoding: gzip");
            let body = if is_gzip { unpacked(&body) } else { body };
            let request = ExportRequest::decode(&body[..]).unwrap();
            let spans = request.resource_spans[0].scope_spans[0].spans.len();
            sender.send(Call { spans, is_gzip }).unwrap();
            let answer = answers.get(number).or_else(|| answers.last()).unwrap();
            if answer.is_empty() {
                std::future::pending::<()>().await;
            }
            // A client that has read enough closes the connection.
            let _ = connection.write_all(answer).await;
        }
    });
    let settings = TraceSettings::from_env(|name| match name {
        "OTEL_EXPORTER_OTLP_ENDPOINT" => Some(url.clone()),
        _ => {
            variables.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        }
    });
    let exporter = Exporter::new(settings.unwrap().unwrap()).unwrap();
    let queue = exporter.queue();
    let (stop, stopped) = oneshot::channel();
    let run = exporter.run(async move {
        let _ = stopped.await;
    });
    Running { queue, calls, stop, exporter: tokio::spawn(run) }
}

fn unpacked(gzip: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut body).unwrap();
    body
}

impl Running {
    /// The number of spans in the next call.
    async fn next_call(&mut self) -> usize {
        timeout(PATIENCE, self.calls.recv()).await.expect("a call").unwrap().spans
    }

    fn record(&self, number: usize) {
        for _ in 0..number {
            self.queue.record(span());
        }
    }

    /// Ends the exporter; returns the counts, and the calls that no one has read.
    async fn stop(mut self) -> (SpanCounts, Vec<Call>) {
        self.stop.send(()).unwrap();
        timeout(PATIENCE, self.exporter).await.expect("it ends").unwrap();
        let calls = std::iter::from_fn(|| self.calls.try_recv().ok()).collect();
        (self.queue.counts(), calls)
    }
}

fn span() -> Span {
    let (trace, span) = (TraceId::random(), SpanId::random());
    Span {
        context: TraceContext { trace, span, is_sampled: true, state: TraceState::default() },
        parent: None,
        name: "job".to_owned(),
        kind: SpanKind::Internal,
        started_us: 1,
        duration_us: 2,
        attributes: vec![],
        error: None,
    }
}

fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

const ONE_AT_A_TIME: &[(&str, &str)] =
    &[("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"), ("OTEL_BSP_SCHEDULE_DELAY", "600000")];
/// A batch has 4 spans. The time for a call is longer than that for the last flush.
const LATE: &[(&str, &str)] = &[
    ("OTEL_BSP_MAX_QUEUE_SIZE", "4"),
    ("OTEL_BSP_SCHEDULE_DELAY", "600000"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000"),
];

#[tokio::test]
async fn what_waits_is_sent_at_the_end_and_not_before() {
    let running = start(vec![answer("200 OK", b"")], LATE).await;
    running.record(2);
    // An exporter that does not wait takes these spans now.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    running.record(1);
    let (counts, calls) = running.stop().await;
    assert_eq!(calls, [Call { spans: 3, is_gzip: false }]);
    assert_eq!(counts, SpanCounts { exported: 3, ..SpanCounts::default() });
}

#[tokio::test]
async fn a_full_batch_is_sent_at_once() {
    let mut running = start(vec![answer("200 OK", b"")], LATE).await;
    running.record(4);
    assert_eq!(running.next_call().await, 4);
    assert_eq!(running.stop().await.0, SpanCounts { exported: 4, ..SpanCounts::default() });
}

#[tokio::test]
async fn a_busy_collector_is_asked_again() {
    let busy =
        b"HTTP/1.1 503 Busy\r\nconnection: close\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
    let mut running = start(vec![busy.to_vec(), answer("200 OK", b"")], ONE_AT_A_TIME).await;
    running.record(1);
    assert_eq!((running.next_call().await, running.next_call().await), (1, 1));
    let (counts, further) = running.stop().await;
    assert_eq!((further, counts), (vec![], SpanCounts { exported: 1, ..SpanCounts::default() }));
}

#[tokio::test]
async fn a_refusal_is_final() {
    let mut running = start(vec![answer("400 Bad Request", b"")], ONE_AT_A_TIME).await;
    running.record(1);
    assert_eq!(running.next_call().await, 1);
    let (counts, further) = running.stop().await;
    assert_eq!((further, counts), (vec![], SpanCounts { refused: 1, ..SpanCounts::default() }));
}

#[tokio::test]
async fn a_partial_success_is_counted_and_of_a_huge_answer_only_the_status() {
    // Field 1: a message with field 1, the number 1.
    const ONE_REJECTED: [u8; 4] = [0x0a, 2, 8, 1];
    // Behind it an unknown field 2 with 10 MiB: a reader of the whole answer would count the
    // rejection.
    let huge = [&ONE_REJECTED[..], &[0x12, 0x80, 0x80, 0x80, 0x05], &vec![0; 10 << 20]].concat();
    assert_eq!(ExportAnswer::decode(&huge[..]).unwrap().partial_success.unwrap().rejected_spans, 1);
    let answers = vec![answer("200 OK", &ONE_REJECTED), answer("200 OK", &huge)];
    let mut running = start(answers, ONE_AT_A_TIME).await;
    running.record(2);
    assert_eq!((running.next_call().await, running.next_call().await), (1, 1));
    let (counts, _) = running.stop().await;
    assert_eq!(counts, SpanCounts { exported: 1, refused: 1, ..SpanCounts::default() });
}

#[tokio::test]
async fn a_collector_that_hangs_fills_the_queue_and_ends_with_the_host() {
    let mut running = start(vec![vec![]], LATE).await;
    running.record(4);
    assert_eq!(running.next_call().await, 4);
    running.record(6);
    let queue = running.queue.clone();
    let (counts, _) = running.stop().await;
    assert_eq!(counts, SpanCounts { queue_full: 2, not_sent: 8, ..SpanCounts::default() });
    a_closed_queue_only_counts(&queue);
}

/// A span that comes later is counted, and kept no more.
fn a_closed_queue_only_counts(queue: &SpanQueue) {
    let before = queue.counts();
    queue.record(span());
    assert_eq!(queue.counts(), SpanCounts { not_sent: before.not_sent + 1, ..before });
}

#[tokio::test]
async fn a_compressed_batch_has_the_same_spans() {
    const GZIP: &[(&str, &str)] =
        &[("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "500"), ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")];
    let running = start(vec![answer("200 OK", b"")], GZIP).await;
    running.record(400);
    let (counts, calls) = running.stop().await;
    assert_eq!(calls, [Call { spans: 400, is_gzip: true }]);
    assert_eq!(counts, SpanCounts { exported: 400, ..SpanCounts::default() });
}
