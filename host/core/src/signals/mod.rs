//! Notifications of changed jobs. The store sends them; waiting requests, running attempts and the
//! dispatcher receive them.
//!
//! Signals are level-triggered: a listener subscribes, *then* reads the state, then waits. A signal
//! carries no state, so a duplicate or early signal does no harm. Cost: one map entry per listener;
//! nothing for a job without listeners.

pub mod event_notice;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio::sync::Notify;

use self::event_notice::{JobEventNotice, JobListener};
use crate::deploy::endpoint::EndpointType;
use crate::id::{EndpointId, JobId};
use crate::job::record::Demand;
use crate::trace::TraceContext;

/// Receives a notification when a queue has changed, and when a job ended that no worker has
/// claimed. Must be quick and must not block.
pub trait QueueListener: Send + Sync {
    /// The queue of the endpoint has changed: a job waits, or one was claimed or removed. Calls may
    /// be late, and in another order than the changes; the version of `demand` says which of two is
    /// newer.
    fn demand_changed(&self, endpoint: &EndpointId, demand: Demand);

    /// A job has ended without a result.
    fn job_ended_early(&self, _end: &EarlyEnd) {}
}

/// The end of a job without a result: by its ttl, or before its first attempt. The store sends it
/// as soon as it has decided; a crash may undo a decision, and the next process sends it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlyEnd {
    /// The job's endpoint.
    pub endpoint: EndpointId,
    /// The job.
    pub job: JobId,
    /// Why.
    pub cause: EarlyEndCause,
    /// How long it has waited for a worker, in milliseconds; `None`: it ran.
    pub waited_ms: Option<u64>,
    /// Its position in a distributed trace.
    pub trace: Option<TraceContext>,
}

/// Why a job has ended without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EarlyEndCause {
    /// Its ttl is over.
    Expired,
    /// A call cancelled it while it waited.
    Cancelled,
    /// A call purged the queue.
    Purged,
}

impl EarlyEndCause {
    /// The cause in one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Purged => "purged",
        }
    }
}

/// The exchange between the store and its listeners.
#[derive(Default)]
pub struct Signals {
    queues: OnceLock<Arc<dyn QueueListener>>,
    events: OnceLock<Arc<dyn JobListener>>,
    deliveries: Notify,
    due: Notify,
    // Sharded by job, so that two cores rarely meet at one lock.
    watchers: [Mutex<HashMap<JobId, Watchers>>; SHARDS],
}

const SHARDS: usize = 16;

#[derive(Default)]
struct Watchers {
    notify: Arc<Notify>,
    count: usize,
}

impl std::fmt::Debug for Signals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

impl Signals {
    /// Sets the receiver of notifications about queues. Only the first call counts.
    pub fn set_queue_listener(&self, listener: Arc<dyn QueueListener>) {
        let is_first = self.queues.set(listener).is_ok();
        debug_assert!(is_first, "there is one dispatcher");
    }

    /// Sets the observer of jobs. Only the first call counts.
    pub fn set_job_listener(&self, listener: Arc<dyn JobListener>) {
        let is_first = self.events.set(listener).is_ok();
        debug_assert!(is_first, "there is one listener");
    }

    /// Notifies the observer of an event of a job, or of a request on an endpoint of that kind.
    pub fn notify_job_event(&self, kind: EndpointType, id: JobId, notice: JobEventNotice<'_>) {
        if let Some(listener) = self.events.get() {
            listener.notify_job_event(kind, id, notice);
        }
    }

    /// Called by the store when a job waits for its time.
    pub fn due_added(&self) {
        self.due.notify_one();
    }

    /// Resolves after a call of [`due_added`](Self::due_added) since the last time.
    pub async fn due_is_added(&self) {
        self.due.notified().await;
    }

    /// Called by the store as soon as a job can be claimed.
    pub fn job_queued(&self, job: JobId) {
        self.notify_job_event(EndpointType::Queue, job, JobEventNotice::Queued);
    }

    /// Called by the store after each change of an endpoint's queue, without its lock.
    pub fn demand_changed(&self, endpoint: &EndpointId, demand: Demand) {
        if let Some(listener) = self.queues.get() {
            listener.demand_changed(endpoint, demand);
        }
    }

    /// Called by the store for a job that has ended without a result: whenever a ttl is over, and
    /// else for jobs in sampled traces only.
    pub fn ended_early(&self, end: &EarlyEnd) {
        if let Some(listener) = self.queues.get() {
            listener.job_ended_early(end);
        }
    }

    /// Called by the store after a change of the job became visible.
    pub fn changed(&self, id: JobId) {
        if let Some(watchers) = self.shard(id).lock().get(&id) {
            watchers.notify.notify_waiters();
        }
    }

    /// Wakes all listeners to jobs, although no job has changed, so that they check their other
    /// reasons to stop waiting. They wake in the order of their jobs' ids, so that a simulation of
    /// the host can be repeated.
    pub fn wake_all(&self) {
        for shard in &self.watchers {
            let shard = shard.lock();
            let mut watched: Vec<_> = shard.iter().collect();
            watched.sort_unstable_by_key(|(id, _)| **id);
            watched.into_iter().for_each(|(_, watchers)| watchers.notify.notify_waiters());
        }
    }

    /// Called by the store after a webhook was added to its outbox.
    pub fn delivery_added(&self) {
        self.deliveries.notify_one();
    }

    /// Completes when a webhook was added since the last call completed. There is one listener.
    pub async fn delivery_to_send(&self) {
        self.deliveries.notified().await;
    }

    /// Listens to one job until the returned value is dropped.
    pub fn watch(self: &Arc<Self>, id: JobId) -> JobWatch {
        let mut shard = self.shard(id).lock();
        let watchers = shard.entry(id).or_default();
        watchers.count += 1;
        let notify = watchers.notify.clone();
        drop(shard);
        JobWatch { signals: self.clone(), id, notify }
    }

    /// Number of jobs with listeners.
    pub fn watched_jobs(&self) -> usize {
        self.watchers.iter().map(|shard| shard.lock().len()).sum()
    }

    fn shard(&self, id: JobId) -> &Mutex<HashMap<JobId, Watchers>> {
        // The last byte of a UUIDv7 is random.
        let [.., random, _, _, _] = id.to_bytes();
        #[expect(clippy::indexing_slicing, reason = "the remainder is below SHARDS")]
        &self.watchers[usize::from(random) % SHARDS]
    }
}

/// One listener to one job.
pub struct JobWatch {
    signals: Arc<Signals>,
    id: JobId,
    notify: Arc<Notify>,
}

impl std::fmt::Debug for JobWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JobWatch").field("id", &self.id).finish_non_exhaustive()
    }
}

impl JobWatch {
    /// A future that completes at the next change. It listens from the moment of this call: call
    /// this before you read the state, and await the future afterwards.
    pub fn changed(&self) -> std::pin::Pin<Box<tokio::sync::futures::OwnedNotified>> {
        let mut notified = Box::pin(self.notify.clone().notified_owned());
        notified.as_mut().enable();
        notified
    }
}

impl Drop for JobWatch {
    fn drop(&mut self) {
        let mut shard = self.signals.shard(self.id).lock();
        if let Some(watchers) = shard.get_mut(&self.id) {
            watchers.count -= 1;
            if watchers.count == 0 {
                shard.remove(&self.id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ShardId, SubmissionKind};

    #[tokio::test]
    async fn a_change_between_reading_and_waiting_is_not_missed() {
        let signals = Arc::new(Signals::default());
        let id = JobId::generate(SubmissionKind::Async, ShardId(0));
        let watch = signals.watch(id);
        let changed = watch.changed();
        signals.changed(id);
        changed.await;
    }

    #[test]
    fn a_job_without_watchers_takes_no_memory() {
        let signals = Arc::new(Signals::default());
        let id = JobId::generate(SubmissionKind::Async, ShardId(0));
        let watches = [signals.watch(id), signals.watch(id)];
        signals.changed(id);
        assert_eq!(signals.watched_jobs(), 1);
        drop(watches);
        assert_eq!(signals.watched_jobs(), 0);
    }
}
