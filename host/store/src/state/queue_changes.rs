//! Which queues have changed since the dispatcher was told. The dispatcher gets each queue as it is now, with a
//! version, and not what has happened to it: a notification that is late, repeated or lost between two others
//! does no harm.
//!
//! **Bounds.** One entry for each endpoint. **Cost.** A number for each change, and a search in the queue for
//! each notification.

use crate::format::EndpointKey;

/// The changed queues.
#[derive(Debug, Default)]
pub(super) struct QueueChanges {
    /// Changes of all queues since the start.
    version: u64,
    untold: Vec<EndpointKey>,
}

/// The version of an endpoint's queue.
#[derive(Debug, Default)]
pub(super) struct QueueVersion {
    pub(super) number: u64,
    is_untold: bool,
}

impl QueueChanges {
    /// The queue of an endpoint has changed.
    pub(super) fn add(&mut self, key: EndpointKey, queue: &mut QueueVersion) {
        self.version += 1;
        queue.number = self.version;
        if !std::mem::replace(&mut queue.is_untold, true) {
            self.untold.push(key);
        }
    }

    /// An endpoint whose queue is to be told.
    pub(super) fn pop(&mut self) -> Option<EndpointKey> {
        self.untold.pop()
    }
}

impl QueueVersion {
    /// The queue is told as it is now.
    pub(super) fn told(&mut self) {
        self.is_untold = false;
    }
}
