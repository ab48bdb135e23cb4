//! Permits for capacity that all owners share: slots, such as sandboxes, and the bytes of memory of
//! all slots together.
//!
//! A job takes a permit before it is claimed, for one sandbox and for all the memory that its
//! endpoint allows. **Fairness:** the owner that holds the least is next, by the larger one of its
//! parts of the slots and of the bytes, and owners that hold equally much take turns; then the
//! endpoints of an owner take turns, and the workers of an endpoint are served in the order in
//! which they came. A worker that finds too few free bytes holds up the later endpoints of its
//! owner, and every owner that would then hold more bytes than the worker's owner would, so that a
//! stream of small sandboxes does not starve a large one. It does so only for a [quarter](holds) of
//! the time, since the memory that it waits for may be in use for days. **Bounds:** the sum of all
//! permits never exceeds the limits, and no owner holds more than its share ([`capacity`]).
//! **Cost:** taking a free permit, and returning it, each cost one uncontended lock and a few map
//! lookups. A waiting worker also costs a channel, and while workers wait, each permit that is
//! taken or returned examines all waiting owners, and up to 64 [endpoints](Turns) of each.
//!
//! [`FairPermits`](crate::sharing::fair_permits::FairPermits) are for short work: the rule for
//! owners is the same, and an endpoint has a fixed part. These permits are held for as long as a
//! job runs: an endpoint that is alone may have all of them, and a request that does not fit delays
//! others for a part of the time only.

mod capacity;
mod holds;

use std::collections::HashMap;
use std::ops::Add;
use std::sync::Arc;

use crate::id::{EndpointId, OwnerId};
use crate::sharing::tenancy::Tenancy;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub use self::capacity::PermitAmount;
use self::capacity::{Capacity, PermitFit};
use self::holds::Holds;
use crate::sharing::turns::{Turns, Waiter};

/// The permits of a sandbox host. A clone shares them.
#[derive(Clone)]
pub struct Permits(Arc<Shared>);

struct Shared {
    all: PermitAmount,
    state: Mutex<State>,
}

/// An owner that waits.
struct WaitingOwner {
    /// Its turn among owners that hold equally much.
    turn: u64,
    endpoints: Turns<EndpointId, Grant>,
}

/// Hands a waiter its permit.
type Grant = oneshot::Sender<Permit>;

struct State {
    capacity: Capacity,
    /// Owners with waiters.
    owners: HashMap<OwnerId, WaitingOwner>,
    /// The last number of a waiter or a turn.
    last_number: u64,
    /// The number of waiters of all endpoints.
    waiting: usize,
    holds: Holds,
    /// Whether a task examines the waiters again when a hold ends.
    is_watched: bool,
}

/// The right to one slot with so many bytes. Dropping it returns the slot.
#[must_use]
#[derive(Debug)]
pub struct Permit {
    permits: Permits,
    owner: OwnerId,
    bytes: u64,
}

/// The idle permits that waiters need back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Permits of any owner.
    OfAny,
    /// Permits of this owner, which is at its share.
    Of(OwnerId),
}

/// The first endpoint with a waiter that can be served.
enum Next {
    Endpoint(OwnerId, EndpointId),
    /// No waiter can be served. A new request may be served if its owner would then hold at most so
    /// many bytes, or holds no slot.
    NoWaiter {
        bytes_max: u64,
    },
}

impl Permits {
    /// Permits for so many slots with so many bytes together, shared among the owners of this host.
    pub fn new(places_max: usize, bytes_max: u64, tenancy: Tenancy) -> Self {
        let all = PermitAmount { slots: places_max as u64, bytes: bytes_max };
        let capacity = Capacity::new(all, tenancy);
        let state = State {
            capacity,
            owners: HashMap::new(),
            last_number: 0,
            waiting: 0,
            holds: Holds::default(),
            is_watched: false,
        };
        Self(Arc::new(Shared { all, state: Mutex::new(state) }))
    }

    /// All bytes of this host's slots together.
    pub fn bytes_max(&self) -> u64 {
        self.0.all.bytes
    }

    /// Most bytes of one permit: all of them, or three quarters while the host has several owners.
    pub fn bytes_of_owner_max(&self) -> u64 {
        self.0.state.lock().capacity.bytes_of_owner_max()
    }

    /// How many permits are taken.
    pub fn taken(&self) -> usize {
        let slots = self.0.state.lock().capacity.held().all().slots;
        usize::try_from(slots).unwrap_or(usize::MAX)
    }

    /// How many workers wait for a permit.
    pub fn waiting(&self) -> usize {
        self.0.state.lock().waiting
    }

    /// Whether the host has room for a slot with so many bytes, and only the owner's share prevents
    /// a permit.
    pub fn is_at_share(&self, owner: &OwnerId, bytes: u64) -> bool {
        self.0.state.lock().capacity.fit(owner, bytes).is_share()
    }

    /// A permit for a slot with so many bytes, if one is free and no worker waits for it.
    pub fn try_take(&self, owner: &OwnerId, bytes: u64) -> Option<Permit> {
        let mut state = self.0.state.lock();
        state.admits(owner, bytes).then(|| {
            state.capacity.take(owner, bytes);
            self.permit(owner.clone(), bytes)
        })
    }

    /// Joins the queue for a permit. The future resolves to it; dropping the future leaves the
    /// queue. A request for more than all bytes counts as one for all bytes, so that every wait can
    /// end.
    pub fn queue(
        &self,
        owner: &OwnerId,
        endpoint: &EndpointId,
        bytes: u64,
    ) -> impl Future<Output = Permit> + Send + use<> {
        let bytes = bytes.min(self.0.all.bytes);
        let (grant, granted) = oneshot::channel();
        let number = self.0.state.lock().push(owner, endpoint, bytes, grant);
        let position = WaiterPosition {
            permits: self.clone(),
            owner: owner.clone(),
            endpoint: endpoint.clone(),
            number,
        };
        // There may be room by now, and the queue may have been empty.
        self.serve();
        self.watch();
        async move {
            let permit = granted.await.expect("only its own future removes a waiter");
            drop(position);
            permit
        }
    }

    /// Grants all permits that there is room for. To be called when the owners of the host may have
    /// changed.
    pub fn serve(&self) {
        loop {
            let mut state = self.0.state.lock();
            let Some((owner, waiter)) = state.next() else { return };
            drop(state);
            // Outside the lock: if a waiter has just left, its permit is dropped here, which takes
            // the lock.
            drop(waiter.grant.send(self.permit(owner, waiter.bytes)));
        }
    }

    /// Serves again whenever a hold has ended, for as long as workers wait.
    fn watch(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.0.state.lock();
        if state.waiting == 0 || std::mem::replace(&mut state.is_watched, true) {
            return;
        }
        let permits = self.clone();
        drop(runtime.spawn(async move {
            loop {
                tokio::time::sleep(holds::STEP).await;
                permits.serve();
                let mut state = permits.0.state.lock();
                state.is_watched = state.waiting > 0;
                if !state.is_watched {
                    return;
                }
            }
        }));
    }

    /// The permits among the idle ones that a waiter could use. `idle`: how much each owner holds
    /// idle.
    pub fn wanted(&self, idle: &HashMap<OwnerId, PermitAmount>) -> Option<Wanted> {
        let state = self.0.state.lock();
        let all_idle = idle.values().copied().fold(PermitAmount::default(), Add::add);
        let line = in_order(&state.owners, &state.capacity).into_iter();
        let mut waiters = line
            .flat_map(|(owner, endpoints)| endpoints.heads().map(move |(_, bytes)| (owner, bytes)));
        waiters.find_map(|(owner, bytes)| {
            let own = idle.get(owner).copied();
            let then = state.capacity.fit_after(owner, bytes, all_idle, own.unwrap_or_default());
            let is_own = own.is_some() && state.capacity.fit(owner, bytes).is_share();
            match (then, is_own) {
                (PermitFit::Fits, true) => Some(Wanted::Of(owner.clone())),
                (PermitFit::Fits, false) => Some(Wanted::OfAny),
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
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// The slot and the bytes that it permits.
    pub fn amount(&self) -> PermitAmount {
        PermitAmount::one(self.bytes)
    }
}

impl State {
    /// Finds the first endpoint whose waiter fits, without passing a waiter that holds up others.
    fn look(&mut self) -> Next {
        let Self { capacity, owners, holds, .. } = self;
        let mut bytes_max = u64::MAX;
        if capacity.is_full() {
            return Next::NoWaiter { bytes_max };
        }
        // Decided when the first waiter without enough bytes is met.
        let mut may_hold = None;
        for (owner, endpoints) in in_order(owners, capacity) {
            for (endpoint, bytes) in endpoints.heads() {
                let fit = capacity.fit(owner, bytes);
                if fit == PermitFit::Fits && capacity.may_pass(owner, bytes, bytes_max) {
                    return Next::Endpoint(owner.clone(), endpoint.clone());
                }
                if fit.is_bytes() && *may_hold.get_or_insert_with(|| holds.may_hold()) {
                    let then = capacity.held().of(owner).bytes.saturating_add(bytes);
                    bytes_max = bytes_max.min(then);
                    break;
                }
            }
        }
        Next::NoWaiter { bytes_max }
    }

    /// Whether a new request may take a slot at once.
    fn admits(&mut self, owner: &OwnerId, bytes: u64) -> bool {
        if self.capacity.fit(owner, bytes) != PermitFit::Fits {
            return false;
        }
        if self.waiting == 0 {
            return true;
        }
        let Next::NoWaiter { bytes_max } = self.look() else { return false };
        !self.owners.contains_key(owner) && self.capacity.may_pass(owner, bytes, bytes_max)
    }

    /// Adds a waiter, and returns its number.
    fn push(
        &mut self,
        owner: &OwnerId,
        endpoint: &EndpointId,
        bytes: u64,
        grant: oneshot::Sender<Permit>,
    ) -> u64 {
        let number = self.next_number();
        self.waiting += 1;
        let new = || WaitingOwner { turn: number, endpoints: Turns::default() };
        let of_owner = self.owners.entry(owner.clone()).or_insert_with(new);
        of_owner.endpoints.join(endpoint, Waiter { number, bytes, grant });
        number
    }

    /// The next waiter that there is room for, with its owner; the room is taken.
    fn next(&mut self) -> Option<(OwnerId, Waiter<Grant>)> {
        if self.waiting == 0 {
            return None;
        }
        let Next::Endpoint(owner, endpoint) = self.look() else { return None };
        let turn = self.next_number();
        let of_owner = self.owners.get_mut(&owner)?;
        of_owner.turn = turn;
        let waiter = of_owner.endpoints.serve(&endpoint)?;
        self.forget_if_served(&owner);
        self.waiting -= 1;
        self.capacity.take(&owner, waiter.bytes);
        Some((owner, waiter))
    }

    /// Removes a waiter, if it still waits.
    fn remove(&mut self, position: &WaiterPosition) {
        let Some(of_owner) = self.owners.get_mut(&position.owner) else { return };
        let has_waited = of_owner.endpoints.remove(&position.endpoint, position.number);
        self.waiting -= usize::from(has_waited);
        self.forget_if_served(&position.owner);
    }

    fn forget_if_served(&mut self, owner: &OwnerId) {
        if self.owners.get(owner).is_some_and(|of_owner| of_owner.endpoints.is_empty()) {
            self.owners.remove(owner);
        }
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

/// The owners that wait, the next one first.
fn in_order<'a>(
    owners: &'a HashMap<OwnerId, WaitingOwner>,
    capacity: &Capacity,
) -> Vec<(&'a OwnerId, &'a Turns<EndpointId, Grant>)> {
    let mut line: Vec<_> = owners.iter().collect();
    line.sort_by_cached_key(|(owner, waits)| (capacity.rank(owner), waits.turn));
    line.into_iter().map(|(owner, waits)| (owner, &waits.endpoints)).collect()
}

/// A waiter's position in the queue. Dropping it leaves the queue.
struct WaiterPosition {
    permits: Permits,
    owner: OwnerId,
    endpoint: EndpointId,
    number: u64,
}

impl Drop for WaiterPosition {
    fn drop(&mut self) {
        self.permits.0.state.lock().remove(self);
        // The waiter may have been a large one that held up the others.
        self.permits.serve();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let is_wanted = {
            let mut state = self.permits.0.state.lock();
            state.capacity.give_back(&self.owner, self.bytes);
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
