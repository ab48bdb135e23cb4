//! Turns of flows with weights: which of several queues gives the next job.
//!
//! **Promises.** While the set of the flows that contend stays the same, the turns of each flow
//! differ from its share by at most one, however many turns there are. A flow that begins to
//! contend gets no turns for the time before, and a flow that stops and begins again right after a
//! turn does not get its next one earlier than it would have had it.
//!
//! **How.** WF²Q+: each turn of a flow has a virtual start and a virtual finish, one `weight`-th
//! apart. The flow with the earliest finish is first among those whose start has come. Rounds by
//! finish alone, by strides or by deficits miss a share by as many turns as there are flows.
//!
//! **Bounds.** 150 bytes or so for each flow that contends, or that had its last turn less than a
//! round ago. **Cost.** Some searches in ordered sets for each turn.

use std::collections::BTreeSet;
use std::hash::Hash;

use hashbrown::HashMap;

/// One turn of a flow with the weight 1, in virtual time. A host has fewer turns than 2^64, and so
/// 128 bits never overflow; with 10^8 as the sum of all weights a turn is off by 10^-11.
const TURN: u128 = 1 << 64;

/// The flows that contend for the next turn.
#[derive(Debug, Default)]
pub(crate) struct Turns<K> {
    flows: HashMap<K, Flow>,
    /// The virtual time.
    now: u128,
    /// The sum of the weights of the flows that contend.
    weights: u64,
    /// Flows whose start has come, by their finish. Empty only if no flow contends.
    started: BTreeSet<(u128, K)>,
    /// Flows whose start is yet to come, by their start.
    later: BTreeSet<(u128, K)>,
    /// Flows that do not contend, by the finish of their last turn, which is yet to come.
    resting: BTreeSet<(u128, K)>,
}

#[derive(Debug, Clone, Copy)]
struct Flow {
    /// 0: it does not contend.
    weight: u32,
    /// The start of its next turn, and so the finish of its last one.
    start: u128,
}

impl Flow {
    fn finish(self) -> u128 {
        self.start + TURN / u128::from(self.weight.max(1))
    }
}

impl<K: Copy + Ord + Hash> Turns<K> {
    /// The flow whose turn is next.
    pub(crate) fn first(&self) -> Option<K> {
        self.started.first().map(|(_, key)| *key)
    }

    /// The flow contends with this weight, at least 1, from now on.
    pub(crate) fn contend(&mut self, key: K, weight: u32) {
        self.rest(key);
        let now = self.now;
        let flow = self.flows.entry(key).or_insert(Flow { weight: 0, start: now });
        self.resting.remove(&(flow.start, key));
        *flow = Flow { weight: weight.max(1), start: flow.start.max(now) };
        let flow = *flow;
        self.weights += u64::from(flow.weight);
        self.place(key, flow);
        self.advance(0);
    }

    /// The flow does not contend any more.
    pub(crate) fn rest(&mut self, key: K) {
        let Some(flow) = self.flows.get_mut(&key).filter(|flow| flow.weight > 0) else { return };
        let before = *flow;
        flow.weight = 0;
        self.weights -= u64::from(before.weight);
        self.displace(key, before);
        if before.start > self.now {
            self.resting.insert((before.start, key));
        } else {
            self.flows.remove(&key);
        }
        self.advance(0);
    }

    /// The flow has had a turn. It contends for another one.
    pub(crate) fn taken(&mut self, key: K) {
        let Some(flow) = self.flows.get_mut(&key).filter(|flow| flow.weight > 0) else { return };
        let before = *flow;
        flow.start = before.finish();
        let after = *flow;
        self.displace(key, before);
        self.place(key, after);
        self.advance(TURN / u128::from(self.weights.max(1)));
    }

    fn place(&mut self, key: K, flow: Flow) {
        match flow.start <= self.now {
            true => self.started.insert((flow.finish(), key)),
            false => self.later.insert((flow.start, key)),
        };
    }

    fn displace(&mut self, key: K, flow: Flow) {
        if !self.started.remove(&(flow.finish(), key)) {
            self.later.remove(&(flow.start, key));
        }
    }

    /// Moves the virtual time on, at least to the next start if no flow could have a turn.
    fn advance(&mut self, by: u128) {
        self.now += by;
        if self.started.is_empty()
            && let Some((start, _)) = self.later.first()
        {
            self.now = self.now.max(*start);
        }
        while let Some((_, key)) = pop_come(&mut self.later, self.now) {
            if let Some(flow) = self.flows.get(&key) {
                self.started.insert((flow.finish(), key));
            }
        }
        while let Some((_, key)) = pop_come(&mut self.resting, self.now) {
            self.flows.remove(&key);
        }
    }
}

/// Removes and returns the first entry whose time has come.
fn pop_come<K: Copy + Ord>(times: &mut BTreeSet<(u128, K)>, now: u128) -> Option<(u128, K)> {
    times.first().filter(|(at, _)| *at <= now)?;
    times.pop_first()
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
