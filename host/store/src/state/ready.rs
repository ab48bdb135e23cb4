//! The queue of one endpoint: jobs that calls of handlers wait for, the deepest first, then normal
//! ones, then those of low priority, each by queue position.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gristmill_core::sharing::shares::Level;

use crate::state::order::Order;
use crate::state::slab::JobKey;

/// The waiting jobs of one endpoint. About 8 bytes for each; every operation costs a search.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// None of them is empty.
    called: BTreeMap<Reverse<Level>, Order>,
    normal: Order,
    low: Order,
}

/// Which jobs are claimed before others, whatever their positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Calls wait for it. Deeper ones are first, so that a chain of calls never waits for a job
    /// that may have no sandbox before the chain ends.
    Called(Level),
    Normal,
    Low,
}

impl Rank {
    /// The level of the job.
    pub(crate) fn level(self) -> Level {
        match self {
            Self::Called(level) => level,
            Self::Normal | Self::Low => Level::CLIENT,
        }
    }
}

impl Ready {
    pub(crate) fn len(&self) -> usize {
        self.normal_len() + self.low.len()
    }

    /// Number of jobs that are not low priority, or that calls wait for.
    pub(crate) fn normal_len(&self) -> usize {
        self.called_len() + self.normal.len()
    }

    /// Number of jobs that calls wait for.
    pub(crate) fn called_len(&self) -> usize {
        self.called.values().map(Order::len).sum()
    }

    /// The first job of the [normal ones](Self::normal_len).
    pub(crate) fn first_normal(&self) -> Option<JobKey> {
        let called = self.called.values().next().and_then(|called| called.iter().next());
        let (_, key) = called.or_else(|| self.normal.iter().next())?;
        Some(key)
    }

    pub(crate) fn insert(&mut self, rank: Rank, queue_position: u64, key: JobKey) {
        let is_new = self.queue(rank).insert(queue_position, key);
        debug_assert!(is_new, "a job waits once");
    }

    pub(crate) fn remove(&mut self, rank: Rank, queue_position: u64, key: JobKey) {
        let was_there = self.queue(rank).remove(queue_position, key);
        debug_assert!(was_there, "a job that waits is in the queue");
        if let Rank::Called(level) = rank
            && self.called.get(&Reverse(level)).is_some_and(|called| called.len() == 0)
        {
            self.called.remove(&Reverse(level));
        }
    }

    /// The level of the job that is claimed next.
    pub(crate) fn level(&self) -> Level {
        self.called.keys().next().map_or(Level::CLIENT, |Reverse(level)| *level)
    }

    /// The job that is claimed next.
    pub(crate) fn first(&self) -> Option<JobKey> {
        self.first_normal().or_else(|| self.low.iter().next().map(|(_, key)| key))
    }

    /// Up to `count_max` jobs with a position before `until`, in the order of their claims.
    pub(crate) fn before(&self, until: u64, count_max: usize) -> Vec<JobKey> {
        let queues = self.called.values().chain([&self.normal, &self.low]);
        let jobs = queues.flat_map(|queue| queue.below(until));
        jobs.map(|(_, key)| key).take(count_max).collect()
    }

    fn queue(&mut self, rank: Rank) -> &mut Order {
        match rank {
            Rank::Called(level) => self.called.entry(Reverse(level)).or_default(),
            Rank::Normal => &mut self.normal,
            Rank::Low => &mut self.low,
        }
    }
}
