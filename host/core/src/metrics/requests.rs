//! Counters and durations of one endpoint's HTTP requests.
//!
//! **Cost.** Some 420 bytes for each endpoint, and seven additions for each request.

use std::time::Duration;

use http::StatusCode;

use crate::metrics::instruments::{Counter, DurationTotals, Durations, add, add_all, subtract_all};

/// The counters.
#[derive(Debug, Default)]
pub struct RequestMetrics {
    answers: [Counter; AnswerClass::ALL.len()],
    bytes_in: Counter,
    bytes_out: Counter,
    head: Durations,
    whole: Durations,
}

/// The class of the status that a client got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerClass {
    /// 200 to 299.
    Success,
    /// 300 to 399.
    Redirection,
    /// 400 to 499.
    ClientError,
    /// 500 and more.
    ServerError,
    /// The client has left before the head of the answer.
    ClientLeft,
}

impl AnswerClass {
    /// All values.
    pub const ALL: [Self; 5] =
        [Self::Success, Self::Redirection, Self::ClientError, Self::ServerError, Self::ClientLeft];

    /// That of a status. A handler answers with none below 200.
    pub fn of(status: StatusCode) -> Self {
        match status.as_u16() {
            0..300 => Self::Success,
            300..400 => Self::Redirection,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }

    /// The label `status`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "2xx",
            Self::Redirection => "3xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
            Self::ClientLeft => "499",
        }
    }
}

/// The measured values of a request.
#[derive(Debug)]
pub struct RequestValues {
    /// The class of its status.
    pub class: AnswerClass,
    /// The time until the head of its answer, if there was one.
    pub head: Option<Duration>,
    /// The time until its end.
    pub whole: Duration,
    /// Bytes of its body that the handler has taken.
    pub bytes_in: u64,
    /// Bytes of the answer's body.
    pub bytes_out: u64,
}

impl RequestMetrics {
    /// Counts a request that has ended.
    pub fn ended(&self, values: &RequestValues) {
        let us = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        add(&self.answers, values.class as usize, 1);
        self.bytes_in.add(values.bytes_in);
        self.bytes_out.add(values.bytes_out);
        if let Some(head) = values.head {
            self.head.record(us(head));
        }
        self.whole.record(us(values.whole));
    }

    /// The number of requests that have ended.
    pub(super) fn count(&self) -> u64 {
        self.answers.iter().map(Counter::get).sum()
    }

    /// The present values.
    pub fn totals(&self) -> RequestTotals {
        RequestTotals {
            answers: self.answers.each_ref().map(Counter::get),
            bytes_in: self.bytes_in.get(),
            bytes_out: self.bytes_out.get(),
            head: self.head.totals(),
            whole: self.whole.totals(),
        }
    }
}

/// The values of the counters at one time, or the sum over several endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// Requests that have ended, in the order of [`AnswerClass::ALL`].
    pub answers: [u64; AnswerClass::ALL.len()],
    /// Bytes of their bodies.
    pub bytes_in: u64,
    /// Bytes of the answers' bodies.
    pub bytes_out: u64,
    /// Time until the head of each answer.
    pub head: DurationTotals,
    /// Time until the end of each request.
    pub whole: DurationTotals,
}

impl RequestTotals {
    pub(super) fn add(&mut self, other: &Self) {
        add_all(&mut self.answers, &other.answers);
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.head.add(&other.head);
        self.whole.add(&other.whole);
    }

    pub(super) fn subtract(&mut self, earlier: &Self) {
        subtract_all(&mut self.answers, &earlier.answers);
        self.bytes_in = self.bytes_in.saturating_sub(earlier.bytes_in);
        self.bytes_out = self.bytes_out.saturating_sub(earlier.bytes_out);
        self.head.subtract(&earlier.head);
        self.whole.subtract(&earlier.whole);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_has_a_class() {
        for (status, label) in
            [(200, "2xx"), (299, "2xx"), (308, "3xx"), (499, "4xx"), (500, "5xx"), (999, "5xx")]
        {
            let class = AnswerClass::of(StatusCode::from_u16(status).unwrap());
            assert_eq!(class.as_str(), label, "{status}");
        }
        let indices = AnswerClass::ALL.map(|class| class as usize);
        assert!(indices.into_iter().eq(0..AnswerClass::ALL.len()));
    }

    #[test]
    fn totals_add_up_and_differ() {
        let metrics = RequestMetrics::default();
        let value = |head| RequestValues {
            class: AnswerClass::ServerError,
            head,
            whole: Duration::from_micros(30),
            bytes_in: 3,
            bytes_out: 4,
        };
        metrics.ended(&value(Some(Duration::from_micros(20))));
        let earlier = metrics.totals();
        metrics.ended(&value(None));
        let mut both = metrics.totals();
        assert_eq!((both.answers, metrics.count()), ([0, 0, 0, 2, 0], 2));
        assert_eq!((both.bytes_in, both.bytes_out), (6, 8));
        assert_eq!((both.head.sum_us, both.whole.sum_us), (20, 60));
        both.add(&earlier);
        both.subtract(&metrics.totals());
        assert_eq!(both, earlier);
    }
}
