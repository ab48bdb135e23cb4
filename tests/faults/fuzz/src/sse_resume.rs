//! `/stream`, read in every way by readers that disconnect and reconnect: no reader misses a chunk,
//! or gets one twice or out of order, and the end follows the last chunk.
//!
//! Input: a sequence of steps.

use std::collections::VecDeque;

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use gristmill_core::id::JobId;
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, Lease, Outcome};
use gristmill_core::store::JobStore as _;
use gristmill_test_support::EndAttempt as _;
use http_body_util::{BodyExt as _, Full};
use serde_json::Value;

use super::host::{self, Answer, ENDPOINT, Host};

/// The next step.
#[derive(Debug, Arbitrary)]
enum Step {
    /// The handler emits this many chunks.
    Emit(u8),
    /// It ends.
    End { fails: bool },
    /// The job is queued again, and claimed.
    Retry,
    /// The reader of events connects at its last position, and reads this many events.
    Events { stays_for: u8 },
    /// A client requests the undelivered chunks. If it does not read the answer, they stay
    /// undelivered.
    Undelivered { takes_it: bool, as_object: bool },
    /// A client reads again from a chunk.
    From(u16),
    /// A client connects with any text as the last event's id.
    LastEvent(String),
}

const STEPS_MAX: usize = 64;

pub fn sse_resume(data: &[u8]) {
    let mut story = Unstructured::new(data);
    let steps: Vec<Step> = story
        .arbitrary_iter()
        .map_or(Vec::new(), |steps| steps.map_while(Result::ok).take(STEPS_MAX).collect());
    Host::run(async |host| {
        let mut run = Run::new(host).await;
        for step in steps {
            run.step(step).await;
        }
    });
}

struct Run<'a> {
    host: &'a Host,
    job: JobId,
    lease: Lease,
    /// Outputs of the attempt, all different.
    emitted: Vec<String>,
    end: Option<&'static str>,
    /// Over all attempts.
    count: u32,
    /// Chunks of the attempt that the reader of events has seen, and the id of its last event.
    seen: usize,
    last_event: Option<String>,
    /// Where those who ask for what is undelivered are.
    delivered: usize,
}

impl<'a> Run<'a> {
    async fn new(host: &'a Host) -> Self {
        let request = host.request("POST", &format!("/v2/{ENDPOINT}/run")).unwrap();
        let body = Full::new(Bytes::from_static(b"{\"input\":{}}"));
        let _ = host.answer(request.body(body).unwrap()).await;
        let lease = host.claim().await.unwrap().lease;
        let (emitted, job) = (Vec::new(), lease.job);
        let (seen, last_event) = (0, None);
        Self { host, job, lease, emitted, end: None, count: 0, seen, last_event, delivered: 0 }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Emit(count) if self.end.is_none() => self.emit(count).await,
            Step::End { fails } if self.end.is_none() => self.end(fails).await,
            Step::Retry if self.end == Some("FAILED") => self.retry().await,
            Step::Emit(_) | Step::End { .. } | Step::Retry => {}
            Step::Events { stays_for } => self.read_events(stays_for).await,
            Step::Undelivered { takes_it, as_object } => {
                let mount = if as_object { "/sdk/v2" } else { "/v2" };
                let answer = self.get(mount, "?wait=0", None).await.unwrap();
                if takes_it {
                    self.check_page(self.delivered, answer, as_object).await;
                    self.delivered = self.emitted.len();
                }
            }
            Step::From(from) => {
                let answer = self.get("/v2", &format!("?wait=0&from={from}"), None).await.unwrap();
                self.check_page(from.into(), answer, false).await;
            }
            Step::LastEvent(text) => self.connect_with(&text).await,
        }
    }

    async fn emit(&mut self, count: u8) {
        let mut chunks = Vec::new();
        for _ in 0..count {
            let output = format!("\"chunk {}\"", self.count);
            chunks.push(Chunk {
                output: Json::parse(output.clone()).unwrap(),
                metrics: None,
                part: None,
            });
            self.emitted.push(output);
            self.count += 1;
        }
        let _ = self.host.store.append_chunks(self.lease, chunks).await.unwrap();
    }

    async fn end(&mut self, fails: bool) {
        let (outcome, status) = match fails {
            true => (Outcome::Failed("on purpose".to_owned()), "FAILED"),
            false => (Outcome::Completed(Json::null()), "COMPLETED"),
        };
        let _ = self.host.store.finish(self.lease, outcome).await.unwrap();
        self.end = Some(status);
    }

    async fn retry(&mut self) {
        self.host.store.retry(&self.host.endpoint, self.job, None).await.unwrap();
        self.lease = self.host.claim().await.unwrap().lease;
        self.emitted.clear();
        (self.end, self.seen, self.delivered) = (None, 0, 0);
    }

    /// `None`: no client can send this header.
    async fn get(&self, mount: &str, query: &str, last_event: Option<&str>) -> Option<Answer> {
        let path = self.host.path(mount, "stream", self.job) + query;
        let mut request = self.host.request("GET", &path).unwrap();
        if let Some(last_event) = last_event {
            request = request.header("accept", "text/event-stream");
            request = request.header("last-event-id", last_event);
        }
        Some(self.host.answer(request.body(Full::default()).ok()?).await)
    }

    async fn check_page(&self, from: usize, answer: Answer, is_object: bool) {
        assert_eq!(answer.status(), 200);
        let header = |name| answer.headers()[name].to_str().unwrap().to_owned();
        let (status, next) = (header("x-job-status"), header("x-stream-next"));
        assert_eq!(status, self.end.unwrap_or("IN_PROGRESS"));
        assert_eq!(next, from.max(self.emitted.len()).to_string());
        let mut page: Value = serde_json::from_slice(&host::body(answer).await).unwrap();
        if is_object {
            assert_eq!(page["status"], status);
            page = page["stream"].take();
        }
        let expected = self.emitted.iter().enumerate().skip(from);
        let found = page.as_array().unwrap();
        assert_eq!(found.len(), expected.len());
        for ((index, output), chunk) in expected.zip(found) {
            check_chunk(index, output, chunk);
        }
    }

    async fn read_events(&mut self, stays_for: u8) {
        // Before it has an event, a reader has no id to send: it reads from the start.
        let answer = match &self.last_event {
            Some(last) => self.get("/v2", "", Some(last)).await,
            None => self.get_from_start().await,
        };
        self.seen = self.check_events(self.seen, answer.unwrap(), stays_for).await;
        if let Some(last) = self.seen.checked_sub(1) {
            self.last_event = Some(self.event_id(last));
        }
    }

    /// The id of a chunk's event.
    fn event_id(&self, index: usize) -> String {
        match self.lease.claim.0 {
            1 => index.to_string(),
            attempt => format!("{attempt}-{index}"),
        }
    }

    async fn get_from_start(&self) -> Option<Answer> {
        let path = self.host.path("/v2", "stream", self.job) + "?from=0";
        let request = self.host.request("GET", &path).unwrap();
        let request = request.header("accept", "text/event-stream");
        Some(self.host.answer(request.body(Full::default()).unwrap()).await)
    }

    /// Reads events; the first must have the index `next`. Returns the index after them.
    async fn check_events(&self, mut next: usize, answer: Answer, stays_for: u8) -> usize {
        assert_eq!(answer.status(), 200);
        let mut body = answer.into_body();
        let mut events = VecDeque::new();
        for _ in 0..stays_for {
            if events.is_empty() {
                let Some(frame) = body.frame().await else { break };
                let text = frame.unwrap().into_data().unwrap();
                let text = str::from_utf8(&text).unwrap().strip_suffix("\n\n").unwrap();
                events.extend(text.split("\n\n").map(str::to_owned));
            }
            let event = events.pop_front().unwrap();
            if event.starts_with(':') {
                // No new event for a while: all chunks have been sent, and the job continues.
                assert!(next >= self.emitted.len() && self.end.is_none(), "late: {next}");
                break;
            }
            let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name));
            let data: Value = serde_json::from_str(field("data: ").unwrap()).unwrap();
            if field("event: ") == Some("restart") {
                assert_eq!(data["attempt"], self.lease.claim.0);
                next = 0;
                continue;
            }
            if field("event: ") == Some("end") {
                assert!(next >= self.emitted.len(), "the end comes before chunk {next}");
                assert_eq!(data["status"], self.end.expect("the job has ended"));
                assert!(events.is_empty(), "nothing comes after the end");
                assert!(body.frame().await.is_none(), "nothing comes after the end");
                break;
            }
            assert_eq!(field("id: ").unwrap(), self.event_id(next));
            check_chunk(next, &self.emitted[next], &data);
            next += 1;
        }
        next
    }

    async fn connect_with(&self, text: &str) {
        // An empty header counts as absent, and such a reader begins with what is undelivered.
        if text.is_empty() {
            return;
        }
        let Some(answer) = self.get("/v2", "", Some(text)).await else { return };
        let (attempt, index) = match text.trim().split_once('-') {
            Some((attempt, index)) if !attempt.is_empty() => (attempt, index),
            _ => ("1", text.trim()),
        };
        let digits = index.strip_prefix('-').unwrap_or(index);
        let is_zero = !digits.is_empty() && digits.bytes().all(|digit| digit == b'0');
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !is_number(attempt) || (!is_number(index) && !is_zero) {
            return host::check_refusal(answer).await;
        }
        // A reader of another attempt gets an event that says so, and then begins at the first
        // chunk.
        let next = digits.parse::<usize>().map_or(usize::MAX, |last| last.saturating_add(1));
        self.check_events(next, answer, u8::MAX).await;
    }
}

fn check_chunk(index: usize, output: &str, chunk: &Value) {
    assert_eq!(chunk["output"].to_string(), output);
    assert_eq!(chunk["metrics"]["stream_index"], index);
}
