//! The submissions of the load, and their permitted ends.

use std::time::Duration;

use gristmill_tests::Client;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::hosts::sleep;

/// The endpoint of all jobs.
pub(crate) const ENDPOINT: &str = "play";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Sleeps for so many milliseconds.
    Sleep(u64),
    /// Emits chunks; their list is its output.
    Stream,
    /// Emits chunks, and fails. It is retried up to twice.
    Fail,
    /// Waits for ever, and is cancelled.
    Endless,
    /// Sleeps, and is cancelled at about the time of its end.
    Contested,
}

/// A numbered job. All its choices follow from the number and the seed of the run.
#[derive(Debug, Clone)]
pub(crate) struct Submission {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) is_sync: bool,
    /// Whether the client sends it again after its answer.
    pub(crate) is_repeated: bool,
    pub(crate) webhook: Option<String>,
    /// How long after the answer its client cancels it.
    pub(crate) cancel_after: Option<Duration>,
    chunks: u64,
    delay_ms: u64,
}

impl Submission {
    pub(crate) fn new(seed: u64, number: u64, webhook: &str) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let kind = match random.random_range(0..12) {
            0..=3 => Kind::Sleep(5),
            4 => Kind::Sleep(50),
            5 => Kind::Sleep(700),
            6 | 7 => Kind::Stream,
            8 | 9 => Kind::Fail,
            10 => Kind::Endless,
            _ => Kind::Contested,
        };
        let cancel_ms = match kind {
            Kind::Endless => Some(random.random_range(0..2_000)),
            Kind::Contested => Some(random.random_range(0..600)),
            Kind::Sleep(_) | Kind::Stream | Kind::Fail => None,
        };
        Self {
            number,
            kind,
            is_sync: cancel_ms.is_none() && random.random_bool(0.3),
            is_repeated: random.random_bool(0.25),
            webhook: random.random_bool(0.25).then(|| webhook.to_owned()),
            cancel_after: cancel_ms.map(Duration::from_millis),
            chunks: random.random_range(2..12),
            // Some streams last longer than a take-over.
            delay_ms: [0, 15, 120, 400][random.random_range(0..4)],
        }
    }

    /// The chunks that it emits.
    pub(crate) fn chunks(&self) -> Vec<Value> {
        match self.kind {
            Kind::Stream | Kind::Fail => {
                (0..self.chunks).map(|i| json!({ "i": i, "of": self.number })).collect()
            }
            Kind::Sleep(_) | Kind::Endless | Kind::Contested => Vec::new(),
        }
    }

    fn message(&self) -> String {
        format!("job {} fails", self.number)
    }

    fn input(&self) -> Value {
        let mut emit = json!({ "op": "emit", "values": self.chunks(), "delay_ms": self.delay_ms });
        match self.kind {
            Kind::Sleep(ms) => sleep(ms, self.number),
            Kind::Contested => sleep(300, self.number),
            Kind::Endless => json!({ "op": "sleep_forever" }),
            Kind::Stream => emit,
            Kind::Fail => {
                emit["message"] = json!(self.message());
                emit
            }
        }
    }

    /// The name of the operation that submits it.
    pub(crate) fn operation(&self) -> &'static str {
        if self.is_sync { "runsync" } else { "run" }
    }

    /// The call, the same each time.
    pub(crate) fn request(&self, client: &Client) -> RequestBuilder {
        let mut body = json!({ "input": self.input() });
        if let Some(url) = &self.webhook {
            body["webhook"] = json!(url);
        }
        let path = if self.is_sync { "runsync?wait=4000" } else { "run" };
        let request = client.request(Method::POST, &client.path(ENDPOINT, path));
        request.header("idempotency-key", format!("n-{}", self.number)).json(&body)
    }

    /// Whether the job may end with this document, after a cancel was sent or without one.
    pub(crate) fn permits(&self, document: &Value, is_cancel_sent: bool) -> bool {
        if is_cancel_sent && document["status"] == "CANCELLED" {
            return document["output"].is_null();
        }
        let slept = |ms: u64| json!({ "slept": ms, "echo": self.number });
        let (status, field, expected) = match self.kind {
            Kind::Sleep(ms) => ("COMPLETED", "output", slept(ms)),
            Kind::Contested => ("COMPLETED", "output", slept(300)),
            Kind::Stream => ("COMPLETED", "output", Value::Array(self.chunks())),
            Kind::Fail => ("FAILED", "error", json!(self.message())),
            Kind::Endless => return false,
        };
        document["status"] == status && document[field] == expected
    }
}
