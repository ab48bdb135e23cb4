//! The record of a span that has ended.

use std::fmt;

use super::context::{SpanId, TraceContext};

/// The part of a span in a call between two programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work inside the host.
    Internal,
    /// A call that the host received.
    Server,
    /// A call that the host made.
    Client,
    /// Work on a message from a queue.
    Consumer,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
    /// A truth value.
    Flag(bool),
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> Self {
        Self::Number(number.into())
    }
}

impl From<u16> for AttributeValue {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for AttributeValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

/// Attributes by name. The names are those of the semantic conventions of OpenTelemetry where they
/// have one.
pub type Attributes = Vec<(&'static str, AttributeValue)>;

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// Its trace and its number.
    pub context: TraceContext,
    /// The span that it is a child of.
    pub parent: Option<SpanId>,
    /// A name with few different values.
    pub name: String,
    /// Its kind.
    pub kind: SpanKind,
    /// When it started, in microseconds since 1970.
    pub started_us: u64,
    /// Its duration in microseconds.
    pub duration_us: u64,
    /// Details.
    pub attributes: Attributes,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Receives the spans of sampled traces.
pub trait SpanSink: Send + Sync + fmt::Debug {
    /// Takes a span. Never waits: a sink without room drops and counts it.
    fn record(&self, span: Span);

    /// The numbers of spans so far.
    fn counts(&self) -> SpanCounts;
}

/// Numbers of spans since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// The collector accepted them.
    pub exported: u64,
    /// Dropped: the queue was full.
    pub queue_full: u64,
    /// Dropped: the collector refused them.
    pub refused: u64,
    /// Dropped: the collector could not be reached, or the host stopped before.
    pub not_sent: u64,
}
