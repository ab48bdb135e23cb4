//! Reads the chunks of jobs while they run, through any host: each attempt delivers the job's
//! chunks in order, and an ended job has delivered all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_tests::{PATIENCE, parse_events};
use reqwest::Method;
use serde_json::Value;

use super::clients::{CALL_TIME_MAX, Clients};
use super::submission::ENDPOINT;

/// The position of one reader in the stream of one job.
#[derive(Debug)]
struct Reading {
    job: String,
    chunks: Vec<Value>,
    /// The attempt whose chunks were delivered, and how many.
    attempt: u64,
    delivered: usize,
    /// The id of the last event.
    last_event: Option<String>,
}

impl Clients {
    /// Reads one stream after the other.
    pub(crate) async fn run_stream_reader(self: Arc<Self>) {
        while !self.is_over() {
            let Some(job) = self.ledger.take_stream() else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let chunks = self.ledger.entry(&job).submission.chunks();
            let mut reading = Reading { job, chunks, attempt: 0, delivered: 0, last_event: None };
            if rand::random() {
                reading.follow(&self).await;
            } else {
                reading.read_pages(&self).await;
            }
        }
    }

    /// Reads the whole stream of a job that has ended.
    pub(crate) async fn check_replay(&self, job: &str, chunks: &[Value]) {
        let answer = self.get("stream", &format!("stream/{job}?from=0")).await.answer;
        let page = answer.ok();
        let outputs = page.as_array().unwrap().iter().map(|element| &element["output"]);
        assert!(outputs.eq(chunks), "lost: chunks of {job}: {answer:?}, not {chunks:?}");
    }
}

impl Reading {
    /// Reads page after page, each from some chunks before the end of the last one.
    async fn read_pages(&mut self, clients: &Clients) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let from = self.delivered - rand::random_range(0..=self.delivered.min(2));
            let path = format!("stream/{}?wait=1000&from={from}", self.job);
            let answer = clients.get("stream", &path).await.answer;
            let page = answer.ok();
            let attempt = answer.header("x-stream-attempt").unwrap().parse().unwrap();
            if self.enters(attempt) && from > 0 {
                continue;
            }
            let elements = page.as_array().unwrap();
            let end = from + elements.len();
            assert!(end >= self.delivered, "lost: chunks of an attempt: {answer:?}: {self:?}");
            for (index, element) in (from..).zip(elements) {
                self.check(element, index);
            }
            self.delivered = end;
            let next = answer.header("x-stream-next").unwrap();
            assert_eq!(next, end.to_string(), "wrong: {answer:?}: {self:?}");
            let status = answer.header("x-job-status").unwrap();
            if !matches!(status, "IN_QUEUE" | "IN_PROGRESS") {
                return self.check_end(status);
            }
            assert!(Instant::now() < deadline, "stuck: {answer:?}: {self:?}");
        }
    }

    /// Reads events until the last one, on one connection after the other.
    async fn follow(&mut self, clients: &Clients) {
        let deadline = Instant::now() + PATIENCE;
        while !self.follow_one(clients).await {
            assert!(Instant::now() < deadline, "stuck: {self:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Reads the events of one connection, from those that were read on; true when the last one was
    /// read.
    async fn follow_one(&mut self, clients: &Clients) -> bool {
        let client = clients.random_client();
        // Without a position the answer begins after the chunks that a connection has taken,
        // although the end of a standby can prevent that its client receives them.
        let path = client.path(ENDPOINT, &format!("stream/{}?from=0", self.job));
        let mut request = client.request(Method::GET, &path).timeout(CALL_TIME_MAX);
        request = request.header("accept", "text/event-stream");
        if let Some(last) = &self.last_event {
            request = request.header("last-event-id", last);
        }
        let Ok(mut response) = request.send().await else { return false };
        let status = response.status().as_u16();
        assert!(matches!(status, 200 | 429 | 503), "wrong: {status} for {self:?}");
        if status != 200 {
            return false;
        }
        let mut text = String::new();
        while let Ok(Some(bytes)) = response.chunk().await {
            text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
        for event in parse_events(&text) {
            let data: Value = serde_json::from_str(&event.data).unwrap();
            match event.kind.as_str() {
                "restart" => {
                    // The event has no id. So it comes again if its connection has ended before
                    // the attempt's first chunk.
                    let begins = self.enters(data["attempt"].as_u64().unwrap());
                    let begins = begins || self.delivered == 0;
                    assert!(begins, "wrong: the same attempt begins again: {text}: {self:?}");
                }
                "end" => {
                    clients.ledger.count("stream as events");
                    self.check_end(data["status"].as_str().unwrap());
                    return true;
                }
                _ => self.saw_event(&event.id.unwrap(), &data),
            }
        }
        false
    }

    fn saw_event(&mut self, id: &str, data: &Value) {
        let (attempt, index) = id.split_once('-').unwrap_or(("1", id));
        let is_entered = self.enters(attempt.parse().unwrap());
        assert!(!is_entered || index == "0", "wrong: an attempt without its beginning: {self:?}");
        assert_eq!(index, self.delivered.to_string(), "wrong: the event {id}: {self:?}");
        self.check(data, self.delivered);
        self.delivered += 1;
        self.last_event = Some(id.to_owned());
    }

    /// Begins to read a later attempt if this is one.
    fn enters(&mut self, attempt: u64) -> bool {
        assert!(attempt >= self.attempt, "lost: an attempt: {attempt}: {self:?}");
        let is_later = attempt > self.attempt;
        if is_later {
            (self.attempt, self.delivered) = (attempt, 0);
        }
        is_later
    }

    fn check(&self, element: &Value, index: usize) {
        assert_eq!(element["metrics"]["stream_index"], index, "lost: a chunk: {element}: {self:?}");
        let expected = self.chunks.get(index);
        assert_eq!(Some(&element["output"]), expected, "wrong: a chunk of {self:?}");
    }

    fn check_end(&self, status: &str) {
        let is_whole = self.delivered == self.chunks.len();
        assert!(is_whole, "lost: chunks of a job that is {status}: {self:?}");
    }
}
