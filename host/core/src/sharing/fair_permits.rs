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
mod tests {
    use futures::FutureExt as _;
    use futures::future::BoxFuture;
    use proptest::prelude::*;

    use super::*;

    fn share(permits: &FairPermits, owner: &str, endpoint: &str) -> FairShare {
        permits.share(&OwnerId::new(owner).unwrap(), &EndpointId::new(endpoint).unwrap())
    }

    /// Takes permits one by one until the share has no more.
    fn take_all(permits: &FairPermits, owner: &str, endpoint: &str) -> Vec<FairPermit> {
        let share = share(permits, owner, endpoint);
        std::iter::from_fn(|| share.acquire().now_or_never()).collect()
    }

    #[test]
    fn an_endpoint_has_a_quarter_and_each_owner_leaves_a_quarter_of_the_rest() {
        let permits = FairPermits::new(32);
        let first = take_all(&permits, "a", "a1");
        assert_eq!(first.len(), 8);
        assert_eq!(take_all(&permits, "a", "a1").len(), 0);
        let of_a: Vec<_> = (2..9).flat_map(|n| take_all(&permits, "a", &format!("a{n}"))).collect();
        assert_eq!(of_a.len(), 16);
        // A third and a fourth owner find permits too.
        let others = ["b", "c", "d"].map(|owner| take_all(&permits, owner, owner));
        assert_eq!(others.each_ref().map(Vec::len), [6, 1, 1]);
        drop((first, others));
        assert_eq!(take_all(&permits, "a", "a1").len(), 8);
    }

    #[test]
    fn a_third_owner_is_next_while_two_owners_wait_for_more() {
        let permits = FairPermits::new(32);
        let shares: Vec<_> = (0..16)
            .flat_map(|n| ["a", "b"].map(|owner| share(&permits, owner, &format!("{owner}{n}"))))
            .collect();
        let mut held = vec![];
        let mut waits: Vec<BoxFuture<'_, FairPermit>> = vec![];
        for share in shares.iter().cycle().take(320) {
            let mut wait = share.acquire().boxed();
            match (&mut wait).now_or_never() {
                Some(permit) => held.push(permit),
                None => waits.push(wait),
            }
        }
        assert!(held.len() < 32, "two owners leave some");
        let third = share(&permits, "c", "c");
        let mut granted = vec![];
        // Beyond the permits that are free, each permit that is given back is the third owner's.
        while granted.len() < 6 {
            match third.acquire().now_or_never() {
                Some(permit) => granted.push(permit),
                None => {
                    let mut wait = third.acquire().boxed();
                    assert!((&mut wait).now_or_never().is_none());
                    drop(held.pop().unwrap());
                    granted.push(wait.now_or_never().expect("the owner with the fewest is next"));
                }
            }
        }
        assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
    }

    #[test]
    fn small_requests_do_not_starve_a_large_one() {
        let permits = FairPermits::new(100);
        let [a, b, c] = ["a", "b", "c"].map(|owner| share(&permits, owner, owner));
        let of_d: Vec<_> = (0..4).map(|n| share(&permits, "d", &format!("d{n}"))).collect();
        let held = of_d.iter().filter_map(|share| share.acquire_many(20).now_or_never());
        let held: Vec<_> = held.collect();
        assert_eq!(held.len(), 3, "a fourth part would leave too little");
        let _of_a = a.acquire_many(25).now_or_never().unwrap();
        let mut large = Box::pin(b.acquire_many(25));
        assert!(large.as_mut().now_or_never().is_none());
        assert!(c.acquire().now_or_never().is_none(), "15 are free, for the one that waits");
        drop(held);
        assert!(large.now_or_never().is_some());
        assert!(c.acquire().now_or_never().is_some());
    }

    #[test]
    fn one_permit_goes_round_owners_and_keys() {
        let permits = FairPermits::few(1);
        let share = |owner: &str, key: &str| {
            permits.share_of_key(&OwnerId::new(owner).unwrap(), &KeyId::new(key).unwrap())
        };
        let waits = [("a", "1"), ("a", "1"), ("a", "1"), ("a", "2"), ("b", "3")];
        let shares = waits.map(|(owner, key)| share(owner, key));
        let mut waiting: Vec<_> =
            shares.iter().map(|share| Some(Box::pin(share.acquire()))).collect();
        let mut order = vec![];
        let mut held = None;
        for _ in 0..20 {
            for (number, wait) in waiting.iter_mut().enumerate() {
                let Some(permit) = wait.as_mut().and_then(|wait| wait.now_or_never()) else {
                    continue;
                };
                assert!(held.is_none(), "there is one permit");
                (held, *wait) = (Some(permit), None);
                order.push(number);
            }
            held = None;
        }
        // The other key and the other owner wait for one permit each.
        assert_eq!(order, [0, 4, 3, 1, 2]);
    }

    #[test]
    fn work_without_an_endpoint_has_the_share_of_its_owner() {
        let permits = FairPermits::new(4);
        let owner = |name: &str| permits.owner_share(&OwnerId::new(name).unwrap());
        let take = |name: &str| owner(name).acquire().now_or_never();
        let held = [take("a").unwrap(), take("a").unwrap(), take("a").unwrap()];
        assert!(take("a").is_none());
        assert!(share(&permits, "a", "a1").acquire().now_or_never().is_none(), "one share");
        let other = take("b");
        assert!(other.is_some() && take("c").is_none());
        drop(held);
        assert!(take("a").is_some() && take("c").is_some());
    }

    #[test]
    fn a_request_for_more_than_a_share_takes_the_share() {
        let permits = FairPermits::new(100);
        let (a, b) = (share(&permits, "a", "a"), share(&permits, "b", "b"));
        let held = a.acquire_many(1_000).now_or_never().unwrap();
        assert!(a.acquire().now_or_never().is_none());
        let other = b.acquire_many(25).now_or_never();
        assert!(other.is_some());
        drop(held);
        assert!(a.acquire().now_or_never().is_some());
    }

    #[test]
    fn endpoints_without_permits_take_no_memory() {
        let permits = FairPermits::new(8);
        for n in 0..1_000 {
            drop(share(&permits, "a", &format!("a{n}")));
        }
        let held = share(&permits, "a", "a").acquire().now_or_never();
        assert_eq!(permits.0.state.lock().owners.len(), 1);
        drop(held);
        assert!(permits.0.state.lock().owners.is_empty());
    }

    #[test]
    fn an_abandoned_wait_leaves_no_state() {
        let permits = FairPermits::new(8);
        let share = share(&permits, "a", "a");
        let held = share.acquire_many(2).now_or_never().unwrap();
        for _ in 0..100 {
            assert!(share.acquire().now_or_never().is_none());
        }
        drop(held);
        assert!(share.acquire_many(2).now_or_never().is_some());
        let state = permits.0.state.lock();
        assert_eq!((state.used, state.waiting, state.owners.len()), (0, 0, 0));
    }

    proptest! {
        /// For any calls: all permits are counted, the bounds hold, and no caller waits that may be
        /// served.
        #[test]
        fn permits_are_counted_and_none_is_kept_from_a_caller(
            max in 1..40_usize,
            events in prop::collection::vec((0..4_u8, 0..3_u8, 1..12_usize, any::<prop::sample::Index>()), 1..120),
        ) {
            let permits = FairPermits::few(max);
            let mut held: Vec<FairPermit> = vec![];
            let shares: Vec<_> = (0..12)
                .map(|n| share(&permits, &format!("o{}", n / 3), &format!("e{n}")))
                .collect();
            let mut waits: Vec<BoxFuture<'_, FairPermit>> = vec![];
            for (owner, endpoint, count, which) in events {
                match count {
                    10 if !held.is_empty() => drop(held.swap_remove(which.index(held.len()))),
                    11 if !waits.is_empty() => drop(waits.swap_remove(which.index(waits.len()))),
                    _ => {
                        let share = &shares[usize::from(owner * 3 + endpoint)];
                        waits.push(share.acquire_many(count).boxed());
                    }
                }
                // Permits are granted when they are given back or when a caller comes; the futures
                // only fetch them. A caller that comes may make room in the order for an earlier
                // one, whose future was polled before.
                loop {
                    let before = waits.len();
                    waits.retain_mut(|wait| match wait.now_or_never() {
                        Some(permit) => { held.push(permit); false }
                        None => true,
                    });
                    if waits.len() == before { break }
                }
                let mut state = permits.0.state.lock();
                let taken: u64 = held.iter().map(|permit| permit.count).sum();
                prop_assert_eq!(state.used, taken);
                prop_assert!(taken <= max as u64);
                prop_assert_eq!(state.waiting, waits.len());
                for owner in state.owners.values() {
                    prop_assert_eq!(owner.held, owner.parts.values().map(|part| part.held).sum::<u64>());
                    prop_assert!(owner.parts.values().all(|part| part.held <= permits.0.bounds.of_part));
                }
                prop_assert!(state.next(&permits.0.bounds).is_none());
            }
            drop((held, waits));
            let state = permits.0.state.lock();
            prop_assert_eq!((state.used, state.waiting, state.owners.len()), (0, 0, 0));
        }
    }
}
