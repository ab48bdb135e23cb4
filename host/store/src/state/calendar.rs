//! Jobs by a time at which something happens to them.

use gristmill_core::time::Timestamp;

use crate::state::order::Order;
use crate::state::slab::JobKey;

/// Some jobs, each with one time. About 8 bytes for each.
#[derive(Debug, Default)]
pub(crate) struct Calendar(Order);

impl Calendar {
    pub(crate) fn insert(&mut self, at: Timestamp, key: JobKey) {
        let is_new = self.0.insert(at.as_millis(), key);
        debug_assert!(is_new, "a job is added once");
    }

    pub(crate) fn remove(&mut self, at: Timestamp, key: JobKey) {
        let was_there = self.0.remove(at.as_millis(), key);
        debug_assert!(was_there, "the job has this time");
    }

    /// Up to `count_max` jobs whose time is `now` or before.
    pub(crate) fn due(&self, now: Timestamp, count_max: usize) -> Vec<JobKey> {
        let due = self.0.iter().take_while(|(at, _)| *at <= now.as_millis());
        due.map(|(_, key)| key).take(count_max).collect()
    }

    /// The next time; [`Timestamp::NEVER`] when there are no jobs.
    pub(crate) fn next(&self) -> Timestamp {
        self.0.iter().next().map_or(Timestamp::NEVER, |(at, _)| Timestamp::from_millis(at))
    }
}
