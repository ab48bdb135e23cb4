//! The bounded queue between the host and the exporter, and the counters of both.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use gristmill_core::trace::{AttributeValue, Span, SpanCounts, SpanSink};
use parking_lot::Mutex;
use tokio::sync::Notify;

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
    waiting: VecDeque<Span>,
    is_closed: bool,
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
        while self.spans.lock().waiting.len() < self.batch {
            self.changed.notified().await;
        }
    }

    /// The oldest spans, at most one batch.
    pub(crate) fn take(&self) -> Vec<Span> {
        let mut spans = self.spans.lock();
        let number = spans.waiting.len().min(self.batch);
        spans.waiting.drain(..number).collect()
    }

    /// Drops what waits, and all later spans.
    pub(crate) fn close(&self) {
        let mut spans = self.spans.lock();
        spans.is_closed = true;
        add(&self.not_sent, std::mem::take(&mut spans.waiting).len());
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
        cut(&mut span.name);
        span.error.as_mut().map(cut);
        for (_, value) in &mut span.attributes {
            if let AttributeValue::Text(text) = value {
                cut(text);
            }
        }
        let mut spans = self.spans.lock();
        if spans.is_closed {
            add(&self.not_sent, 1);
        } else if spans.waiting.len() >= self.room {
            add(&self.queue_full, 1);
        } else {
            spans.waiting.push_back(span);
            if spans.waiting.len() >= self.batch {
                self.changed.notify_one();
            }
        }
    }
}

fn cut(text: &mut String) {
    if text.len() > TEXT_BYTES {
        text.truncate(text.floor_char_boundary(TEXT_BYTES));
        text.shrink_to_fit();
    }
}
