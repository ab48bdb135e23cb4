//! Limits of starts: how many jobs of an endpoint may start in some time, and how many of each key
//! may run and start.
//!
//! **Promises.** No claim exceeds a limit, on all hosts together, also after a crash or a change of
//! the active host. What runs is counted from the states of jobs. The times of starts are not
//! stored: an endpoint or a key that is first seen in a process counts as if it had just used up
//! its burst. A job whose limit is reached waits, and does not hold up other keys. A limit that is
//! changed holds for further starts.
//!
//! **How.** A pace is GCRA: each start moves a theoretical time on by one interval, and a start is
//! permitted while that time is at most `burst - 1` intervals away.
//!
//! **Bounds.** An entry of about 150 bytes for each key with a running job, or whose pace still
//! counts a start. It holds the tags of a job, so that the [texts](super::urls) of the owner pay
//! for it. **Cost.** Nothing for an endpoint without limits and keys; otherwise a map lookup for
//! each claim and end, and a search in an ordered set for a pace.

use std::collections::BTreeSet;

use gristmill_core::job::starts::{Blocked, StartLimits, StartRate};
use gristmill_core::job::tags::Tags;
use gristmill_core::time::Timestamp;
use hashbrown::HashMap;

use crate::state::lane::{Admission, Flow};
use crate::state::owners::OwnerKey;

const NS_IN_MS: u64 = 1_000_000;

/// How many jobs may start in some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pace {
    /// The time between two starts, in nanoseconds.
    interval: u64,
    burst: u32,
}

/// The theoretical time of the next start, in nanoseconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct NextStart(u64);

impl Pace {
    fn of(rate: &StartRate) -> Option<Self> {
        let interval = (rate.per_ms * NS_IN_MS).div_ceil(u64::from(rate.jobs?).max(1));
        Some(Self { interval, burst: rate.burst.max(1) })
    }

    /// That of a flow whose starts before this time are unknown.
    fn unknown_before(self, at: Timestamp) -> NextStart {
        let burst = self.interval.saturating_mul(u64::from(self.burst));
        NextStart(ns(at).saturating_add(burst))
    }

    /// Starts that are permitted now, at once.
    fn permitted(self, next: NextStart, now: Timestamp) -> u32 {
        let ahead = next.0.saturating_sub(ns(now)).div_ceil(self.interval.max(1));
        self.burst.saturating_sub(u32::try_from(ahead).unwrap_or(u32::MAX))
    }

    fn after_start(self, next: NextStart, now: Timestamp) -> NextStart {
        NextStart(next.0.max(ns(now)).saturating_add(self.interval))
    }

    /// No later than after a whole burst now: neither a slower pace before nor a clock that was set
    /// back lets a flow wait for longer.
    fn at_most(self, next: NextStart, now: Timestamp) -> NextStart {
        NextStart(next.0.min(self.unknown_before(now).0))
    }

    /// When a start is permitted.
    fn opens_at(self, next: NextStart) -> Timestamp {
        let burst = self.interval.saturating_mul(u64::from(self.burst - 1));
        ms(next.0.saturating_sub(burst))
    }
}

fn ns(at: Timestamp) -> u64 {
    at.as_millis().saturating_mul(NS_IN_MS)
}

/// The first millisecond that is not earlier.
fn ms(ns: u64) -> Timestamp {
    Timestamp::from_millis(ns.div_ceil(NS_IN_MS))
}

/// The limits of an endpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StartRules {
    throttle: Option<Pace>,
    concurrency: Option<u32>,
    rate: Option<Pace>,
    /// Of keys that have another weight than 1.
    weights: HashMap<Flow, u32>,
}

impl StartRules {
    pub(crate) fn of(limits: &StartLimits) -> Self {
        let StartLimits { throttle, keys } = limits;
        let others = keys.weights.iter().filter(|(_, weight)| weight.0 != 1);
        Self {
            throttle: Pace::of(throttle),
            concurrency: keys.concurrency,
            rate: Pace::of(&keys.rate),
            weights: others.map(|(key, weight)| (Flow::of(key), weight.0)).collect(),
        }
    }
}

/// The tags that an entry holds, and their owner.
pub(crate) type HeldTags = (OwnerKey, Tags);

/// What limits the starts of an endpoint's jobs, and what has started.
#[derive(Debug)]
pub(crate) struct Starts {
    rules: StartRules,
    /// Starts before this time are unknown.
    known_since: Timestamp,
    /// Of the whole endpoint.
    next: NextStart,
    /// Starts of the whole endpoint that were permitted after the last change.
    permitted: u32,
    flows: HashMap<Flow, Started>,
    /// When more may start, or an entry is of no use any more; [`Flow::NONE`]: of the endpoint.
    times: BTreeSet<(Timestamp, Flow)>,
    /// Flows whose admission is to be decided anew, since the rules have changed.
    review: Vec<Flow>,
}

#[derive(Debug, Default)]
struct Started {
    running: u32,
    next: NextStart,
    /// Its entry in `times`.
    at: Option<Timestamp>,
    tags: Option<HeldTags>,
}

impl Starts {
    /// Without limits.
    pub(crate) fn new() -> Self {
        Self {
            rules: StartRules::default(),
            known_since: Timestamp::from_millis(0),
            next: NextStart::default(),
            permitted: u32::MAX,
            flows: HashMap::new(),
            times: BTreeSet::new(),
            review: Vec::new(),
        }
    }

    /// Whether it may be forgotten: nothing runs and nothing is limited.
    pub(crate) fn is_idle(&self) -> bool {
        self.flows.is_empty() && self.rules == StartRules::default()
    }

    /// Sets the limits. `false`: they are the same. The caller lets [`fire`](Self::fire) review
    /// these flows, those with waiting jobs. Starts before `known_since` are unknown.
    pub(crate) fn limit(
        &mut self,
        rules: StartRules,
        waiting: impl Iterator<Item = Flow>,
        now: Timestamp,
        known_since: Timestamp,
    ) -> bool {
        if self.rules == rules {
            return false;
        }
        self.known_since = known_since;
        let before = std::mem::replace(&mut self.rules, rules);
        match self.rules.throttle {
            Some(pace) if before.throttle.is_none() => {
                self.next = pace.unknown_before(self.known_since);
            }
            Some(pace) => self.next = pace.at_most(self.next, now),
            None => {}
        }
        self.review.extend(waiting);
        self.review.extend(self.flows.keys());
        self.times.insert((now, Flow::NONE));
        self.plan_endpoint(now);
        true
    }

    /// Starts of the whole endpoint that are permitted.
    pub(crate) fn permitted(&self) -> u32 {
        self.permitted
    }

    /// How many jobs of a flow may start, and its weight.
    pub(crate) fn admission(&self, flow: Flow, now: Timestamp) -> Admission {
        if flow == Flow::NONE {
            return Admission::default();
        }
        let running = self.flows.get(&flow).map_or(0, |started| started.running);
        let places = self.rules.concurrency.map_or(u32::MAX, |max| max.saturating_sub(running));
        let paced = self
            .rules
            .rate
            .map_or(u32::MAX, |pace| pace.permitted(self.next_of(flow, pace, now), now));
        let weight = self.rules.weights.get(&flow).copied().unwrap_or(1);
        Admission { starts: places.min(paced), weight }
    }

    fn next_of(&self, flow: Flow, pace: Pace, now: Timestamp) -> NextStart {
        let known = self.flows.get(&flow).map_or_else(NextStart::default, |started| started.next);
        let next = known.0.max(pace.unknown_before(self.known_since).0);
        pace.at_most(NextStart(next), now)
    }

    /// The clock may have been set back.
    fn see(&mut self, now: Timestamp) {
        self.known_since = self.known_since.min(now);
    }

    /// Why no job of the flow may start.
    pub(crate) fn blocked(&self, flow: Flow, now: Timestamp) -> Option<Blocked> {
        if self.permitted == 0
            && let Some(pace) = self.rules.throttle
        {
            return Some(Blocked::EndpointUntil(pace.opens_at(self.next).max(now)));
        }
        if flow == Flow::NONE || self.admission(flow, now).starts > 0 {
            return None;
        }
        let running = self.flows.get(&flow).map_or(0, |started| started.running);
        match self.rules.rate {
            Some(pace) if self.rules.concurrency.is_none_or(|max| running < max) => {
                Some(Blocked::KeyUntil(pace.opens_at(self.next_of(flow, pace, now)).max(now)))
            }
            Some(_) | None => Some(Blocked::Running(running)),
        }
    }

    /// A job of the flow starts. Whether its tags are to be [held](Self::hold).
    pub(crate) fn started(&mut self, flow: Flow, now: Timestamp) -> bool {
        self.see(now);
        if let Some(pace) = self.rules.throttle {
            self.next = pace.after_start(self.next, now);
            self.plan_endpoint(now);
        }
        if flow == Flow::NONE {
            return false;
        }
        let next = self.rules.rate.map(|pace| pace.after_start(self.next_of(flow, pace, now), now));
        let started = self.flows.entry(flow).or_default();
        started.running += 1;
        if let Some(next) = next {
            started.next = next;
        }
        let is_held = started.tags.is_some();
        self.plan(flow, now);
        next.is_some() && !is_held
    }

    /// Keeps the tags of a job of the flow, which pay for its entry.
    pub(crate) fn hold(&mut self, flow: Flow, tags: HeldTags) {
        if let Some(started) = self.flows.get_mut(&flow) {
            started.tags = Some(tags);
        }
    }

    /// A job of the flow that an earlier process started still runs.
    pub(crate) fn restore(&mut self, flow: Flow) {
        if flow != Flow::NONE {
            self.flows.entry(flow).or_default().running += 1;
        }
    }

    /// A job of the flow does not run any more. Returns the tags that are not held any more.
    pub(crate) fn ended(&mut self, flow: Flow, now: Timestamp) -> Option<HeldTags> {
        let started = self.flows.get_mut(&flow)?;
        started.running = started.running.saturating_sub(1);
        self.forget_if_over(flow, now)
    }

    fn forget_if_over(&mut self, flow: Flow, now: Timestamp) -> Option<HeldTags> {
        let started = self.flows.get(&flow)?;
        if started.running > 0 || (self.rules.rate.is_some() && started.next.0 > ns(now)) {
            return None;
        }
        let started = self.flows.remove(&flow)?;
        if let Some(at) = started.at {
            self.times.remove(&(at, flow));
        }
        started.tags
    }

    /// When [`fire`](Self::fire) has something to do.
    pub(crate) fn next_time(&self) -> Timestamp {
        self.times.first().map_or(Timestamp::NEVER, |(at, _)| *at)
    }

    /// A flow whose admission may have changed; [`Flow::NONE`] for the whole endpoint. Adds the
    /// tags that are not held any more. `None`: no time has come.
    pub(crate) fn fire(&mut self, now: Timestamp, released: &mut Vec<HeldTags>) -> Option<Flow> {
        self.see(now);
        if let Some(flow) = self.review.pop() {
            if let (Some(pace), Some(started)) = (self.rules.rate, self.flows.get_mut(&flow)) {
                started.next = pace.at_most(started.next, now);
            }
            self.plan(flow, now);
            released.extend(self.forget_if_over(flow, now));
            return Some(flow);
        }
        let (_, flow) = self.times.first().filter(|(at, _)| *at <= now).copied()?;
        self.times.pop_first();
        if flow == Flow::NONE {
            self.plan_endpoint(now);
            return Some(flow);
        }
        if let Some(started) = self.flows.get_mut(&flow) {
            started.at = None;
        }
        self.plan(flow, now);
        released.extend(self.forget_if_over(flow, now));
        Some(flow)
    }

    /// All tags that are held, when the endpoint is deleted.
    pub(crate) fn into_held(self) -> impl Iterator<Item = HeldTags> {
        self.flows.into_values().filter_map(|started| started.tags)
    }

    /// Waits for the time at which the endpoint may start more.
    fn plan_endpoint(&mut self, now: Timestamp) {
        let Some(pace) = self.rules.throttle else {
            self.permitted = u32::MAX;
            return;
        };
        self.next = pace.at_most(self.next, now);
        self.permitted = pace.permitted(self.next, now);
        if self.permitted == 0 {
            self.times.insert((pace.opens_at(self.next), Flow::NONE));
        }
    }

    /// Waits for the time at which the flow may start more, or after which its entry is of no use.
    fn plan(&mut self, flow: Flow, now: Timestamp) {
        let Some(pace) = self.rules.rate else { return };
        let next = self.next_of(flow, pace, now);
        let at = match pace.permitted(next, now) {
            0 => pace.opens_at(next),
            _ => ms(next.0),
        };
        // A flow without an entry waits for the time by which starts before this process count.
        let is_new = !self.flows.contains_key(&flow);
        if is_new && at <= now {
            return;
        }
        let started = self.flows.entry(flow).or_default();
        started.next = next;
        let at = Some(at).filter(|at| *at > now);
        if started.at != at {
            if let Some(before) = started.at {
                self.times.remove(&(before, flow));
            }
            started.at = at;
            self.times.extend(at.map(|at| (at, flow)));
        }
    }

    /// A job of the flow waits from now on. Whether its tags are to be [held](Self::hold).
    pub(crate) fn waits(&mut self, flow: Flow, now: Timestamp) -> bool {
        if flow == Flow::NONE || self.rules.rate.is_none() {
            return false;
        }
        self.see(now);
        self.plan(flow, now);
        self.flows.get(&flow).is_some_and(|started| started.tags.is_none())
    }
}

#[cfg(test)]
#[path = "starts_tests.rs"]
mod tests;
