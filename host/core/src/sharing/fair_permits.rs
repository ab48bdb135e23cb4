//! Permits for something that all endpoints use together, such as threads or memory: one endpoint
//! cannot use up all of it, and neither can some owners with many endpoints. Work that belongs to
//! no endpoint counts for a key, or for the owner alone.
//!
//! **Promise.** An endpoint or a key holds at most a quarter of the permits. The endpoints of an
//! owner together have [a share](SharedBound), on a host of one owner too: an owner that holds none
//! is served as soon as enough are free. The next permits go to the owner that holds the fewest;
//! among equals, to the owner whose last turn is the longest ago. The same holds for the endpoints
//! of that owner. The callers of an endpoint are served in the order of their calls. A caller that
//! waits for permits of its own endpoint or owner delays no other owner. A caller that waits for
//! more permits than are free delays all that come after it, so that small requests do not starve a
//! large one.
//! **Cost.** A lock and two looks into maps for each permit that is taken or given back. While
//! callers wait, also one step for each endpoint that holds or awaits permits. Some 200 bytes for
//! each owner and endpoint that holds or awaits permits, and nothing for others.
//!
//! These permits are for short work, such as a file operation: the quarter of an endpoint is fixed,
//! and holds on a host of one owner too, since a slow endpoint must not delay the other endpoints
//! of its owner. The permits of sandboxes ([`permits`](super::permits)) have the same rule and
//! order for owners. They are held for as long as a job runs, up to a week, so there an endpoint
//! may use the whole host while no other endpoint needs it, and a large sandbox may delay others
//! only for a part of the time.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::id::{EndpointId, KeyId, OwnerId};
use crate::sharing::cores::cores;
use crate::sharing::shares::{Fit, SharedBound};

/// Permits that owners and endpoints share.
#[derive(Debug)]
pub struct FairPermits(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bounds: Bounds,
    state: Mutex<State>,
}

#[derive(Debug)]
struct Bounds {
    all: SharedBound,
    /// Most permits of an endpoint, or of a key.
    of_part: u64,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    /// Owners that hold or await permits.
    owners: HashMap<OwnerId, Owner>,
    /// How many callers wait.
    waiting: usize,
    next_waiter: u64,
    turns: u64,
}

/// The work of an owner that one limit bounds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    Endpoint(EndpointId),
    Key(KeyId),
    /// Work that belongs to no endpoint and no key. Only the owner's share bounds it.
    Rest,
}

#[derive(Debug, Default)]
struct Owner {
    held: u64,
    /// The turn that it had last; 0: none.
    turn: u64,
    /// Parts that hold or await permits.
    parts: HashMap<Part, PartUse>,
    waiting: usize,
}

#[derive(Debug, Default)]
struct PartUse {
    held: u64,
    turn: u64,
    waiters: VecDeque<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    number: u64,
    count: u64,
    grant: oneshot::Sender<FairPermit>,
}

/// The right of an endpoint to ask for permits. It holds none by itself.
#[derive(Debug)]
pub struct FairShare {
    shared: Arc<Shared>,
    owner: OwnerId,
    part: Part,
}

/// Permits of an endpoint, given back when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct FairPermit {
    shared: Arc<Shared>,
    owner: OwnerId,
    part: Part,
    count: u64,
}

impl FairPermits {
    /// So many permits in all, at least four.
    pub fn new(max: usize) -> Self {
        Self::few(max.max(4))
    }

    /// So many permits in all, at least one. Where a quarter would be less than one permit it is
    /// one; with a single permit, a caller then waits for at most one permit of each other owner.
    pub fn few(max: usize) -> Self {
        let max = max.max(1) as u64;
        let bounds = Bounds { all: SharedBound::always(max), of_part: (max / 4).max(1) };
        Self(Arc::new(Shared { bounds, state: Mutex::default() }))
    }

    /// As many permits as half of the cores, for work that keeps a core busy.
    pub fn half_of_cores() -> Self {
        Self::few(cores() / 2)
    }

    /// The share of an endpoint.
    pub fn share(&self, owner: &OwnerId, endpoint: &EndpointId) -> FairShare {
        self.share_of(owner, Part::Endpoint(endpoint.clone()))
    }

    /// The share of a key, which is as large as an endpoint's.
    pub fn share_of_key(&self, owner: &OwnerId, key: &KeyId) -> FairShare {
        self.share_of(owner, Part::Key(key.clone()))
    }

    /// The share of an owner, for work that belongs to no endpoint.
    pub fn owner_share(&self, owner: &OwnerId) -> FairShare {
        self.share_of(owner, Part::Rest)
    }

    fn share_of(&self, owner: &OwnerId, part: Part) -> FairShare {
        FairShare { shared: self.0.clone(), owner: owner.clone(), part }
    }
}

impl FairShare {
    /// How many callers of the owner wait.
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().owners.get(&self.owner).map_or(0, |owner| owner.waiting)
    }

    /// Waits for a permit.
    pub async fn acquire(&self) -> FairPermit {
        self.acquire_many(1).await
    }

    /// Waits for so many permits, or for a quarter of all when that is less.
    pub async fn acquire_many(&self, count: usize) -> FairPermit {
        let Self { shared, owner, part } = self;
        let count = (count as u64).clamp(1, shared.bounds.of_part);
        let (number, granted) = {
            let mut state = shared.state.lock();
            if state.waiting == 0 && state.fits(&shared.bounds, owner, part, count) {
                state.take(owner, part, count);
                return shared.permit(owner.clone(), part.clone(), count);
            }
            state.push(owner, part, count)
        };
        let position = Position { share: self, number };
        // A caller that waits for its own share delays no other.
        shared.serve();
        let permit = granted.await.expect("only its own future removes a waiter");
        drop(position);
        permit
    }
}

impl Shared {
    fn permit(self: &Arc<Self>, owner: OwnerId, part: Part, count: u64) -> FairPermit {
        FairPermit { shared: self.clone(), owner, part, count }
    }

    /// Grants all permits that may be granted.
    fn serve(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let Some((owner, part, waiter)) = state.next(&self.bounds) else { return };
            drop(state);
            // Outside the lock: the permit of a caller that has just left is given back at once.
            drop(waiter.grant.send(self.permit(owner, part, waiter.count)));
        }
    }
}

impl State {
    /// Whether the part may have so many permits more.
    fn fits(&self, bounds: &Bounds, owner: &OwnerId, part: &Part, count: u64) -> bool {
        let owner = self.owners.get(owner);
        let of_part = owner.and_then(|owner| owner.parts.get(part)).map_or(0, |part| part.held);
        let of_owner = owner.map_or(0, |owner| owner.held);
        part.admits(of_part, count, bounds)
            && bounds.all.fit(of_owner, self.used, count) == Fit::Fits
    }

    fn take(&mut self, owner: &OwnerId, part: &Part, count: u64) {
        self.turns += 1;
        self.used += count;
        let owner = self.owners.entry(owner.clone()).or_default();
        owner.held += count;
        owner.turn = self.turns;
        let part = owner.parts.entry(part.clone()).or_default();
        part.held += count;
        part.turn = self.turns;
    }

    /// Adds a waiter. Returns its number and the receiver of its permit.
    fn push(
        &mut self,
        owner: &OwnerId,
        part: &Part,
        count: u64,
    ) -> (u64, oneshot::Receiver<FairPermit>) {
        let (grant, granted) = oneshot::channel();
        let number = self.next_waiter;
        self.next_waiter += 1;
        self.waiting += 1;
        let owner = self.owners.entry(owner.clone()).or_default();
        owner.waiting += 1;
        let part = owner.parts.entry(part.clone()).or_default();
        part.waiters.push_back(Waiter { number, count, grant });
        (number, granted)
    }

    /// The next waiter, if there are enough permits for it; they are taken.
    fn next(&mut self, bounds: &Bounds) -> Option<(OwnerId, Part, Waiter)> {
        if self.waiting == 0 || self.used >= bounds.all.max() {
            return None;
        }
        let waiting = self.owners.iter().filter(|(_, owner)| owner.waiting > 0);
        let heads = waiting.filter_map(|(name, owner)| {
            let (part, waiter) = owner.head(bounds)?;
            let rank = (owner.held, owner.turn, waiter.number);
            let fit = bounds.all.fit(owner.held, self.used, waiter.count);
            // Who holds some is at the share when too few are free, and delays no other owner.
            let has_turn = fit == Fit::Fits || fit == Fit::Full && owner.held == 0;
            has_turn.then_some((rank, name, part, fit))
        });
        let (_, owner, part, _) =
            heads.min_by_key(|(rank, ..)| *rank).filter(|(.., fit)| *fit == Fit::Fits)?;
        let (owner, part) = (owner.clone(), part.clone());
        let waiter = self.change(&owner, &part, |part| part.waiters.pop_front())?;
        self.take(&owner, &part, waiter.count);
        Some((owner, part, waiter))
    }

    /// Removes a waiter, if it still waits.
    fn remove(&mut self, owner: &OwnerId, part: &Part, number: u64) {
        self.change(owner, part, |part| part.waiters.retain(|waiter| waiter.number != number));
    }

    fn give_back(&mut self, owner: &OwnerId, part: &Part, count: u64) {
        self.used -= count;
        self.change(owner, part, |part| part.held -= count);
    }

    /// Changes a part that holds or awaits permits, and forgets it when it does no more.
    fn change<T: Default>(
        &mut self,
        name: &OwnerId,
        part: &Part,
        change: impl FnOnce(&mut PartUse) -> T,
    ) -> T {
        let Some(owner) = self.owners.get_mut(name) else { return T::default() };
        let Some(used) = owner.parts.get_mut(part) else { return T::default() };
        let (held, waiters) = (used.held, used.waiters.len());
        let answer = change(used);
        owner.held -= held - used.held;
        let served = waiters - used.waiters.len();
        owner.waiting -= served;
        self.waiting -= served;
        if used.held == 0 && used.waiters.is_empty() {
            owner.parts.remove(part);
        }
        if owner.parts.is_empty() {
            self.owners.remove(name);
        }
        answer
    }
}

impl Part {
    fn admits(&self, held: u64, count: u64, bounds: &Bounds) -> bool {
        matches!(self, Self::Rest) || held + count <= bounds.of_part
    }
}

impl Owner {
    /// The waiter that is next, and its part.
    fn head(&self, bounds: &Bounds) -> Option<(&Part, &Waiter)> {
        let heads = self.parts.iter().filter_map(|(part, used)| {
            let waiter = used.waiters.front()?;
            let rank = (used.held, used.turn, waiter.number);
            part.admits(used.held, waiter.count, bounds).then_some((rank, part, waiter))
        });
        let (_, part, waiter) = heads.min_by_key(|(rank, ..)| *rank)?;
        Some((part, waiter))
    }
}

/// A waiter's position in the queue. Dropped, it is left.
struct Position<'a> {
    share: &'a FairShare,
    number: u64,
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        let FairShare { shared, owner, part } = self.share;
        shared.state.lock().remove(owner, part, self.number);
        // It may have been a large one that others waited for.
        shared.serve();
    }
}

impl Drop for FairPermit {
    fn drop(&mut self) {
        let is_wanted = {
            let mut state = self.shared.state.lock();
            state.give_back(&self.owner, &self.part, self.count);
            state.waiting > 0
        };
        if is_wanted {
            self.shared.serve();
        }
    }
}

#[cfg(test)]
#[path = "fair_permits_tests.rs"]
mod tests;
