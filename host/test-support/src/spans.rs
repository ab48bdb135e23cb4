//! Spans in memory.

use gristmill_core::trace::{Span, SpanCounts, SpanSink};
use parking_lot::Mutex;

/// Remembers the spans that end, in this order.
#[derive(Debug, Default)]
pub struct RecordedSpans(Mutex<Vec<Span>>);

impl RecordedSpans {
    /// The spans since the last call.
    pub fn take(&self) -> Vec<Span> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl SpanSink for RecordedSpans {
    fn record(&self, span: Span) {
        self.0.lock().push(span);
    }

    fn counts(&self) -> SpanCounts {
        SpanCounts::default()
    }
}
