//! The waiting jobs of one rank: by queue position, and in turns if they have keys.
//!
//! **Promises.** Jobs of one key are claimed in the order of their positions. While the keys whose
//! jobs wait and may start stay the same, the claims of each differ from its share by weight by at
//! most one job, as [`turns`](super::turns) says. All jobs without a key share one turn. A key that
//! [may start](Admission) no job has no turns.
//!
//! **Bounds.** About 8 bytes for each job, 16 for one with a key, and [`FLOW_BYTES`] for each key
//! with waiting jobs, for which the [texts](super::urls) of their owner pay. **Cost.** A lane
//! without keys is one order, and costs what that costs.

use hashbrown::HashMap;

use crate::state::order::Order;
use crate::state::slab::JobKey;
use crate::state::turns::Turns;

/// About the bytes of a key with one waiting job.
pub(crate) const FLOW_BYTES: u64 = 512;

/// A key of jobs, as a hash with a secret of the process; [`Flow::NONE`] for jobs without one. Two
/// keys with the same hash would share their turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Flow(u64);

impl Flow {
    /// Of jobs without a key.
    pub(crate) const NONE: Self = Self(0);

    /// Of jobs with this key.
    pub(crate) fn of(key: &str) -> Self {
        use std::hash::{BuildHasher as _, RandomState};
        static SECRET: std::sync::LazyLock<RandomState> =
            std::sync::LazyLock::new(RandomState::new);
        Self(SECRET.hash_one(key).max(1))
    }
}

/// How many jobs of a key may start, and the weight of its turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Admission {
    pub(crate) starts: u32,
    pub(crate) weight: u32,
}

impl Default for Admission {
    /// That of a key without limits.
    fn default() -> Self {
        Self { starts: u32::MAX, weight: 1 }
    }
}

/// Some waiting jobs.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    /// Those without a key.
    plain: Order,
    /// `None` while no job with a key waits.
    keyed: Option<Box<Keyed>>,
}

#[derive(Debug, Default)]
struct Keyed {
    /// The jobs with a key.
    all: Order,
    /// The same, by their keys. None is empty.
    flows: HashMap<Flow, Queue>,
    turns: Turns<Flow>,
    /// Those that may start.
    open: usize,
}

/// The jobs of one key.
#[derive(Debug, Default)]
struct Queue {
    jobs: Order,
    admission: Admission,
}

impl Queue {
    /// How many of its jobs may start.
    fn open(&self) -> usize {
        self.jobs.len().min(self.admission.starts as usize)
    }
}

impl Keyed {
    /// Changes the jobs of a key, or their admission.
    fn change<T>(&mut self, flow: Flow, change: impl FnOnce(&mut Queue) -> T) -> T {
        let queue = self.flows.entry(flow).or_default();
        let (before, weight) = (queue.open(), queue.admission.weight);
        let changed = change(queue);
        let (after, weight_after) = (queue.open(), queue.admission.weight);
        if queue.jobs.len() == 0 {
            self.flows.remove(&flow);
        }
        self.open = self.open - before + after;
        if after == 0 {
            self.turns.rest(flow);
        } else if before == 0 || weight != weight_after {
            self.turns.contend(flow, weight_after);
        }
        changed
    }
}

impl Lane {
    pub(crate) fn len(&self) -> usize {
        self.plain.len() + self.keyed.as_ref().map_or(0, |keyed| keyed.all.len())
    }

    /// How many jobs may start.
    pub(crate) fn open(&self) -> usize {
        self.plain.len() + self.keyed.as_ref().map_or(0, |keyed| keyed.open)
    }

    /// The keys with waiting jobs.
    pub(crate) fn flows(&self) -> impl Iterator<Item = Flow> {
        self.keyed.iter().flat_map(|keyed| keyed.flows.keys().copied())
    }

    /// The job that has waited longest; while some keys may not start all of their jobs, the one
    /// that is claimed next.
    pub(crate) fn oldest(&self) -> Option<JobKey> {
        let keyed = self.keyed.as_ref();
        if keyed.is_some_and(|keyed| keyed.open < keyed.all.len()) {
            return self.first();
        }
        let keyed = keyed.and_then(|keyed| keyed.all.first());
        self.plain.first().into_iter().chain(keyed).min().map(|(_, key)| key)
    }

    /// The job that is claimed next.
    pub(crate) fn first(&self) -> Option<JobKey> {
        let queue = match &self.keyed {
            None => &self.plain,
            Some(keyed) => match keyed.turns.first()? {
                Flow::NONE => &self.plain,
                flow => &keyed.flows.get(&flow)?.jobs,
            },
        };
        queue.first().map(|(_, key)| key)
    }

    /// The jobs with a position before `until`.
    pub(crate) fn below(&self, until: u64) -> impl Iterator<Item = (u64, JobKey)> {
        let keyed = self.keyed.iter().flat_map(move |keyed| keyed.all.below(until));
        self.plain.below(until).chain(keyed)
    }

    /// Adds a job. `admission` is that of its key. False if the job waits already.
    pub(crate) fn insert(
        &mut self,
        (flow, admission): (Flow, Admission),
        position: u64,
        key: JobKey,
    ) -> bool {
        if flow == Flow::NONE {
            if let Some(keyed) = &mut self.keyed
                && self.plain.len() == 0
            {
                keyed.turns.contend(flow, 1);
            }
            return self.plain.insert(position, key);
        }
        let keyed = self.keyed.get_or_insert_with(|| {
            let mut keyed = Box::<Keyed>::default();
            if self.plain.len() > 0 {
                keyed.turns.contend(Flow::NONE, 1);
            }
            keyed
        });
        let is_new = keyed.change(flow, |queue| {
            queue.admission = admission;
            queue.jobs.insert(position, key)
        });
        is_new && keyed.all.insert(position, key)
    }

    /// Another number of jobs of the key may start, or it has another weight.
    pub(crate) fn admit(&mut self, flow: Flow, admission: Admission) {
        if let Some(keyed) = &mut self.keyed
            && keyed.flows.contains_key(&flow)
        {
            keyed.change(flow, |queue| queue.admission = admission);
        }
    }

    /// A job of this key was claimed, and is to be removed: the key has had a turn.
    pub(crate) fn taken(&mut self, flow: Flow) {
        if let Some(keyed) = &mut self.keyed {
            keyed.turns.taken(flow);
        }
    }

    /// Removes a job. False if it does not wait.
    pub(crate) fn remove(&mut self, flow: Flow, position: u64, key: JobKey) -> bool {
        let Some(keyed) = &mut self.keyed else {
            return flow == Flow::NONE && self.plain.remove(position, key);
        };
        if flow == Flow::NONE {
            let was_there = self.plain.remove(position, key);
            if self.plain.len() == 0 {
                keyed.turns.rest(flow);
            }
            return was_there;
        }
        if !keyed.flows.contains_key(&flow) {
            return false;
        }
        let was_there = keyed.change(flow, |queue| queue.jobs.remove(position, key));
        let was_there = was_there && keyed.all.remove(position, key);
        if keyed.flows.is_empty() {
            self.keyed = None;
        }
        was_there
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
