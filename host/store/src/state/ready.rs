//! The queue of one endpoint: jobs that calls of handlers wait for, the deepest first, then normal
//! ones, then those of low priority. The first ones are claimed by queue position, the others in
//! turns of their [keys](super::lane).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gristmill_core::sharing::shares::Level;

use crate::state::lane::{Flow, Lane};
use crate::state::slab::JobKey;

/// The waiting jobs of one endpoint. About 8 bytes for each; every operation costs a search.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// None of them is empty.
    called: BTreeMap<Reverse<Level>, Lane>,
    normal: Lane,
    low: Lane,
}

/// Which jobs are claimed before others, whatever their positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rank {
    /// Calls wait for it. Deeper ones are first, so that a chain of calls never waits for a job
    /// that may have no sandbox before the chain ends.
    Called(Level),
    Normal(Flow),
    Low(Flow),
}

impl Rank {
    /// The level of the job.
    pub(crate) fn level(self) -> Level {
        match self {
            Self::Called(level) => level,
            Self::Normal(_) | Self::Low(_) => Level::CLIENT,
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
        self.called.values().map(Lane::len).sum()
    }

    /// The job that has waited longest among the [normal ones](Self::normal_len), of which those
    /// that calls wait for are first.
    pub(crate) fn oldest_normal(&self) -> Option<JobKey> {
        self.first_called().or_else(|| self.normal.oldest())
    }

    fn first_called(&self) -> Option<JobKey> {
        self.called.values().next()?.first()
    }

    pub(crate) fn insert(&mut self, rank: Rank, queue_position: u64, key: JobKey) {
        let (lane, flow) = self.lane(rank);
        let is_new = lane.insert(flow, queue_position, key);
        debug_assert!(is_new, "a job waits once");
    }

    /// Removes a job that a worker has claimed.
    pub(crate) fn take(&mut self, rank: Rank, queue_position: u64, key: JobKey) {
        let (lane, flow) = self.lane(rank);
        lane.taken(flow);
        self.remove(rank, queue_position, key);
    }

    /// Removes a job.
    pub(crate) fn remove(&mut self, rank: Rank, queue_position: u64, key: JobKey) {
        let (lane, flow) = self.lane(rank);
        let was_there = lane.remove(flow, queue_position, key);
        debug_assert!(was_there, "a job that waits is in the queue");
        if let Rank::Called(level) = rank
            && self.called.get(&Reverse(level)).is_some_and(|called| called.len() == 0)
        {
            self.called.remove(&Reverse(level));
        }
    }

    /// The jobs among which one of this rank waits, and its flow there.
    fn lane(&mut self, rank: Rank) -> (&mut Lane, Flow) {
        match rank {
            Rank::Called(level) => (self.called.entry(Reverse(level)).or_default(), Flow::NONE),
            Rank::Normal(flow) => (&mut self.normal, flow),
            Rank::Low(flow) => (&mut self.low, flow),
        }
    }

    /// The level of the job that is claimed next.
    pub(crate) fn level(&self) -> Level {
        self.called.keys().next().map_or(Level::CLIENT, |Reverse(level)| *level)
    }

    /// The job that is claimed next.
    pub(crate) fn first(&self) -> Option<JobKey> {
        self.first_called().or_else(|| self.normal.first()).or_else(|| self.low.first())
    }

    /// Up to `count_max` jobs with a position before `until`.
    pub(crate) fn before(&self, until: u64, count_max: usize) -> Vec<JobKey> {
        let lanes = self.called.values().chain([&self.normal, &self.low]);
        let jobs = lanes.flat_map(|lane| lane.below(until));
        jobs.map(|(_, key)| key).take(count_max).collect()
    }
}
