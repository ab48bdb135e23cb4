//! Which queues have changed since their last notification. The dispatcher gets each queue as it is
//! now, with a version, and not what has happened to it: a notification that is late, repeated or
//! lost between two others does no harm.
//!
//! **Bounds.** One entry for each endpoint. **Cost.** A number for each change, and a search in the
//! queue for each notification.

use crate::format::EndpointKey;

/// The changed queues.
#[derive(Debug, Default)]
pub(super) struct QueueChanges {
    /// Changes of all queues since the start.
    version: u64,
    pending: Vec<EndpointKey>,
}

/// The version of an endpoint's queue.
#[derive(Debug, Default)]
pub(super) struct QueueVersion {
    pub(super) number: u64,
    is_pending: bool,
}

impl QueueChanges {
    /// The queue of an endpoint has changed.
    pub(super) fn add(&mut self, key: EndpointKey, queue: &mut QueueVersion) {
        self.version += 1;
        queue.number = self.version;
        if !std::mem::replace(&mut queue.is_pending, true) {
            self.pending.push(key);
        }
    }

    /// The endpoint needs no notification of its changes so far.
    pub(super) fn remove(&mut self, key: EndpointKey, queue: &mut QueueVersion) {
        if std::mem::take(&mut queue.is_pending) {
            self.pending.retain(|pending| *pending != key);
        }
    }

    /// An endpoint that needs a notification.
    pub(super) fn pop(&mut self) -> Option<EndpointKey> {
        self.pending.pop()
    }
}

impl QueueVersion {
    /// A notification has the queue as it is now.
    pub(super) fn notified(&mut self) {
        self.is_pending = false;
    }
}
