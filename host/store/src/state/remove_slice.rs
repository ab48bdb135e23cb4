//! Removals that are too large for one step. The writer carries them out slice by slice between its
//! transactions. No call therefore holds the lock for long, the changes that wait for the disk stay
//! bounded, and a caller that is dropped does not stop the removal half-way.

use gristmill_core::job::state::JobEvent;
use gristmill_core::time::Timestamp;
use tokio::sync::oneshot;

use crate::format::EndpointKey;
use crate::state::backlog::Write;
use crate::state::bulk_removal::{BulkRemoval, Purged};
use crate::state::index::{Endpoint, Index};

/// Jobs that one slice removes or examines.
pub(crate) const SLICE: usize = 1_000;

impl Index {
    /// Carries out one slice of the first removal, if there is one.
    pub(crate) fn remove_slice(&mut self, now: Timestamp) {
        match self.bulk_removals.pop_front() {
            Some(BulkRemoval::Purge { endpoint, until, mut removed, answer }) => {
                let waiting = |endpoint: &Endpoint| {
                    let mut keys = endpoint.ready.before(until, SLICE);
                    let delayed = endpoint.delayed.below(until).map(|(_, key)| key);
                    keys.extend(delayed.take(SLICE - keys.len()));
                    keys
                };
                let keys = self.endpoints.get(&endpoint).map(waiting).unwrap_or_default();
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
                // From the newest to the oldest: a removed job is in the list until its removal is
                // on disk.
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

    /// All jobs in memory of an endpoint that is being deleted are removed. Its archived jobs are
    /// deleted by the database's thread, which then finds that there are no others: until it has,
    /// the endpoint stays, also when the last archived job expires or returns to memory meanwhile.
    fn end_of_memory(&mut self, key: EndpointKey) {
        let has_archived = self.endpoints.get(&key).is_some_and(|found| found.archived > 0);
        if let Some(deleting) = self.deleting_endpoints.iter_mut().find(|it| it.key == key) {
            deleting.has_left_memory = true;
            deleting.awaits_tables |= has_archived;
            if deleting.awaits_tables {
                return;
            }
        }
        self.backlog.push_last(Write::Forget(key));
    }

    /// All archived jobs of an endpoint that is being deleted are deleted for good.
    pub(crate) fn end_of_archived(&mut self, key: EndpointKey) {
        if let Some(endpoint) = self.endpoints.get_mut(&key) {
            // Damaged rows were counted, and their deletions were not.
            let left = std::mem::take(&mut endpoint.archived);
            self.archived.jobs = self.archived.jobs.saturating_sub(left);
            self.visible_jobs = self.visible_jobs.saturating_sub(left);
        }
        let deleting = self.deleting_endpoints.iter_mut().find(|it| it.key == key);
        let awaited = deleting.is_some_and(|it| std::mem::take(&mut it.awaits_tables));
        if awaited {
            self.backlog.push_last(Write::Forget(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::{EndpointId, OwnerId};
    use gristmill_core::job::record::JobCounts;

    use super::*;
    use crate::format::archived::{ArchivedJob, ArchivedSum};
    use crate::state::owners::Owners;

    /// The last archived jobs may expire after the jobs in memory are removed, and before the
    /// tables are asked for others.
    #[test]
    fn a_deletion_ends_although_its_archived_jobs_expire_meanwhile() {
        let mut index = Index::new(Owners::default());
        let (key, now) = (EndpointKey(1), Timestamp::from_millis(1));
        let owner = OwnerId::new("owner").unwrap();
        index.restore_endpoint(key, EndpointId::new("a").unwrap(), JobCounts::default());
        index.restore_archived(
            &ArchivedSum { endpoint: key, owner: owner.clone(), jobs: 1, kept: 5 },
            7,
        );
        drop(index.forget(&EndpointId::new("a").unwrap()));
        index.remove_slice(now);
        assert_eq!(index.deleting_with_archived(), Some(key));
        let job = ArchivedJob {
            seq: 7,
            endpoint: key,
            owner,
            kept: 5,
            created_at: 1,
            tags: None,
            purge_at: 0,
            delivered: None,
        };
        index.remove_archived([job].iter());
        assert_eq!(index.deleting_with_archived(), Some(key), "the deletion is not ended yet");
        assert!(index.backlog.is_empty());
        index.end_of_archived(key);
        assert_eq!(index.deleting_with_archived(), None);
        assert_eq!(index.backlog.len(), 1, "the endpoint is forgotten");
    }
}
