//! Distributed traces: the [context](TraceContext) that a caller sends as `traceparent` (W3C Trace
//! Context), and the [spans](Span) that the host records for sampled traces.
//!
//! **Promise.** Without a sampled trace nothing is recorded: the cost is one branch. A span is
//! recorded once, at its end; a full [`SpanSink`] drops it. **Bounds.** A context has
//! [`CONTEXT_BYTES`] bytes, and beside them the caller's `tracestate` of at most
//! [`STATE_BYTES_MAX`].
//!
//! Source: <https://www.w3.org/TR/trace-context/>.

mod context;
mod sampler;
mod span;
mod state;
mod tracer;

pub use context::{CONTEXT_BYTES, SpanId, TraceContext, TraceId};
pub use sampler::Sampler;
pub use span::{AttributeValue, Attributes, Span, SpanCounts, SpanKind, SpanSink};
pub use state::{STATE_BYTES_MAX, STATE_MEMBERS_MAX, TraceState};
pub use tracer::{OpenSpan, Tracer};
