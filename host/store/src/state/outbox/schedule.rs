//! Which pending webhook is attempted next, as pure logic: every owner, every endpoint and every
//! receiver has a share of the attempts, and they take turns.
//!
//! **Promise.** The next attempt belongs to the owner with the fewest attempts under way; among
//! equals to the owner whose last turn is the longest ago. The same holds for the endpoints of that
//! owner and for the receivers of that endpoint. Receivers whose last attempt failed wait behind
//! the other receivers of their endpoint. A receiver's deliveries go out in the order in which
//! their jobs ended.
//! **Bounds.** [`ATTEMPTS_MAX`], [an owner's share](SharedBound) of them, and the groups
//! for an endpoint and a receiver.
//! **Cost.** O(log n) for each delivery that comes, starts or ends. A waiting delivery takes some
//! 60 bytes, and a receiver some 300 bytes while deliveries wait for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gristmill_core::id::OwnerId;
use gristmill_core::sharing::shares::{Fit, SharedBound};
use gristmill_core::webhook::delivery::{
    ATTEMPTS_MAX, ATTEMPTS_PER_ENDPOINT_MAX, ATTEMPTS_PER_TARGET_MAX, DeliveryId,
};

/// The owner, endpoint and receiver of a delivery.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path<K> {
    /// `None`: the endpoint is not in the catalog any more.
    pub(super) owner: Option<OwnerId>,
    pub(super) endpoint: K,
    /// The receiver: host and port.
    pub(super) target: Arc<str>,
}

/// The deliveries that may be attempted now, and how many attempts are under way.
#[derive(Debug)]
pub(super) struct Schedule<K> {
    all: Groups<Option<OwnerId>, OfOwner<K>, ATTEMPTS_MAX>,
}

type OfOwner<K> = Groups<K, OfEndpoint, ATTEMPTS_MAX>;
type OfEndpoint = Groups<Arc<str>, Target, ATTEMPTS_PER_ENDPOINT_MAX>;

impl<K> Default for Schedule<K> {
    fn default() -> Self {
        Self { all: Groups::default() }
    }
}

impl<K: Ord + Clone> Schedule<K> {
    /// The delivery may be attempted. `has_failed`: its last attempt failed.
    pub(super) fn add(&mut self, path: &Path<K>, id: DeliveryId, has_failed: bool) {
        self.change(path, |target| {
            target.ready.insert(id);
            target.is_failing |= has_failed;
        });
    }

    /// The delivery may not be attempted any more.
    pub(super) fn remove(&mut self, path: &Path<K>, id: DeliveryId) {
        self.change(path, |target| target.ready.remove(&id));
    }

    /// Starts the next attempt; `None` when all shares are used, or nothing is ready.
    pub(super) fn begin(&mut self) -> Option<DeliveryId> {
        // The owner with the fewest attempts under way: beyond its share, no other may start one.
        let (Rank { in_flight, .. }, _) = self.all.ranked.first()?;
        let bound = SharedBound::always(ATTEMPTS_MAX as u64);
        let fit = bound.fit(*in_flight as u64, self.all.in_flight as u64, 1);
        (fit == Fit::Fits).then(|| self.all.begin()).flatten()
    }

    /// An attempt has ended. `was_received`: the receiver accepted it; `None` when that is unknown.
    pub(super) fn end(&mut self, path: &Path<K>, was_received: Option<bool>) {
        self.change(path, |target| {
            target.in_flight = target.in_flight.saturating_sub(1);
            target.is_failing = was_received.map_or(target.is_failing, |received| !received);
        });
    }

    /// Whether a delivery of the endpoint is ready or under way.
    pub(super) fn has(&self, owner: Option<&OwnerId>, endpoint: &K) -> bool {
        let of_owner = self.all.members.get(&owner.cloned());
        of_owner.is_some_and(|of_owner| of_owner.group.members.contains_key(endpoint))
    }

    fn change<T>(&mut self, path: &Path<K>, change: impl FnOnce(&mut Target) -> T) -> T {
        self.all.change(&path.owner, |owner| {
            owner.group.change(&path.endpoint, |endpoint| {
                endpoint.group.change(&path.target, |target| change(&mut target.group))
            })
        })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.all.members.is_empty()
    }
}

/// A group of deliveries in a [`Schedule`], which takes turns with the other groups of its kind.
trait Group: Default {
    fn in_flight(&self) -> usize;
    /// Whether the group can be dropped: no delivery is ready, and no attempt is under way.
    fn is_idle(&self) -> bool;
    /// The delivery that would start next, and whether it waits behind groups that do not fail;
    /// `None` when no delivery may start.
    fn first(&self) -> Option<(bool, DeliveryId)>;
    fn begin(&mut self) -> Option<DeliveryId>;
}

/// The deliveries of one endpoint to one receiver.
#[derive(Debug, Default)]
struct Target {
    ready: BTreeSet<DeliveryId>,
    in_flight: usize,
    is_failing: bool,
}

impl Group for Target {
    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn is_idle(&self) -> bool {
        self.ready.is_empty() && self.in_flight == 0
    }

    fn first(&self) -> Option<(bool, DeliveryId)> {
        let id = self.ready.first().filter(|_| self.in_flight < ATTEMPTS_PER_TARGET_MAX)?;
        Some((self.is_failing, *id))
    }

    fn begin(&mut self) -> Option<DeliveryId> {
        let id = self.ready.pop_first()?;
        self.in_flight += 1;
        Some(id)
    }
}

/// Parts that take turns, with at most `MAX` attempts under way together.
#[derive(Debug)]
struct Groups<K, P, const MAX: usize> {
    members: BTreeMap<K, Member<P>>,
    /// The members that may start an attempt, the next one first.
    ranked: BTreeSet<(Rank, K)>,
    in_flight: usize,
    turns: u64,
}

#[derive(Debug, Default)]
struct Member<P> {
    group: P,
    /// The number of its last turn; 0: none yet.
    turn: u64,
    /// Its place in the ranks.
    rank: Option<Rank>,
}

/// The smallest is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_failing: bool,
    in_flight: usize,
    turn: u64,
    first: DeliveryId,
}

impl<K, P, const MAX: usize> Default for Groups<K, P, MAX> {
    fn default() -> Self {
        Self { members: BTreeMap::new(), ranked: BTreeSet::new(), in_flight: 0, turns: 0 }
    }
}

impl<K: Ord + Clone, P: Group, const MAX: usize> Groups<K, P, MAX> {
    /// Changes a member, which is added if it is missing, and updates its rank.
    fn change<T>(&mut self, key: &K, change: impl FnOnce(&mut Member<P>) -> T) -> T {
        let mut member = self.members.remove(key).unwrap_or_default();
        if let Some(rank) = member.rank.take() {
            self.ranked.remove(&(rank, key.clone()));
        }
        let before = member.group.in_flight();
        let answer = change(&mut member);
        self.in_flight = (self.in_flight + member.group.in_flight()).saturating_sub(before);
        if !member.group.is_idle() {
            member.rank = member.group.first().map(|(is_failing, first)| Rank {
                is_failing,
                in_flight: member.group.in_flight(),
                turn: member.turn,
                first,
            });
            self.ranked.extend(member.rank.map(|rank| (rank, key.clone())));
            self.members.insert(key.clone(), member);
        }
        answer
    }
}

impl<K: Ord + Clone, P: Group, const MAX: usize> Group for Groups<K, P, MAX> {
    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn is_idle(&self) -> bool {
        self.members.is_empty()
    }

    fn first(&self) -> Option<(bool, DeliveryId)> {
        let (rank, _) = self.ranked.first().filter(|_| self.in_flight < MAX)?;
        // Only receivers fail: their endpoint, and its owner, are as good as others.
        Some((false, rank.first))
    }

    fn begin(&mut self) -> Option<DeliveryId> {
        let (_, key) = self.ranked.first().filter(|_| self.in_flight < MAX)?.clone();
        self.turns += 1;
        let turn = self.turns;
        self.change(&key, |member| {
            member.turn = turn;
            member.group.begin()
        })
    }
}

#[cfg(test)]
mod tests;
