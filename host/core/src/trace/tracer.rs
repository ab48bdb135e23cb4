//! The making of spans.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::context::{SpanId, TraceContext, TraceId};
use super::sampler::Sampler;
use super::span::{Attributes, Span, SpanCounts, SpanKind, SpanSink};
use super::state::TraceState;

/// Makes the spans of the host.
#[derive(Debug, Clone, Default)]
pub struct Tracer(Option<Arc<Recording>>);

#[derive(Debug)]
struct Recording {
    sampler: Sampler,
    sink: Arc<dyn SpanSink>,
}

impl Tracer {
    /// A tracer that records the traces that the sampler selects.
    pub fn new(sampler: Sampler, sink: Arc<dyn SpanSink>) -> Self {
        Self(Some(Arc::new(Recording { sampler, sink })))
    }

    /// The context to keep with a job that was submitted with `caller`'s, and the span of the
    /// submission if the trace is sampled. The kept context is in that span. A tracer that records
    /// nothing keeps the caller's context as it is.
    pub fn receive(
        &self,
        caller: Option<TraceContext>,
    ) -> (Option<TraceContext>, Option<OpenSpan>) {
        let Some(recording) = &self.0 else { return (caller, None) };
        let trace = caller.as_ref().map_or_else(TraceId::random, |caller| caller.trace);
        if !recording.sampler.decides(caller.as_ref(), trace) {
            return (caller.map(|caller| TraceContext { is_sampled: false, ..caller }), None);
        }
        let (parent, state) = caller.map(|caller| (caller.span, caller.state)).unzip();
        let state = state.unwrap_or_default();
        let span = OpenSpan::start(recording, trace, parent, SpanKind::Server, state);
        (Some(span.context()), Some(span))
    }

    /// The numbers of spans so far; `None` for a tracer that records nothing.
    pub fn counts(&self) -> Option<SpanCounts> {
        self.0.as_ref().map(|recording| recording.sink.counts())
    }

    /// The child of a span; `None` if its trace is not recorded.
    pub fn child(&self, of: Option<&TraceContext>, kind: SpanKind) -> Option<OpenSpan> {
        let of = of.filter(|of| of.is_sampled)?;
        Some(OpenSpan::start(self.0.as_ref()?, of.trace, Some(of.span), kind, of.state.clone()))
    }
}

/// A span that has not ended. It is recorded by [`end`](Self::end) only.
#[derive(Debug)]
pub struct OpenSpan {
    sink: Arc<dyn SpanSink>,
    context: TraceContext,
    parent: Option<SpanId>,
    kind: SpanKind,
    started_us: u64,
    started: Instant,
}

impl OpenSpan {
    fn start(
        recording: &Recording,
        trace: TraceId,
        parent: Option<SpanId>,
        kind: SpanKind,
        state: TraceState,
    ) -> Self {
        Self {
            sink: recording.sink.clone(),
            context: TraceContext { trace, span: SpanId::random(), is_sampled: true, state },
            parent,
            kind,
            started_us: now_us(),
            started: Instant::now(),
        }
    }

    /// The context for its children.
    pub fn context(&self) -> TraceContext {
        self.context.clone()
    }

    /// Records the span, which ends now.
    pub fn end(self, name: String, attributes: Attributes, error: Option<String>) {
        let duration_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.record(name, duration_us, attributes, error);
    }

    /// Records the span as one that started `earlier_us` before it was opened, and ends now.
    pub fn end_after(
        self,
        earlier_us: u64,
        name: String,
        attributes: Attributes,
        error: Option<String>,
    ) {
        let open_us = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let started_us = self.started_us.saturating_sub(earlier_us);
        let span = Self { started_us, ..self };
        span.record(name, open_us.saturating_add(earlier_us), attributes, error);
    }

    fn record(self, name: String, duration_us: u64, attributes: Attributes, error: Option<String>) {
        let Self { sink, context, parent, kind, started_us, .. } = self;
        sink.record(Span {
            context,
            parent,
            name,
            kind,
            started_us,
            duration_us,
            attributes,
            error,
        });
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "spans lie beside those of other programs, so a clock of a test would be wrong here"
)]
fn now_us() -> u64 {
    // A clock before 1970 gives 0.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "tracer_tests.rs"]
mod tests;
