//! The spans of an attempt in a sampled trace: `job`, from the moment when the job was queued, and
//! its child `attempt`, from the claim. A job that runs again has both for each attempt. Both are
//! made at the end of the attempt: an attempt whose host dies has none. A job that ends while it
//! waits has the span `job` alone.

use gristmill_core::id::{EndpointId, JobId, WorkerId};
use gristmill_core::job::record::Lease;
use gristmill_core::runtime::{AttemptEnd, AttemptReport};
use gristmill_core::signals::EarlyEnd;
use gristmill_core::trace::{Attributes, OpenSpan, SpanKind, TraceContext, Tracer};

/// Longest error in a span.
const ERROR_BYTES_MAX: usize = 1_024;

/// The open spans of an attempt.
#[derive(Debug)]
pub(crate) struct AttemptSpans {
    job: OpenSpan,
    attempt: OpenSpan,
}

/// The attempt that the spans are of.
#[derive(Debug)]
pub(crate) struct EndedAttempt<'a> {
    pub(crate) endpoint: &'a EndpointId,
    pub(crate) lease: Lease,
    pub(crate) number: u32,
    /// Time in the queue.
    pub(crate) waited_us: u64,
}

impl AttemptSpans {
    /// Opens the spans; `None` if the trace of the job is not recorded.
    pub(crate) fn open(tracer: &Tracer, job: Option<&TraceContext>) -> Option<Self> {
        let job = tracer.child(job, SpanKind::Consumer)?;
        let attempt = tracer.child(Some(&job.context()), SpanKind::Internal)?;
        Some(Self { job, attempt })
    }

    /// The parent of the requests of the attempt.
    pub(crate) fn context(&self) -> TraceContext {
        self.attempt.context()
    }

    /// Records the spans.
    pub(crate) fn end(self, of: &EndedAttempt<'_>, worker: &WorkerId, report: &AttemptReport) {
        let (kind, error) = match &report.end {
            AttemptEnd::Returned(_) => (None, None),
            AttemptEnd::Failed { reason, error } => (Some(reason.as_str()), Some(error.as_str())),
            AttemptEnd::DeadlineReached => (Some("timed_out"), Some("the attempt ran out of time")),
            AttemptEnd::Stopped => (Some("stopped"), Some("the attempt was stopped")),
            AttemptEnd::NoMemory => (Some("no_memory"), Some("the attempt got no memory")),
            AttemptEnd::HostLost(_) => {
                (Some("host_lost"), Some("the host of the attempt was lost"))
            }
            AttemptEnd::Left => (Some("left"), Some("the attempt goes on without this host")),
        };
        // Texts of errors come from handlers, and may be long.
        let error =
            error.map(|error| error[..error.floor_char_boundary(ERROR_BYTES_MAX)].to_owned());
        let usage = &report.usage;
        let mut attempt = of.attributes(kind);
        attempt.extend([
            ("gristmill.worker", worker.as_str().into()),
            ("gristmill.start_us", usage.instantiate_us.into()),
            ("gristmill.cpu_us", usage.cpu_us.into()),
            ("gristmill.memory_bytes_peak", usage.memory_bytes_peak.into()),
            ("gristmill.chunks", usage.chunks.into()),
        ]);
        attempt.extend(usage.fuel.map(|fuel| ("gristmill.fuel", fuel.into())));
        self.attempt.end("attempt".to_owned(), attempt, error.clone());
        self.job.end_after(of.waited_us, "job".to_owned(), of.attributes(kind), error);
    }
}

/// Records the span of a job that has ended while it waited, if its trace is recorded. A job that
/// expires while it runs has the spans of its attempt.
pub(crate) fn record_early_end(tracer: &Tracer, end: &EarlyEnd) {
    let Some(waited_ms) = end.waited_ms else { return };
    let Some(span) = tracer.child(end.trace.as_ref(), SpanKind::Consumer) else { return };
    let cause = end.cause.as_str();
    let mut attributes = attributes_of(&end.endpoint, end.job);
    attributes.push(("error.type", cause.into()));
    let error = format!("the job was {cause} while it waited");
    span.end_after(waited_ms.saturating_mul(1_000), "job".to_owned(), attributes, Some(error));
}

impl EndedAttempt<'_> {
    fn attributes(&self, error: Option<&'static str>) -> Attributes {
        let mut attributes = attributes_of(self.endpoint, self.lease.job);
        attributes.push(("gristmill.attempt", self.number.into()));
        attributes.extend(error.map(|error| ("error.type", error.into())));
        attributes
    }
}

fn attributes_of(endpoint: &EndpointId, job: JobId) -> Attributes {
    vec![
        ("messaging.system", "gristmill".into()),
        ("messaging.operation.type", "process".into()),
        ("messaging.destination.name", endpoint.as_str().into()),
        ("messaging.message.id", job.to_string().into()),
    ]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use gristmill_core::id::{JobId, ShardId, SubmissionKind};
    use gristmill_core::job::record::StoreEpoch;
    use gristmill_core::job::state::Claim;
    use gristmill_core::runtime::{FailureReason, Usage};
    use gristmill_core::trace::{AttributeValue, Sampler, Span};
    use gristmill_test_support::RecordedSpans;

    use super::*;

    fn spans_of(end: AttemptEnd) -> [Span; 2] {
        let sink = Arc::new(RecordedSpans::default());
        let tracer = Tracer::new(Sampler { follows_parent: true, ratio: 1.0 }, sink.clone());
        let (kept, _) = tracer.receive(None);
        let spans = AttemptSpans::open(&tracer, kept.as_ref()).unwrap();
        let context = spans.context();
        let endpoint = EndpointId::new("mill").unwrap();
        let job = JobId::generate(SubmissionKind::Async, ShardId(0));
        let lease = Lease { job, claim: Claim(2), epoch: StoreEpoch(1) };
        let ended = EndedAttempt { endpoint: &endpoint, lease, number: 2, waited_us: 4_000_000 };
        let report = AttemptReport {
            usage: Usage { fuel: Some(7), cpu_us: 8, ..Usage::default() },
            ..end.into()
        };
        spans.end(&ended, &WorkerId::new("w1-v3").unwrap(), &report);
        let [attempt, job_span] = <[Span; 2]>::try_from(sink.take()).unwrap();
        assert_eq!(attempt.context, context);
        assert_eq!(attempt.parent, Some(job_span.context.span));
        let kept = kept.unwrap();
        assert_eq!(job_span.parent, Some(kept.span));
        assert_eq!((&*attempt.name, &*job_span.name), ("attempt", "job"));
        assert_eq!(attempt.context.trace, kept.trace);
        assert!(job_span.duration_us >= 4_000_000 && attempt.duration_us < 4_000_000);
        [attempt, job_span]
    }

    fn value<'a>(span: &'a Span, wanted: &str) -> Option<&'a AttributeValue> {
        span.attributes.iter().find_map(|(name, value)| (*name == wanted).then_some(value))
    }

    #[test]
    fn an_attempt_has_two_spans_in_the_trace_of_its_job() {
        let [attempt, job] =
            spans_of(AttemptEnd::Returned(gristmill_core::job::payload::Json::null()));
        assert_eq!((&attempt.error, &job.error), (&None, &None));
        assert_eq!(value(&attempt, "gristmill.fuel"), Some(&7_u64.into()));
        assert_eq!(value(&attempt, "gristmill.worker"), Some(&"w1-v3".into()));
        assert_eq!(value(&job, "gristmill.attempt"), Some(&2_u32.into()));
        assert_eq!(value(&job, "messaging.destination.name"), Some(&"mill".into()));
        assert_eq!(value(&job, "error.type"), None);
    }

    #[test]
    fn a_failure_is_in_both_spans_and_bounded() {
        let error = "é".repeat(ERROR_BYTES_MAX);
        for span in spans_of(AttemptEnd::Failed { reason: FailureReason::Trap, error }) {
            assert_eq!(value(&span, "error.type"), Some(&"trap".into()));
            assert_eq!(span.error.unwrap().len(), ERROR_BYTES_MAX);
        }
    }
}
