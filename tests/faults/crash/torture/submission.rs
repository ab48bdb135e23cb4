//! The submissions of the load, and their permitted ends.

use gristmill_tests::Client;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::random::Random;

/// The endpoint of all of them.
pub(crate) const MILL: &str = "mill";

/// Sizes of texts in bytes: in the database, in the journal, and past the page cache.
const SIZES: [usize; 10] = [10, 10, 10, 100, 100, 1_000, 1_000, 20 << 10, 70 << 10, 200 << 10];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Echo,
    Sleep,
    Stream,
    Fail,
    /// Runs for ever; cancelled by its submitter.
    Cancelled,
}

#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    bytes: usize,
    pub(crate) is_sync: bool,
    pub(crate) webhook: Option<String>,
    /// Whether it is sent with an `Idempotency-Key`, and so again after a lost answer.
    pub(crate) has_key: bool,
}

impl Submission {
    /// A submission of any kind. One in four has `webhook`.
    pub(crate) fn any(random: &mut Random, number: u64, webhook: &str) -> Self {
        let kind = match random.below(12) {
            0..=5 => Kind::Echo,
            6 | 7 => Kind::Sleep,
            8 => Kind::Stream,
            9 | 10 => Kind::Fail,
            _ => Kind::Cancelled,
        };
        let mut submission = Self::of(kind, random, number);
        submission.webhook = random.one_in(4).then(|| webhook.to_owned());
        submission.is_sync = kind != Kind::Cancelled && random.one_in(3);
        // An unknown one would never end.
        submission.has_key = kind == Kind::Cancelled || random.one_in(2);
        submission
    }

    /// A submission to stream from.
    pub(crate) fn stream(random: &mut Random, number: u64) -> Self {
        Self::of(Kind::Stream, random, number)
    }

    fn of(kind: Kind, random: &mut Random, number: u64) -> Self {
        let bytes = *random.pick(&SIZES).unwrap();
        // A long error text is cut.
        let bytes = if kind == Kind::Fail { bytes.min(1_000) } else { bytes };
        Self { number, kind, bytes, is_sync: false, webhook: None, has_key: true }
    }

    /// The unique bytes of each submission.
    fn text(&self) -> String {
        let grain = format!("grain-{} ", self.number);
        grain.repeat(self.bytes / grain.len() + 1)
    }

    /// The emitted chunks of a stream.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        let count = 3 + self.number % 6;
        let text = self.text();
        (0..count).map(|i| json!({ "i": i, "text": text })).collect()
    }

    fn input(&self) -> Value {
        match self.kind {
            Kind::Echo => json!({ "op": "echo", "value": self.text() }),
            Kind::Sleep => json!({ "op": "sleep", "ms": 30, "value": self.text() }),
            Kind::Stream => json!({ "op": "emit", "values": self.chunks(), "delay_ms": 15 }),
            Kind::Fail => json!({ "op": "fail", "message": self.text() }),
            Kind::Cancelled => json!({ "op": "sleep_forever" }),
        }
    }

    /// The name of the operation that submits it.
    pub(crate) fn operation(&self) -> &'static str {
        if self.is_sync { "runsync" } else { "run" }
    }

    /// The call, the same each time.
    pub(crate) fn request(&self, client: &Client) -> RequestBuilder {
        // With the longest wait the result is kept for longest: until it was audited twice.
        let path = if self.is_sync { "runsync?wait=300000" } else { "run" };
        let mut body = json!({ "input": self.input() });
        if let Some(url) = &self.webhook {
            body["webhook"] = json!(url);
        }
        let request = client.request(Method::POST, &client.path(MILL, path)).json(&body);
        match self.has_key {
            true => request.header("idempotency-key", format!("key-{}", self.number)),
            false => request,
        }
    }

    /// Whether this final document is permitted.
    pub(crate) fn permits(&self, document: &Value) -> bool {
        let is_given_up = document["error"].as_str().is_some_and(|e| e.contains("the host died"));
        if document["status"] == "FAILED" && is_given_up {
            return document["retries"].as_u64() >= Some(2);
        }
        let (status, field, expected) = match self.kind {
            Kind::Echo => ("COMPLETED", "output", json!({ "echo": self.text() })),
            Kind::Sleep => ("COMPLETED", "output", json!({ "slept": 30, "echo": self.text() })),
            Kind::Stream => ("COMPLETED", "output", Value::Array(self.chunks())),
            Kind::Fail => ("FAILED", "error", json!(self.text())),
            Kind::Cancelled => ("CANCELLED", "output", Value::Null),
        };
        document["status"] == status && document[field] == expected
    }
}
