//! The waiting jobs of one rank: by queue position, and in turns if they have keys.
//!
//! **Promises.** Jobs of one key are claimed in the order of their positions. While the keys with
//! waiting jobs stay the same, the claims of each differ from an equal share by at most one job, as
//! [`turns`](super::turns) says. All jobs without a key share one turn.
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
    flows: HashMap<Flow, Order>,
    turns: Turns<Flow>,
}

impl Lane {
    pub(crate) fn len(&self) -> usize {
        self.plain.len() + self.keyed.as_ref().map_or(0, |keyed| keyed.all.len())
    }

    /// The job that has waited longest.
    pub(crate) fn oldest(&self) -> Option<JobKey> {
        let keyed = self.keyed.as_ref().and_then(|keyed| keyed.all.first());
        self.plain.first().into_iter().chain(keyed).min().map(|(_, key)| key)
    }

    /// The job that is claimed next.
    pub(crate) fn first(&self) -> Option<JobKey> {
        let queue = match &self.keyed {
            None => &self.plain,
            Some(keyed) => match keyed.turns.first()? {
                Flow::NONE => &self.plain,
                flow => keyed.flows.get(&flow)?,
            },
        };
        queue.first().map(|(_, key)| key)
    }

    /// The jobs with a position before `until`.
    pub(crate) fn below(&self, until: u64) -> impl Iterator<Item = (u64, JobKey)> {
        let keyed = self.keyed.iter().flat_map(move |keyed| keyed.all.below(until));
        self.plain.below(until).chain(keyed)
    }

    /// False if the job waits already.
    pub(crate) fn insert(&mut self, flow: Flow, position: u64, key: JobKey) -> bool {
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
        let queue = keyed.flows.entry(flow).or_default();
        if queue.len() == 0 {
            keyed.turns.contend(flow, 1);
        }
        queue.insert(position, key) && keyed.all.insert(position, key)
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
        let Some(queue) = keyed.flows.get_mut(&flow) else { return false };
        let was_there = queue.remove(position, key) && keyed.all.remove(position, key);
        if queue.len() == 0 {
            keyed.flows.remove(&flow);
            keyed.turns.rest(flow);
        }
        if keyed.flows.is_empty() {
            self.keyed = None;
        }
        was_there
    }
}

#[cfg(test)]
#[path = "lane_tests.rs"]
mod tests;
