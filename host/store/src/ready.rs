//! The queue of one endpoint: normal jobs before low-priority ones, each by place.

use std::collections::BTreeMap;

use crate::slab::JobKey;

/// Jobs that wait on one endpoint. About 25 bytes for each; every operation costs a search in an
/// ordered map.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    normal: BTreeMap<u64, JobKey>,
    low: BTreeMap<u64, JobKey>,
}

impl Ready {
    pub(crate) fn len(&self) -> usize {
        self.normal.len() + self.low.len()
    }

    /// Jobs that are not low priority.
    pub(crate) fn normal_len(&self) -> usize {
        self.normal.len()
    }

    pub(crate) fn insert(&mut self, low_priority: bool, place: u64, key: JobKey) {
        let replaced = self.queue(low_priority).insert(place, key);
        debug_assert!(replaced.is_none(), "a place is given to one job");
    }

    pub(crate) fn remove(&mut self, low_priority: bool, place: u64) {
        let removed = self.queue(low_priority).remove(&place);
        debug_assert!(removed.is_some(), "a job that waits is in the queue");
    }

    /// The job that is claimed next.
    pub(crate) fn first(&self) -> Option<JobKey> {
        let (_, key) = self.normal.first_key_value().or_else(|| self.low.first_key_value())?;
        Some(*key)
    }

    /// Up to `count_max` jobs with a place before `until`, in the order of their claims.
    pub(crate) fn before(&self, until: u64, count_max: usize) -> Vec<JobKey> {
        let queues = self.normal.range(..until).chain(self.low.range(..until));
        queues.map(|(_, key)| *key).take(count_max).collect()
    }

    fn queue(&mut self, low_priority: bool) -> &mut BTreeMap<u64, JobKey> {
        if low_priority { &mut self.low } else { &mut self.normal }
    }
}
