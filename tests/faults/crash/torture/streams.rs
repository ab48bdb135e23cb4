//! Reads streams while their jobs run, across kills: delivered chunks are delivered again, and the
//! following ones match.

use gristmill_tests::{Answer, parse_events};
use reqwest::Method;
use serde_json::Value;

use super::random::Random;
use super::session::Session;
use super::submission::Submission;

/// A stream that has not been read to its end.
#[derive(Debug)]
struct Reading {
    job: String,
    chunks: Vec<Value>,
    /// How many chunks of one attempt an event stream has delivered, and the id of its last event.
    delivered: usize,
    last_event: Option<String>,
    has_events: bool,
}

/// Reads one stream after the other.
#[derive(Debug, Default)]
pub(crate) struct StreamReader {
    open: Option<Reading>,
}

impl StreamReader {
    pub(crate) async fn run(mut self, session: Session, mut random: Random) -> Self {
        while !session.is_over() {
            if self.open.is_none() {
                let submission = Submission::stream(&mut random, session.ledger.number());
                let chunks = submission.chunks();
                let has_events = random.one_in(2);
                let Some(job) = session.submit(submission).await else { break };
                self.open = Some(Reading::new(job, chunks, has_events));
            }
            let reading = self.open.as_mut().unwrap();
            let read = match reading.has_events {
                true => reading.follow(&session).await,
                false => reading.pages(&session).await,
            };
            if read.is_none() {
                break;
            }
            self.open = None;
        }
        self
    }
}

impl Reading {
    fn new(job: String, chunks: Vec<Value>, has_events: bool) -> Self {
        Self { job, chunks, delivered: 0, last_event: None, has_events }
    }

    /// Reads page after page. A killed host has forgotten the read position, and starts again.
    async fn pages(&mut self, session: &Session) -> Option<()> {
        let mut delivered = 0;
        loop {
            let path = session.path(&format!("stream/{}?wait=1000", self.job));
            let answer = session.get("stream", &path).await?;
            let page = answer.ok();
            for element in page.as_array().unwrap() {
                self.check(element, delivered);
                delivered += 1;
            }
            let status = answer.header("x-job-status").unwrap();
            if !matches!(status, "IN_QUEUE" | "IN_PROGRESS") {
                self.check_end(status, delivered);
                return Some(());
            }
        }
    }

    /// As events, from where the last ones ended, even those of an ended process.
    async fn follow(&mut self, session: &Session) -> Option<()> {
        let path = session.path(&format!("stream/{}", self.job));
        let mut request = session.client.request(Method::GET, &path);
        request = request.header("accept", "text/event-stream");
        if let Some(last) = &self.last_event {
            request = request.header("last-event-id", last);
        }
        let mut text = String::new();
        let end = async {
            let mut response = request.send().await?.error_for_status()?;
            while let Some(bytes) = response.chunk().await? {
                text.push_str(std::str::from_utf8(&bytes).unwrap());
            }
            reqwest::Result::Ok(())
        };
        let end = end.await;
        for event in parse_events(&text) {
            let data: Value = serde_json::from_str(&event.data).unwrap();
            if event.kind == "restart" {
                self.delivered = 0;
                continue;
            }
            if event.kind == "end" {
                session.ledger.count("stream as events");
                self.check_end(data["status"].as_str().unwrap(), self.delivered);
                return Some(());
            }
            let id = event.id.unwrap();
            let index = id.rsplit('-').next().unwrap();
            assert_eq!(index, self.delivered.to_string(), "wrong: {} {id}", self.job);
            self.check(&data, self.delivered);
            self.delivered += 1;
            self.last_event = Some(id);
        }
        match end {
            // A host that drains ends the events early.
            Ok(()) => assert!(session.is_kill_announced(), "wrong: events without an end: {text}"),
            Err(error) => session.check_lost(&error),
        }
        None
    }

    fn check(&self, element: &Value, index: usize) {
        let Self { job, chunks, .. } = self;
        assert_eq!(element["metrics"]["stream_index"], index, "lost: a chunk of {job}: {element}");
        assert_eq!(Some(&element["output"]), chunks.get(index), "wrong: a chunk of {job}");
    }

    fn check_end(&self, status: &str, delivered: usize) {
        // A job whose host crashed too often keeps its emitted chunks.
        let is_complete = delivered == self.chunks.len() || status == "FAILED";
        assert!(is_complete, "lost: chunks of {}, {status}: {delivered}", self.job);
    }
}

/// Reads the stream of an ended job again, from its start.
pub(crate) fn check_replay(answer: &Answer, chunks: &[Value]) {
    let page = answer.ok();
    let outputs: Vec<_> = page.as_array().unwrap().iter().map(|chunk| &chunk["output"]).collect();
    assert!(outputs.into_iter().eq(chunks), "lost: chunks: {} asked, {page}", chunks.len());
}
