//! Counters and durations of one endpoint's jobs, for the metrics that operators collect.
//!
//! They belong to the endpoint's [incarnation](crate::incarnation::EndpointIncarnation), so the
//! code of a job reaches them without a lookup. They count from the creation of the endpoint, or
//! the start of the host, and are never reset.
//!
//! **Cost.** About 4,100 bytes for each endpoint, and a dozen additions to atomic numbers for each
//! job.

use crate::metrics::failure_reason::FailureReason;
use crate::metrics::instruments::{Counter, DurationTotals, Durations, add, add_all, subtract_all};
use crate::metrics::requests::{RequestMetrics, RequestTotals};
use crate::metrics::spread::{RecentDurations, Spread};

/// The counters of one endpoint.
#[derive(Debug, Default)]
pub struct EndpointMetrics {
    submitted: [Counter; SubmittedBy::ALL.len()],
    refused: [Counter; RefusedFor::ALL.len()],
    finished: [Counter; FinishedAs::ALL.len()],
    requeued: Counter,
    cancelled: Counter,
    expired: Counter,
    webhooks: [Counter; WebhookEnd::ALL.len()],
    requests: [Counter; RequestEnd::ALL.len()],
    request: Durations,
    sent_bytes: Counter,
    received_bytes: Counter,
    chunks: Counter,
    log_lines_dropped: Counter,
    wait: Durations,
    start: Durations,
    run: Durations,
    cpu: Durations,
    recent_wait: RecentDurations,
    recent_run: RecentDurations,
    http: RequestMetrics,
}

/// The operation that submitted a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubmittedBy {
    /// `/run`.
    Run,
    /// `/runsync`, and the OpenAI routes, which wait for their jobs too.
    RunSync,
    /// The handler of another job.
    Handler,
    /// A schedule.
    Schedule,
}

/// The limit that refused a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedFor {
    /// Too many calls in ten seconds.
    RateLimited,
    /// Too many calls at one time.
    ConcurrencyLimited,
    /// A bound on jobs and their data.
    QueueFull,
    /// The disk has no room.
    DiskFull,
}

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishedAs {
    /// The handler returned.
    Completed,
    /// The attempt reached its executionTimeout.
    TimedOut,
    /// The attempt failed.
    Failed(FailureReason),
}

impl FinishedAs {
    /// All values.
    pub const ALL: [Self; 2 + FailureReason::ALL.len()] = [
        Self::Completed,
        Self::TimedOut,
        Self::Failed(FailureReason::Handler),
        Self::Failed(FailureReason::InvalidInput),
        Self::Failed(FailureReason::Trap),
        Self::Failed(FailureReason::MemoryLimit),
        Self::Failed(FailureReason::FuelLimit),
        Self::Failed(FailureReason::NoSpace),
        Self::Failed(FailureReason::InvalidOutput),
        Self::Failed(FailureReason::Host),
    ];

    fn index(self) -> usize {
        match self {
            Self::Completed => 0,
            Self::TimedOut => 1,
            Self::Failed(reason) => 2 + reason as usize,
        }
    }

    /// The label `status`.
    pub fn status(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::TimedOut => "timed_out",
            Self::Failed(_) => "failed",
        }
    }

    /// The label `reason`: empty unless the attempt failed.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Completed | Self::TimedOut => "",
            Self::Failed(reason) => reason.as_str(),
        }
    }
}

/// The end of an attempt to send a webhook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebhookEnd {
    /// The receiver accepted it.
    Delivered,
    /// It failed, and is tried again.
    Failed,
    /// It failed, and is not tried again.
    GivenUp,
}

/// The end of a request that a handler made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEnd {
    /// The receiver answered, with any status.
    Answered,
    /// The endpoint does not allow the receiver, or its address is refused.
    Denied,
    /// There was no answer in time: the request's or the attempt's time was over.
    TimedOut,
    /// The handler, or the early end of its attempt, ended the request before its answer.
    Abandoned,
    /// There was no connection.
    NotConnected,
    /// Anything else.
    Failed,
}

/// Defines the labels of a dimension: all values, and their texts.
macro_rules! labels {
    ($type:ident { $($value:ident: $text:literal),* $(,)? }) => {
        impl $type {
            /// All values.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$value),*];

            /// The value of the label.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $text,)* }
            }
        }
    };
}

labels!(SubmittedBy { Run: "run", RunSync: "runsync", Handler: "handler", Schedule: "schedule" });
labels!(RefusedFor {
    RateLimited: "rate_limited",
    ConcurrencyLimited: "concurrency_limited",
    QueueFull: "queue_full",
    DiskFull: "disk_full",
});
labels!(RequestEnd {
    Answered: "answered",
    Denied: "denied",
    TimedOut: "timed_out",
    Abandoned: "abandoned",
    NotConnected: "not_connected",
    Failed: "failed",
});
labels!(WebhookEnd { Delivered: "delivered", Failed: "failed", GivenUp: "given_up" });

/// The measured values of an attempt.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AttemptValues {
    /// Microseconds until the instance was ready.
    pub start_us: u64,
    /// Microseconds in which the handler ran.
    pub run_us: u64,
    /// Microseconds in which the handler held a processor.
    pub cpu_us: u64,
    /// Bytes of the bodies of its requests.
    pub sent_bytes: u64,
    /// Bytes of the bodies of their answers.
    pub received_bytes: u64,
    /// Chunks emitted.
    pub chunks: u64,
    /// Log lines beyond the bound of an attempt.
    pub log_lines_dropped: u64,
}

impl EndpointMetrics {
    /// Counts an accepted submission.
    pub fn submitted(&self, by: SubmittedBy) {
        add(&self.submitted, by as usize, 1);
    }

    /// Counts a refused submission.
    pub fn refused(&self, why: RefusedFor) {
        add(&self.refused, why as usize, 1);
    }

    /// Counts an attempt that begins, `waited_us` microseconds after its job was queued.
    pub fn started(&self, waited_us: u64) {
        self.wait.record(waited_us);
        self.recent_wait.record(waited_us);
    }

    /// Counts an attempt that has ended, with or without a result.
    pub fn ended(&self, values: AttemptValues) {
        self.start.record(values.start_us);
        self.run.record(values.run_us);
        self.recent_run.record(values.run_us);
        self.cpu.record(values.cpu_us);
        self.sent_bytes.add(values.sent_bytes);
        self.received_bytes.add(values.received_bytes);
        self.chunks.add(values.chunks);
        self.log_lines_dropped.add(values.log_lines_dropped);
    }

    /// Counts a result that the store has accepted.
    pub fn finished(&self, status: FinishedAs) {
        add(&self.finished, status.index(), 1);
    }

    /// Counts a job that was queued again, by a retry or because its attempt was released.
    pub fn requeued(&self) {
        self.requeued.add(1);
    }

    /// Counts jobs that calls have cancelled or purged.
    pub fn cancelled(&self, jobs: u64) {
        self.cancelled.add(jobs);
    }

    /// Counts a job whose ttl was over before it had a result.
    pub fn expired(&self) {
        self.expired.add(1);
    }

    /// Counts an attempt to send a webhook.
    pub fn webhook_ended(&self, end: WebhookEnd) {
        add(&self.webhooks, end as usize, 1);
    }

    /// Counts a request of a handler, which took `took_us` microseconds until the head of its
    /// answer.
    pub fn request_ended(&self, end: RequestEnd, took_us: u64) {
        add(&self.requests, end as usize, 1);
        self.request.record(took_us);
    }

    /// The counters of its HTTP requests.
    pub fn http(&self) -> &RequestMetrics {
        &self.http
    }

    /// The times that jobs waited and that attempts ran since the last call. The charts are the
    /// only caller.
    pub fn take_recent(&self) -> (Spread, Spread) {
        (self.recent_wait.take(), self.recent_run.take())
    }

    /// A number that grows with each submission, each result, each job that is queued again, and
    /// each HTTP request.
    pub fn activity(&self) -> u64 {
        let counters = self.submitted.iter().chain(&self.refused).chain(&self.finished);
        counters.map(Counter::get).sum::<u64>() + self.requeued.get() + self.http.count()
    }

    /// The present values.
    pub fn totals(&self) -> EndpointTotals {
        EndpointTotals {
            submitted: self.submitted.each_ref().map(Counter::get),
            refused: self.refused.each_ref().map(Counter::get),
            finished: self.finished.each_ref().map(Counter::get),
            requeued: self.requeued.get(),
            cancelled: self.cancelled.get(),
            expired: self.expired.get(),
            webhooks: self.webhooks.each_ref().map(Counter::get),
            requests: self.requests.each_ref().map(Counter::get),
            request: self.request.totals(),
            sent_bytes: self.sent_bytes.get(),
            received_bytes: self.received_bytes.get(),
            chunks: self.chunks.get(),
            log_lines_dropped: self.log_lines_dropped.get(),
            wait: self.wait.totals(),
            start: self.start.totals(),
            run: self.run.totals(),
            cpu: self.cpu.totals(),
            http: self.http.totals(),
        }
    }
}

/// The values of the counters at one time, or the sum over several endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointTotals {
    /// Accepted submissions, in the order of [`SubmittedBy::ALL`].
    pub submitted: [u64; SubmittedBy::ALL.len()],
    /// Refused submissions, in the order of [`RefusedFor::ALL`].
    pub refused: [u64; RefusedFor::ALL.len()],
    /// Results, in the order of [`FinishedAs::ALL`].
    pub finished: [u64; FinishedAs::ALL.len()],
    /// Jobs that were queued again.
    pub requeued: u64,
    /// Jobs that calls have cancelled or purged.
    pub cancelled: u64,
    /// Jobs whose ttl was over before they had a result.
    pub expired: u64,
    /// Attempts to send a webhook, in the order of [`WebhookEnd::ALL`].
    pub webhooks: [u64; WebhookEnd::ALL.len()],
    /// Requests of handlers, in the order of [`RequestEnd::ALL`].
    pub requests: [u64; RequestEnd::ALL.len()],
    /// Time of each request until the head of its answer.
    pub request: DurationTotals,
    /// Bytes of the bodies of those requests.
    pub sent_bytes: u64,
    /// Bytes of the bodies of their answers.
    pub received_bytes: u64,
    /// Chunks of streams.
    pub chunks: u64,
    /// Log lines beyond the bound of an attempt.
    pub log_lines_dropped: u64,
    /// Time between queueing and start of each attempt.
    pub wait: DurationTotals,
    /// Time until the instance of each attempt was ready.
    pub start: DurationTotals,
    /// Run time of each attempt.
    pub run: DurationTotals,
    /// Processor time of each attempt.
    pub cpu: DurationTotals,
    /// HTTP requests.
    pub http: RequestTotals,
}

impl EndpointTotals {
    /// Adds the values of another endpoint.
    pub fn add(&mut self, other: &Self) {
        add_all(&mut self.submitted, &other.submitted);
        add_all(&mut self.refused, &other.refused);
        add_all(&mut self.finished, &other.finished);
        self.requeued += other.requeued;
        self.cancelled += other.cancelled;
        self.expired += other.expired;
        add_all(&mut self.webhooks, &other.webhooks);
        add_all(&mut self.requests, &other.requests);
        self.request.add(&other.request);
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.chunks += other.chunks;
        self.log_lines_dropped += other.log_lines_dropped;
        self.wait.add(&other.wait);
        self.start.add(&other.start);
        self.run.add(&other.run);
        self.cpu.add(&other.cpu);
        self.http.add(&other.http);
    }

    /// The counts of the same endpoint since it had these `earlier` values.
    pub fn since(mut self, earlier: &Self) -> Self {
        subtract_all(&mut self.submitted, &earlier.submitted);
        subtract_all(&mut self.refused, &earlier.refused);
        subtract_all(&mut self.finished, &earlier.finished);
        self.requeued = self.requeued.saturating_sub(earlier.requeued);
        self.cancelled = self.cancelled.saturating_sub(earlier.cancelled);
        self.expired = self.expired.saturating_sub(earlier.expired);
        subtract_all(&mut self.webhooks, &earlier.webhooks);
        subtract_all(&mut self.requests, &earlier.requests);
        self.request.subtract(&earlier.request);
        self.sent_bytes = self.sent_bytes.saturating_sub(earlier.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_sub(earlier.received_bytes);
        self.chunks = self.chunks.saturating_sub(earlier.chunks);
        self.log_lines_dropped = self.log_lines_dropped.saturating_sub(earlier.log_lines_dropped);
        self.wait.subtract(&earlier.wait);
        self.start.subtract(&earlier.start);
        self.run.subtract(&earlier.run);
        self.cpu.subtract(&earlier.cpu);
        self.http.subtract(&earlier.http);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_is_counted_once_and_under_its_label() {
        let metrics = EndpointMetrics::default();
        for by in [SubmittedBy::Run, SubmittedBy::RunSync, SubmittedBy::RunSync] {
            metrics.submitted(by);
        }
        for (why, times) in RefusedFor::ALL.into_iter().zip(1..) {
            (0..times).for_each(|_| metrics.refused(why));
        }
        metrics.started(7);
        metrics.requeued();
        metrics.cancelled(4);
        metrics.expired();
        for (end, times) in WebhookEnd::ALL.into_iter().zip([3, 1, 2]) {
            (0..times).for_each(|_| metrics.webhook_ended(end));
        }
        for (end, times) in RequestEnd::ALL.into_iter().zip(1..) {
            (0..times).for_each(|_| metrics.request_ended(end, 10));
        }
        metrics.ended(AttemptValues {
            start_us: 30,
            run_us: 300,
            cpu_us: 200,
            sent_bytes: 11,
            received_bytes: 12,
            chunks: 5,
            log_lines_dropped: 2,
        });
        for (status, times) in FinishedAs::ALL.into_iter().zip(1..) {
            (0..times).for_each(|_| metrics.finished(status));
        }
        let totals = metrics.totals();
        assert_eq!(totals.submitted, [1, 2, 0, 0]);
        assert_eq!(totals.refused, [1, 2, 3, 4]);
        assert_eq!(totals.finished, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let labels = FinishedAs::ALL.map(|end| (end.status(), end.reason()));
        assert_eq!(labels[..3], [("completed", ""), ("timed_out", ""), ("failed", "handler")]);
        assert_eq!(labels[9], ("failed", "host"));
        let indices = FinishedAs::ALL.map(FinishedAs::index);
        assert!(indices.into_iter().eq(0..FinishedAs::ALL.len()), "{indices:?}");
        assert_eq!(totals.webhooks, [3, 1, 2]);
        assert_eq!(totals.requests, [1, 2, 3, 4, 5, 6]);
        assert_eq!((totals.request.count(), totals.request.sum_us), (21, 210));
        assert_eq!((totals.chunks, totals.log_lines_dropped, totals.requeued), (5, 2, 1));
        assert_eq!((totals.cancelled, totals.expired), (4, 1));
        assert_eq!((totals.sent_bytes, totals.received_bytes), (11, 12));
        assert_eq!((totals.wait.sum_us, totals.run.sum_us, totals.cpu.sum_us), (7, 300, 200));
        assert_eq!((totals.start.sum_us, totals.start.count()), (30, 1));
        let mut twice = totals.clone();
        twice.add(&totals);
        assert_eq!(twice.finished[..3], [2, 4, 6]);
        assert_eq!((twice.run.sum_us, twice.run.count()), (600, 2));
        assert_eq!(twice.clone().since(&totals), totals);
        assert_eq!(twice.clone().since(&twice), EndpointTotals::default());
    }
}
