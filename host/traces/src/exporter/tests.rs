//! The exporter against a small HTTP server with scripted answers.

use gristmill_core::trace::{SpanCounts, SpanId, SpanKind, SpanSink as _, TraceContext, TraceId};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use super::*;
use crate::SpanQueue;
use crate::messages::ExportRequest;

struct Running {
    queue: Arc<SpanQueue>,
    /// The number of spans in each received call.
    calls: mpsc::UnboundedReceiver<usize>,
    stop: oneshot::Sender<()>,
    exporter: JoinHandle<()>,
}

/// An exporter whose collector gives these answers, and the last one again; it hangs at an empty one.
async fn start(answers: Vec<Vec<u8>>, variables: &'static [(&str, &str)]) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, calls) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        for number in 0.. {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut call = Vec::new();
            let body = loop {
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
                    break call.split_off(end + 4);
                }
            };
            let request = ExportRequest::decode(&body[..]).unwrap();
            sender.send(request.resource_spans[0].scope_spans[0].spans.len()).unwrap();
            let answer = answers.get(number).or_else(|| answers.last()).unwrap();
            if answer.is_empty() {
                std::future::pending::<()>().await;
            }
            // A client that has read enough closes the connection.
            let _ = connection.write_all(answer).await;
        }
    });
    let settings = Settings::from_env(|name| match name {
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

impl Running {
    fn record(&self, number: usize) {
        for _ in 0..number {
            let (trace, span) = (TraceId::random(), SpanId::random());
            self.queue.record(Span {
                context: TraceContext { trace, span, is_sampled: true },
                parent: None,
                name: "job".to_owned(),
                kind: SpanKind::Internal,
                started_us: 1,
                duration_us: 2,
                attributes: vec![],
                error: None,
            });
        }
    }

    async fn stop(self) -> SpanCounts {
        self.stop.send(()).unwrap();
        self.exporter.await.unwrap();
        self.queue.counts()
    }
}

fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

const ONE_AT_A_TIME: &[(&str, &str)] =
    &[("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"), ("OTEL_BSP_SCHEDULE_DELAY", "600000")];
const LATE: &[(&str, &str)] =
    &[("OTEL_BSP_MAX_QUEUE_SIZE", "3"), ("OTEL_BSP_SCHEDULE_DELAY", "600000")];

#[tokio::test]
async fn what_waits_is_sent_at_the_end() {
    let mut running = start(vec![answer("200 OK", b"")], LATE).await;
    running.record(2);
    assert!(running.calls.try_recv().is_err());
    assert_eq!(running.stop().await, SpanCounts { exported: 2, ..SpanCounts::default() });
}

#[tokio::test]
async fn a_busy_collector_is_asked_again() {
    let busy =
        b"HTTP/1.1 503 Busy\r\nconnection: close\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n";
    let mut running = start(vec![busy.to_vec(), answer("200 OK", b"")], ONE_AT_A_TIME).await;
    running.record(1);
    assert_eq!(running.calls.recv().await, Some(1));
    assert_eq!(running.calls.recv().await, Some(1));
    assert_eq!(running.stop().await.exported, 1);
}

#[tokio::test]
async fn a_refusal_is_final() {
    let mut running = start(vec![answer("400 Bad Request", b"")], ONE_AT_A_TIME).await;
    running.record(1);
    assert_eq!(running.calls.recv().await, Some(1));
    assert_eq!(running.stop().await, SpanCounts { refused: 1, ..SpanCounts::default() });
}

#[tokio::test]
async fn a_partial_success_and_a_huge_answer_are_counted() {
    // Field 1: a message with field 1, the number 1.
    let partial = answer("200 OK", &[0x0a, 2, 8, 1]);
    let huge = answer("200 OK", &vec![0; 10 << 20]);
    let mut running = start(vec![partial, huge], ONE_AT_A_TIME).await;
    running.record(2);
    assert_eq!(running.calls.recv().await, Some(1));
    assert_eq!(running.calls.recv().await, Some(1));
    let counts = running.stop().await;
    assert_eq!((counts.exported, counts.refused), (1, 1));
}

#[tokio::test]
async fn a_collector_that_hangs_fills_the_queue_and_ends_with_the_host() {
    let mut running = start(vec![vec![]], LATE).await;
    running.record(3);
    assert_eq!(running.calls.recv().await, Some(3));
    running.record(5);
    let queue = running.queue.clone();
    let counts = running.stop().await;
    assert_eq!(counts, SpanCounts { queue_full: 2, not_sent: 6, ..SpanCounts::default() });
    assert_eq!(queue.counts(), counts);
}
