//! The export of traces to a collector, by OTLP over HTTP.
//!
//! **Promise.** Nothing leaves the host unless an endpoint variable of OpenTelemetry is set. A
//! collector that hangs, refuses or is away never blocks a job: a full queue drops spans and counts
//! them. **Bounds.** The queue has `OTEL_BSP_MAX_QUEUE_SIZE` spans, whose texts have [`TEXT_BYTES`]
//! bytes at most; one batch is sent at a time, and [`ANSWER_BYTES`] of an answer are read.
//! **Cost.** A span is encoded where it ends, and costs two short locks; the task of the
//! [`Exporter`] sends batches, and compresses them if `OTEL_EXPORTER_OTLP_COMPRESSION` is `gzip`.

mod encode;
mod exporter;
mod messages;
mod queue;
mod settings;

pub use exporter::{ANSWER_BYTES, CannotExport, Exporter};
pub use queue::{SpanQueue, TEXT_BYTES};
pub use settings::{InvalidSetting, TraceSettings};
