//! The bounded queue between the host and the exporter, and the counters of both.
//!
//! Spans are encoded where they end, so that a span that waits for its batch is a part of one
//! buffer. As a dozen blocks of memory, which another thread freed seconds later, the spans of 1 %
//! of the jobs cost 4 % of the processor time of all jobs.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use gristmill_core::trace::{AttributeValue, Span, SpanCounts, SpanSink};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::encode::encode_span;

/// Most bytes of a name, an error, and each text attribute; the rest is cut off.
pub const TEXT_BYTES: usize = 4_096;

/// Takes spans for the exporter, and drops those that find no room.
#[derive(Debug)]
pub struct SpanQueue {
    spans: Mutex<Spans>,
    changed: Notify,
    room: usize,
    batch: usize,
    pub(crate) exported: AtomicU64,
    queue_full: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) not_sent: AtomicU64,
}

#[derive(Debug, Default)]
struct Spans {
    /// Only the last batch has room.
    waiting: VecDeque<Batch>,
    number: usize,
    is_closed: bool,
}

/// Encoded spans.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) spans: usize,
}

impl Spans {
    fn add(&mut self, span: &[u8], batch_max: usize) {
        if self.waiting.back().is_none_or(|last| last.spans >= batch_max) {
            self.waiting.push_back(Batch::default());
        }
        if let Some(last) = self.waiting.back_mut() {
            last.bytes.extend_from_slice(span);
            last.spans += 1;
            self.number += 1;
        }
    }
}

impl SpanQueue {
    pub(crate) fn new(room: usize, batch: usize) -> Self {
        Self {
            spans: Mutex::default(),
            changed: Notify::new(),
            room,
            batch,
            exported: AtomicU64::new(0),
            queue_full: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            not_sent: AtomicU64::new(0),
        }
    }

    /// Returns once a whole batch waits.
    pub(crate) async fn full_batch(&self) {
        while self.spans.lock().number < self.batch {
            self.changed.notified().await;
        }
    }

    /// The oldest spans, at most a full batch; `None` without spans.
    pub(crate) fn take(&self) -> Option<Batch> {
        let mut spans = self.spans.lock();
        let batch = spans.waiting.pop_front()?;
        spans.number -= batch.spans;
        Some(batch)
    }

    /// The counter of a span that is not taken.
    fn refusal(&self, spans: &Spans) -> Option<&AtomicU64> {
        match spans.is_closed {
            true => Some(&self.not_sent),
            false => (spans.number >= self.room).then_some(&self.queue_full),
        }
    }

    /// Drops what waits, and all later spans.
    pub(crate) fn close(&self) {
        let mut spans = self.spans.lock();
        spans.is_closed = true;
        spans.waiting.clear();
        add(&self.not_sent, std::mem::take(&mut spans.number));
    }
}

pub(crate) fn add(counter: &AtomicU64, number: usize) {
    counter.fetch_add(u64::try_from(number).unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl SpanSink for SpanQueue {
    fn counts(&self) -> SpanCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SpanCounts {
            exported: get(&self.exported),
            queue_full: get(&self.queue_full),
            refused: get(&self.refused),
            not_sent: get(&self.not_sent),
        }
    }

    fn record(&self, mut span: Span) {
        if let Some(counter) = self.refusal(&self.spans.lock()) {
            return add(counter, 1);
        }
        cut(&mut span.name);
        span.error.as_mut().map(cut);
        for (_, value) in &mut span.attributes {
            if let AttributeValue::Text(text) = value {
                cut(text);
            }
        }
        let span = encode_span(span);
        let mut spans = self.spans.lock();
        if let Some(counter) = self.refusal(&spans) {
            return add(counter, 1);
        }
        spans.add(&span, self.batch);
        if spans.number >= self.batch {
            self.changed.notify_one();
        }
    }
}

fn cut(text: &mut String) {
    if text.len() > TEXT_BYTES {
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        text.shrink_to_fit();
    }
}
