//! Permits for room that all owners share: places, such as sandboxes, and the bytes of memory of all places together.
//!
//! A job takes a permit before it is claimed, for one sandbox and for all the memory that its endpoint allows. **Fairness:** owners
//! that wait take turns, then the endpoints of an owner, and the workers of an endpoint are served in the order in which they
//! came. A permit that finds too few free bytes holds up the later endpoints of its owner, and each owner that would hold more bytes than
//! its own owner would: a stream of small sandboxes starves no large one that is within an equal part of the memory.
//! **Bounds:** the sum of all permits never exceeds the limits, and no owner holds more than its share ([`room`]). **Cost:** a
//! permit that is free takes one uncontended lock and one look at a hash map, and the same when it is given back; a worker that waits
//! also takes a channel, and then each permit that is taken or given back looks at each owner that waits.
//!
//! [`FairPermits`](gristmill_core::fair_permits::FairPermits) are for short work, with a fixed part for each endpoint and owner.
//! These permits are held for as long as a job runs: an endpoint that is alone may have all of them, and an owner's share depends on
//! what is free.

mod room;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::tenancy::Tenancy;
use parking_lot::Mutex;
use tokio::sync::oneshot;

pub(crate) use self::room::Amount;
use self::room::{Fit, Room};
use crate::turns::Turns;

/// The permits of a sandbox host. A clone shares them.
#[derive(Clone)]
pub(crate) struct Permits(Arc<Shared>);

struct Shared {
    all: Amount,
    state: Mutex<State>,
}

struct State {
    room: Room,
    turns: Turns<OwnerId, Turns<EndpointId, VecDeque<Waiter>>>,
    next_waiter: u64,
    /// How many wait, of all endpoints.
    waiting: usize,
}

struct Waiter {
    number: u64,
    bytes: u64,
    grant: oneshot::Sender<Permit>,
}

/// The right to one place with so many bytes. Dropped, it is given back.
#[must_use]
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Permits,
    owner: OwnerId,
    bytes: u64,
}

/// The idle permits that waiters need back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Those of any owner.
    OfAny,
    /// Those of this owner, which holds its share.
    Of(OwnerId),
}

/// The first owner whose waiter there is room for.
enum Next {
    Owner(OwnerId),
    /// No waiter can be served. A newcomer may hold at most so many bytes, or a place if its owner holds none.
    Nobody {
        bytes_max: u64,
    },
}

impl Permits {
    /// Permits for so many places with so many bytes together, shared among the owners of this host.
    pub(crate) fn new(places_max: usize, bytes_max: u64, tenancy: Tenancy) -> Self {
        let all = Amount { places: places_max as u64, bytes: bytes_max };
        let room = Room::new(all, tenancy);
        let state = State { room, turns: Turns::default(), next_waiter: 0, waiting: 0 };
        Self(Arc::new(Shared { all, state: Mutex::new(state) }))
    }

    /// All bytes of this host's places together.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.0.all.bytes
    }

    /// Most bytes of one permit: all of them, or three quarters while several owners have endpoints.
    pub(crate) fn bytes_of_owner_max(&self) -> u64 {
        self.0.state.lock().room.bytes_of_owner_max()
    }

    /// How many permits are taken.
    pub(crate) fn taken(&self) -> usize {
        let free = self.0.state.lock().room.free().places;
        usize::try_from(self.0.all.places - free).unwrap_or(usize::MAX)
    }

    /// How many workers wait for a permit.
    pub(crate) fn waiting(&self) -> usize {
        self.0.state.lock().waiting
    }

    /// Whether the host has room for a place with so many bytes, and only the owner's share is in the way.
    pub(crate) fn is_at_share(&self, owner: &OwnerId, bytes: u64) -> bool {
        self.0.state.lock().room.fit(owner, bytes).is_share()
    }

    /// A permit for a place with so many bytes, when there is one and no worker waits for it.
    pub(crate) fn try_take(&self, owner: &OwnerId, bytes: u64) -> Option<Permit> {
        let mut state = self.0.state.lock();
        state.admits(owner, bytes).then(|| {
            state.room.take(owner, bytes);
            self.permit(owner.clone(), bytes)
        })
    }

    /// Joins the queue for a permit. The future resolves to it; dropping the future leaves the queue. A request for more than
    /// all bytes asks for all bytes, so that every wait can end.
    pub(crate) fn queue(
        &self,
        owner: &OwnerId,
        endpoint: &EndpointId,
        bytes: u64,
    ) -> impl Future<Output = Permit> + Send + use<> {
        let bytes = bytes.min(self.0.all.bytes);
        let (grant, granted) = oneshot::channel();
        let number = self.0.state.lock().push(owner, endpoint, bytes, grant);
        let place = Place {
            permits: self.clone(),
            owner: owner.clone(),
            endpoint: endpoint.clone(),
            number,
        };
        // There may be room by now, and the queue may have been empty.
        self.serve();
        async move {
            let permit = granted.await.expect("only its own future removes a waiter");
            drop(place);
            permit
        }
    }

    /// Grants all permits that there is room for. To be called when the owners of the host may have changed.
    pub(crate) fn serve(&self) {
        loop {
            let mut state = self.0.state.lock();
            let Some((owner, waiter)) = state.next() else { return };
            drop(state);
            // Outside the lock: a waiter that has just left gives its permit back at once.
            drop(waiter.grant.send(self.permit(owner, waiter.bytes)));
        }
    }

    /// The permits among the idle ones that a waiter could use. `idle`: how much each owner holds idle.
    pub(crate) fn wanted(&self, idle: &HashMap<OwnerId, Amount>) -> Option<Wanted> {
        let state = self.0.state.lock();
        let all_idle = idle.values().copied().fold(Amount::default(), Amount::plus);
        state.heads().find_map(|(owner, bytes)| {
            let own = idle.get(owner).copied();
            let then = state.room.fit_after(owner, bytes, all_idle, own.unwrap_or_default());
            let is_own = own.is_some() && state.room.fit(owner, bytes).is_share();
            match (then, is_own) {
                (Fit::Fits, true) => Some(Wanted::Of(owner.clone())),
                (Fit::Fits, false) => Some(Wanted::OfAny),
                _ => None,
            }
        })
    }

    fn permit(&self, owner: OwnerId, bytes: u64) -> Permit {
        Permit { permits: self.clone(), owner, bytes }
    }
}

impl Permit {
    /// The owner that holds it.
    pub(crate) fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// What it is for.
    pub(crate) fn amount(&self) -> Amount {
        Amount::one(self.bytes)
    }
}

impl State {
    /// The waiter of each owner that comes next, by the owners' turns, with the bytes that it wants.
    fn heads(&self) -> impl Iterator<Item = (&OwnerId, u64)> {
        self.turns.iter().filter_map(|(owner, endpoints)| {
            let (_, waiters) = endpoints.iter().next()?;
            Some((owner, waiters.front()?.bytes))
        })
    }

    /// Finds the first owner whose waiter fits, and passes no waiter with a better right.
    fn look(&self) -> Next {
        let mut bytes_max = u64::MAX;
        if self.room.free().places > 0 {
            for (owner, bytes) in self.heads() {
                let fit = self.room.fit(owner, bytes);
                if fit == Fit::Fits && self.may_pass(owner, bytes, bytes_max) {
                    return Next::Owner(owner.clone());
                }
                if fit.is_bytes() {
                    let then = self.room.held(owner).bytes.saturating_add(bytes);
                    bytes_max = bytes_max.min(then);
                }
            }
        }
        Next::Nobody { bytes_max }
    }

    /// Whether the owner may go before waiters that would hold `bytes_max` bytes.
    fn may_pass(&self, owner: &OwnerId, bytes: u64, bytes_max: u64) -> bool {
        let held = self.room.held(owner);
        held.places == 0 || held.bytes.saturating_add(bytes) <= bytes_max
    }

    /// Whether a newcomer may take a place at once.
    fn admits(&self, owner: &OwnerId, bytes: u64) -> bool {
        if self.room.fit(owner, bytes) != Fit::Fits {
            return false;
        }
        if self.waiting == 0 {
            return true;
        }
        let Next::Nobody { bytes_max } = self.look() else { return false };
        self.turns.get(owner).is_none() && self.may_pass(owner, bytes, bytes_max)
    }

    /// Adds a waiter, and returns its number.
    fn push(
        &mut self,
        owner: &OwnerId,
        endpoint: &EndpointId,
        bytes: u64,
        grant: oneshot::Sender<Permit>,
    ) -> u64 {
        let number = self.next_waiter;
        self.next_waiter += 1;
        self.waiting += 1;
        let waiter = Waiter { number, bytes, grant };
        self.turns
            .join(owner, |endpoints| endpoints.join(endpoint, |queue| queue.push_back(waiter)));
        number
    }

    /// The next waiter that there is room for, with its owner; the room is taken.
    fn next(&mut self) -> Option<(OwnerId, Waiter)> {
        if self.waiting == 0 {
            return None;
        }
        let Next::Owner(owner) = self.look() else { return None };
        let waiter = self.turns.serve(&owner, |endpoints| {
            let endpoint = endpoints.iter().next()?.0.clone();
            endpoints.serve(&endpoint, VecDeque::pop_front)
        })?;
        self.waiting -= 1;
        self.room.take(&owner, waiter.bytes);
        Some((owner, waiter))
    }

    /// Removes a waiter, if it still waits.
    fn remove(&mut self, place: &Place) {
        let waiting = &mut self.waiting;
        self.turns.change(&place.owner, |endpoints| {
            endpoints.change(&place.endpoint, |queue| {
                let before = queue.len();
                queue.retain(|waiter| waiter.number != place.number);
                *waiting -= before - queue.len();
            });
        });
    }
}

/// A waiter's place in the queue. Dropped, it is left.
struct Place {
    permits: Permits,
    owner: OwnerId,
    endpoint: EndpointId,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.permits.0.state.lock().remove(self);
        // It may have been a large one that the others waited for.
        self.permits.serve();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let is_wanted = {
            let mut state = self.permits.0.state.lock();
            state.room.give_back(&self.owner, self.bytes);
            state.waiting > 0
        };
        if is_wanted {
            self.permits.serve();
        }
    }
}

impl std::fmt::Debug for Permits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (taken, waiting) = (self.taken(), self.waiting());
        f.debug_struct("Permits").field("taken", &taken).field("waiting", &waiting).finish()
    }
}

#[cfg(test)]
mod owner_tests;
#[cfg(test)]
mod tests;
