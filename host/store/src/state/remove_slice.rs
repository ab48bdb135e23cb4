//! Removals that are too large for one step. The writer carries them out slice by slice between its
//! transactions. No call therefore holds the lock for long, the changes that wait for the disk stay
//! bounded, and a caller that is dropped does not stop the removal half-way.

use gristmill_core::job::JobEvent;
use gristmill_core::time::Timestamp;
use tokio::sync::oneshot;

use crate::format::EndpointKey;
use crate::state::backlog::Write;
use crate::state::bulk_removal::{BulkRemoval, Purged};
use crate::state::index::Index;

/// Jobs that one slice removes or examines.
pub(crate) const SLICE: usize = 1_000;

impl Index {
    /// Carries out one slice of the first removal, if there is one.
    pub(crate) fn remove_slice(&mut self, now: Timestamp) {
        match self.bulk_removals.pop_front() {
            Some(BulkRemoval::Purge { endpoint, until, mut removed, answer }) => {
                let ready = self.endpoints.get(&endpoint).map(|endpoint| &endpoint.ready);
                let keys = ready.map(|ready| ready.before(until, SLICE)).unwrap_or_default();
                for &key in &keys {
                    let purged = self.decide(key, JobEvent::Purged, now);
                    debug_assert!(purged.is_ok(), "a job in the queue can be purged");
                    removed += 1;
                }
                if keys.len() == SLICE {
                    self.bulk_removals.push_front(BulkRemoval::Purge {
                        endpoint,
                        until,
                        removed,
                        answer,
                    });
                } else {
                    let (ack, on_disk) = oneshot::channel();
                    self.ack_all(ack);
                    // A dropped receiver means that the caller does not need the answer any more.
                    let _ = answer.send(Purged { removed, on_disk });
                }
            }
            Some(BulkRemoval::Forget { endpoint, before }) => {
                // From the newest to the oldest: a removed job is in the list until its removal is on
                // disk.
                let history = self.endpoints.get(&endpoint).map(|endpoint| &endpoint.history);
                let slice = history.map(|history| history.below(before).rev().take(SLICE));
                let slice: Vec<_> = slice.into_iter().flatten().collect();
                for &(_, key) in &slice {
                    // The jobs end with their endpoint, as if their ttl had passed. A job that is
                    // removed already refuses the event.
                    let _ = self.decide(key, JobEvent::TtlElapsed, now);
                }
                match slice.last() {
                    Some(&(before, _)) if slice.len() == SLICE => {
                        self.bulk_removals.push_front(BulkRemoval::Forget { endpoint, before });
                    }
                    Some(_) | None => self.end_of_memory(endpoint),
                }
            }
            None => {}
        }
    }

    /// All jobs in memory of an endpoint that is being deleted are removed. Its archived jobs are deleted by
    /// the database's thread.
    fn end_of_memory(&mut self, key: EndpointKey) {
        if let Some(deleting) = self.deleting_endpoints.iter_mut().find(|it| it.key == key) {
            deleting.has_left_memory = true;
        }
        if self.endpoints.get(&key).is_none_or(|endpoint| endpoint.archived == 0) {
            self.backlog.push_last(Write::Forget(key));
        }
    }

    /// All archived jobs of an endpoint that is being deleted are deleted for good.
    pub(crate) fn end_of_archived(&mut self, key: EndpointKey) {
        if let Some(endpoint) = self.endpoints.get_mut(&key) {
            debug_assert_eq!(endpoint.archived, 0, "its rows were counted");
            endpoint.archived = 0;
        }
        if self.deleting_endpoints.iter().any(|it| it.key == key && it.has_left_memory) {
            self.backlog.push_last(Write::Forget(key));
        }
    }
}
