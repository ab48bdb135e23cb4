//! The queue of one endpoint: normal jobs before low-priority ones, each by queue position.

use crate::state::order::Order;
use crate::state::slab::JobKey;

/// The waiting jobs of one endpoint. About 8 bytes for each; every operation costs a search.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    normal: Order,
    low: Order,
}

impl Ready {
    pub(crate) fn len(&self) -> usize {
        self.normal.len() + self.low.len()
    }

    /// Number of jobs that are not low priority.
    pub(crate) fn normal_len(&self) -> usize {
        self.normal.len()
    }

    /// The first job that is not low priority.
    pub(crate) fn first_normal(&self) -> Option<JobKey> {
        self.normal.iter().next().map(|(_, key)| key)
    }

    pub(crate) fn insert(&mut self, low_priority: bool, queue_position: u64, key: JobKey) {
        let is_new = self.queue(low_priority).insert(queue_position, key);
        debug_assert!(is_new, "a job waits once");
    }

    pub(crate) fn remove(&mut self, low_priority: bool, queue_position: u64, key: JobKey) {
        let was_there = self.queue(low_priority).remove(queue_position, key);
        debug_assert!(was_there, "a job that waits is in the queue");
    }

    /// The job that is claimed next.
    pub(crate) fn first(&self) -> Option<JobKey> {
        let (_, key) = self.normal.iter().next().or_else(|| self.low.iter().next())?;
        Some(key)
    }

    /// Up to `count_max` jobs with a position before `until`, in the order of their claims.
    pub(crate) fn before(&self, until: u64, count_max: usize) -> Vec<JobKey> {
        let queues = self.normal.below(until).chain(self.low.below(until));
        queues.map(|(_, key)| key).take(count_max).collect()
    }

    fn queue(&mut self, low_priority: bool) -> &mut Order {
        if low_priority { &mut self.low } else { &mut self.normal }
    }
}
