//! The queue of one endpoint: jobs that calls of handlers wait for, the deepest first, then normal
//! ones, then those of low priority. The first ones are claimed by queue position, the others in
//! turns of their [keys](super::lane). [Limits](super::starts) of the endpoint and of its keys keep
//! jobs from being claimed, which wait here meanwhile.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use gristmill_core::job::starts::Blocked;
use gristmill_core::sharing::shares::Level;
use gristmill_core::time::Timestamp;

use crate::state::lane::{Admission, Flow, Lane};
use crate::state::slab::JobKey;
use crate::state::starts::{HeldTags, StartRules, Starts};

/// The waiting jobs of one endpoint. About 8 bytes for each; every operation costs a search.
#[derive(Debug, Default)]
pub(crate) struct Ready {
    /// None of them is empty.
    called: BTreeMap<Reverse<Level>, Lane>,
    normal: Lane,
    low: Lane,
    /// `None` while nothing is limited, and no job with a key runs.
    starts: Option<Box<Starts>>,
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
    /// Its flow among the jobs of its rank. Jobs that calls wait for have none.
    fn flow(self) -> Flow {
        match self {
            Self::Called(_) => Flow::NONE,
            Self::Normal(flow) | Self::Low(flow) => flow,
        }
    }

    /// The level of the job.
    pub(crate) fn level(self) -> Level {
        match self {
            Self::Called(level) => level,
            Self::Normal(_) | Self::Low(_) => Level::CLIENT,
        }
    }
}

impl Ready {
    /// Number of jobs that wait.
    pub(crate) fn len(&self) -> usize {
        self.called.values().map(Lane::len).sum::<usize>() + self.normal.len() + self.low.len()
    }

    /// Number of jobs that may start.
    pub(crate) fn open(&self) -> usize {
        self.permitted(self.called_open() + self.normal.open() + self.low.open())
    }

    /// Number of jobs that may start and are not low priority, or that calls wait for.
    pub(crate) fn normal_open(&self) -> usize {
        self.permitted(self.called_open() + self.normal.open())
    }

    /// Number of jobs that may start and that calls wait for.
    pub(crate) fn called_open(&self) -> usize {
        self.permitted(self.called.values().map(Lane::open).sum())
    }

    fn permitted(&self, open: usize) -> usize {
        self.starts.as_ref().map_or(open, |starts| open.min(starts.permitted() as usize))
    }

    /// The job that has waited longest among the [normal ones](Self::normal_open), of which those
    /// that calls wait for are first.
    pub(crate) fn oldest_normal(&self) -> Option<JobKey> {
        self.first_called().or_else(|| self.normal.oldest())
    }

    fn first_called(&self) -> Option<JobKey> {
        self.called.values().next()?.first()
    }

    /// Adds a job. Whether its tags are to be [held](Self::hold).
    pub(crate) fn insert(
        &mut self,
        rank: Rank,
        queue_position: u64,
        key: JobKey,
        now: Timestamp,
    ) -> bool {
        let starts = self.starts.as_ref();
        let admission =
            starts.map_or_else(Admission::default, |starts| starts.admission(rank.flow(), now));
        let (lane, flow) = self.lane(rank);
        let is_new = lane.insert((flow, admission), queue_position, key);
        debug_assert!(is_new, "a job waits once");
        self.starts.as_mut().is_some_and(|starts| starts.waits(flow, now))
    }

    /// Removes a job that a worker has claimed; `flow` is that of its key, whatever its rank.
    /// Whether its tags are to be [held](Self::hold).
    pub(crate) fn take(
        &mut self,
        (rank, flow): (Rank, Flow),
        queue_position: u64,
        key: JobKey,
        now: Timestamp,
    ) -> bool {
        let (lane, own) = self.lane(rank);
        lane.taken(own);
        self.remove(rank, queue_position, key);
        if flow == Flow::NONE && self.starts.is_none() {
            return false;
        }
        let starts = self.starts.get_or_insert_with(|| Box::new(Starts::new()));
        let holds = starts.started(flow, now);
        self.admit(flow, now);
        holds
    }

    /// Keeps the tags of a job of the flow, which pay for what is remembered of it.
    pub(crate) fn hold(&mut self, flow: Flow, tags: HeldTags) {
        if let Some(starts) = &mut self.starts {
            starts.hold(flow, tags);
        }
    }

    /// A job that an earlier process started still runs.
    pub(crate) fn restore_running(&mut self, flow: Flow) {
        if flow != Flow::NONE {
            self.starts.get_or_insert_with(|| Box::new(Starts::new())).restore(flow);
        }
    }

    /// A job of the flow does not run any more. Returns the tags that are not held any more.
    pub(crate) fn ended(&mut self, flow: Flow, now: Timestamp) -> Option<HeldTags> {
        let starts = self.starts.as_mut().filter(|_| flow != Flow::NONE)?;
        let released = starts.ended(flow, now);
        if starts.is_idle() {
            self.starts = None;
        }
        self.admit(flow, now);
        released
    }

    /// Sets the limits. `false`: they are the same.
    pub(crate) fn limit(
        &mut self,
        rules: StartRules,
        now: Timestamp,
        opened_at: Timestamp,
    ) -> bool {
        if self.starts.is_none() && rules == StartRules::default() {
            return false;
        }
        let starts = self.starts.get_or_insert_with(|| Box::new(Starts::new()));
        starts.limit(rules, self.normal.flows().chain(self.low.flows()), now, opened_at)
    }

    /// Whether something is limited, or a job with a key runs.
    pub(crate) fn has_limits(&self) -> bool {
        self.starts.is_some()
    }

    /// When [`fire`](Self::fire) has something to do.
    pub(crate) fn next_time(&self) -> Timestamp {
        self.starts.as_ref().map_or(Timestamp::NEVER, |starts| starts.next_time())
    }

    /// Lets jobs start whose time has come, of up to `count_max` keys. Returns the tags that are
    /// not held any more.
    pub(crate) fn fire(&mut self, now: Timestamp, count_max: usize) -> Vec<HeldTags> {
        let mut released = Vec::new();
        for _ in 0..count_max {
            let Some(starts) = &mut self.starts else { break };
            let Some(flow) = starts.fire(now, &mut released) else { break };
            self.admit(flow, now);
        }
        released
    }

    /// Why no job of the rank may start.
    pub(crate) fn blocked(&self, rank: Rank, now: Timestamp) -> Option<Blocked> {
        self.starts.as_ref()?.blocked(rank.flow(), now)
    }

    /// All tags that are held, when the endpoint is deleted.
    pub(crate) fn into_held(self) -> impl Iterator<Item = HeldTags> {
        self.starts.into_iter().flat_map(|starts| starts.into_held())
    }

    fn admit(&mut self, flow: Flow, now: Timestamp) {
        if flow == Flow::NONE {
            return;
        }
        let starts = self.starts.as_ref();
        let admission =
            starts.map_or_else(Admission::default, |starts| starts.admission(flow, now));
        self.normal.admit(flow, admission);
        self.low.admit(flow, admission);
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
            Rank::Called(level) => (self.called.entry(Reverse(level)).or_default(), rank.flow()),
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
        if self.starts.as_ref().is_some_and(|starts| starts.permitted() == 0) {
            return None;
        }
        self.first_called().or_else(|| self.normal.first()).or_else(|| self.low.first())
    }

    /// Up to `count_max` jobs with a position before `until`.
    pub(crate) fn before(&self, until: u64, count_max: usize) -> Vec<JobKey> {
        let lanes = self.called.values().chain([&self.normal, &self.low]);
        let jobs = lanes.flat_map(|lane| lane.below(until));
        jobs.map(|(_, key)| key).take(count_max).collect()
    }
}
