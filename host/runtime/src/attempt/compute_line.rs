//! The line of attempts that are about to compute. Owners take turns, and so do the endpoints of
//! each.
//!
//! **Promise.** While an attempt waits, each other owner has one turn, and so has each other
//! endpoint of its owner; the attempts of one endpoint come in their order. An attempt whose
//! deadline has passed is the next one, so that deadlines hold however many attempts wait.
//! **Bounds.** An attempt is in the line once at most, so the line is as long as there are
//! sandboxes.
//! **Cost.** Nothing for the only attempt of a line; otherwise O(log n).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::sharing::turns::{First, Member, Turns};

/// The line; `T` runs an attempt.
#[derive(Debug)]
pub(crate) struct Line<T> {
    /// The attempt that came while no other one waited. It is the next one.
    first: Option<T>,
    owners: Turns<OwnerId, OfOwner<T>>,
    /// The others, by their deadlines.
    deadlines: BTreeMap<Key, Arc<Endpoint>>,
    last_number: u64,
}

/// The deadline of an attempt, and its number in the line.
type Key = (Instant, u64);

#[derive(Debug)]
struct OfOwner<T>(Turns<EndpointId, OfEndpoint<T>>);

#[derive(Debug)]
struct OfEndpoint<T>(BTreeMap<u64, (Key, T)>);

impl<T> Default for OfOwner<T> {
    fn default() -> Self {
        Self(Turns::default())
    }
}

impl<T> Default for OfEndpoint<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> Member for OfOwner<T> {
    fn rank(&self) -> u128 {
        0
    }

    fn first(&self) -> Option<First> {
        self.0.first()
    }

    fn is_idle(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Member for OfEndpoint<T> {
    fn rank(&self) -> u128 {
        0
    }

    fn first(&self) -> Option<First> {
        self.0.keys().next().map(|number| First { number: *number, bytes: 0 })
    }

    fn is_idle(&self) -> bool {
        self.0.is_empty()
    }
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        let (owners, deadlines) = (Turns::default(), BTreeMap::new());
        Self { first: None, owners, deadlines, last_number: 0 }
    }
}

impl<T> Line<T> {
    /// Adds an attempt of this endpoint.
    pub(crate) fn push(&mut self, endpoint: Arc<Endpoint>, deadline: Instant, attempt: T) {
        if self.first.is_none() && self.deadlines.is_empty() {
            self.first = Some(attempt);
            return;
        }
        self.last_number += 1;
        let key = (deadline, self.last_number);
        self.change(&endpoint.owner, &endpoint.id, false, |waiting| {
            waiting.insert(key.1, (key, attempt));
        });
        self.deadlines.insert(key, endpoint);
    }

    /// Takes the next attempt.
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.first.is_some() {
            return self.first.take();
        }
        let due = self.deadlines.first_entry()?;
        if due.key().0 <= Instant::now() {
            let ((_, number), endpoint) = due.remove_entry();
            let taken =
                self.change(&endpoint.owner, &endpoint.id, true, |waiting| waiting.remove(&number));
            return taken.map(|(_, attempt)| attempt);
        }
        let (owner, endpoints) = self.owners.in_order().next()?;
        let (owner, endpoint) = (owner.clone(), endpoints.0.in_order().next()?.0.clone());
        let (_, (key, attempt)) = self.change(&owner, &endpoint, true, BTreeMap::pop_first)?;
        self.deadlines.remove(&key);
        Some(attempt)
    }

    fn change<R>(
        &mut self,
        owner: &OwnerId,
        endpoint: &EndpointId,
        is_turn: bool,
        change: impl FnOnce(&mut BTreeMap<u64, (Key, T)>) -> R,
    ) -> R {
        self.owners.change(owner, is_turn, |endpoints| {
            endpoints.0.change(endpoint, is_turn, |waiting| change(&mut waiting.0))
        })
    }
}

#[cfg(test)]
#[path = "compute_line_tests.rs"]
pub(crate) mod tests;
