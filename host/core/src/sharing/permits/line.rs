//! What owners and their endpoints hold, and the order of those that wait.
//!
//! **Promise.** The sums for a part, its owner and all are changed together. The first waiter that
//! fits is found without passing a waiter that delays it ([`permits`](super) has the order).
//! **Cost.** That of [`permits`](super): all of it is spent here, under one lock.

use std::collections::VecDeque;
use std::time::Instant;

use tokio::sync::oneshot;

use super::capacity::{Capacity, Held, Holders, PermitAmount, PermitFit, Request, Reserve};
use super::holds::Holds;
use super::sharer::Sharer;
use crate::id::{EndpointId, KeyId};
use crate::sharing::shares::Level;
use crate::sharing::turns::{First, Member, Turns, Waiter};

/// All that hold or await permits for one resource.
pub(super) struct Line<O: Sharer, P> {
    pub(super) capacity: Capacity,
    pub(super) owners: Turns<O, OwnerUse<P>>,
    /// The last number of a waiter.
    last_number: u64,
    /// The number of waiters of all owners.
    pub(super) waiting: usize,
    /// Those of them that wait to grow.
    pub(super) growing: usize,
    /// How many growths that waited were granted.
    pub(super) grown: u64,
    holds: Holds,
    /// Whether a task examines the waiters again when a hold ends.
    pub(super) is_watched: bool,
}

/// What an owner holds and awaits.
pub(super) struct OwnerUse<P> {
    pub(super) held: Held,
    /// The unused reserves of its endpoints.
    unused: PermitAmount,
    rank: u128,
    waiting: usize,
    pub(super) parts: Turns<OwnerPart, PartUse<P>>,
}

impl<P> Default for OwnerUse<P> {
    fn default() -> Self {
        let (held, unused, rank, waiting, parts) = Default::default();
        Self { held, unused, rank, waiting, parts }
    }
}

/// What an endpoint or a key holds and awaits.
pub(super) struct PartUse<P> {
    pub(super) held: Held,
    reserve: Reserve,
    rank: u128,
    /// Those that grow first, then the deepest.
    waiters: VecDeque<Waiter<Grant<P>>>,
}

impl<P> Default for PartUse<P> {
    fn default() -> Self {
        let (held, reserve, rank, waiters) = Default::default();
        Self { held, reserve, rank, waiters }
    }
}

/// Hands a waiter its permit for so many slots at this level.
pub(super) struct Grant<P> {
    slots: u64,
    level: Level,
    grows_since: Option<Instant>,
    pub(super) permit: oneshot::Sender<P>,
}

/// Who takes a permit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Holder<O> {
    pub(super) owner: O,
    pub(super) part: OwnerPart,
}

/// The work of an owner that takes turns with the owner's other work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum OwnerPart {
    Endpoint(EndpointId),
    Key(KeyId),
    /// Work that belongs to no endpoint and no key. Only the owner's share bounds it.
    Rest,
}

/// The first waiter that can be served.
enum Next<O> {
    Of(Holder<O>),
    /// No waiter can be served. A new request may be served if its owner would then hold at most so
    /// many bytes, or holds no slot.
    NoWaiter {
        bytes_max: u64,
    },
    /// No waiter can be served, and no new request: all are behind one for more slots than are
    /// free.
    Delayed,
}

impl<O: Sharer, P> Line<O, P> {
    pub(super) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            owners: Turns::default(),
            last_number: 0,
            waiting: 0,
            growing: 0,
            grown: 0,
            holds: Holds::default(),
            is_watched: false,
        }
    }

    /// How many of the owner wait.
    pub(super) fn waiting_of(&self, owner: &O) -> usize {
        self.owners.get(owner).map_or(0, |of_owner| of_owner.waiting)
    }

    /// Finds the first waiter that fits, without passing a waiter that delays it.
    fn look(&mut self) -> Next<O> {
        let Self { capacity, owners, growing, holds, .. } = self;
        let mut bytes_max = u64::MAX;
        if *growing > 0
            && let Some(holder) = first_growth(capacity, owners)
        {
            return Next::Of(holder);
        }
        if capacity.is_full() {
            return Next::NoWaiter { bytes_max };
        }
        // Decided when the first waiter without enough bytes is met.
        let mut may_hold = None;
        for (owner, of_owner) in owners.in_order() {
            let is_divided = capacity.divides(owner);
            for (part, of_part) in of_owner.parts.heads() {
                let Some(request) = of_part.wanted() else { continue };
                let holders = of_owner.holders(part, Some(of_part), is_divided);
                match capacity.fit(&holders, request) {
                    PermitFit::Fits if may_pass(&holders, request, bytes_max) => {
                        return Next::Of(Holder { owner: owner.clone(), part: part.clone() });
                    }
                    // An owner that holds some is at its share when too few slots are free.
                    PermitFit::NoSlot if of_owner.held.all.slots == 0 => return Next::Delayed,
                    PermitFit::NoSlot => break,
                    fit if fit.is_bytes()
                        && request.level == Level::CLIENT
                        && *may_hold.get_or_insert_with(|| holds.may_hold()) =>
                    {
                        bytes_max = bytes_max.min((of_owner.held.all + request.amount).bytes);
                        break;
                    }
                    _ => {}
                }
            }
        }
        Next::NoWaiter { bytes_max }
    }

    /// What the owner and the part hold.
    pub(super) fn holders(&self, Holder { owner, part }: &Holder<O>) -> Holders {
        let is_divided = self.capacity.divides(owner);
        match self.owners.get(owner) {
            Some(of_owner) => of_owner.holders(part, of_owner.parts.get(part), is_divided),
            None => OwnerUse::<P>::default().holders(part, None, is_divided),
        }
    }

    /// Whether a new request may be served at once.
    fn admits(&mut self, holder: &Holder<O>, request: Request) -> bool {
        let holders = self.holders(holder);
        if self.capacity.fit(&holders, request) != PermitFit::Fits {
            return false;
        }
        if self.waiting == 0 || holders.is_reserved(&request.amount) {
            return true;
        }
        let Next::NoWaiter { bytes_max } = self.look() else { return false };
        self.waiting_of(&holder.owner) == 0 && may_pass(&holders, request, bytes_max)
    }

    /// Takes room for a new request. Returns whether there was some.
    pub(super) fn try_take(&mut self, holder: &Holder<O>, request: Request) -> bool {
        let admits = self.admits(holder, request);
        if admits {
            self.change(holder, true, |of_part| of_part.held = of_part.held + request.into());
        }
        admits
    }

    /// Adds a waiter, and returns its number.
    pub(super) fn push(
        &mut self,
        holder: &Holder<O>,
        Request { amount: PermitAmount { slots, bytes }, level, grows_since }: Request,
        permit: oneshot::Sender<P>,
    ) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let waiter = Waiter { number, bytes, grant: Grant { slots, level, grows_since, permit } };
        self.growing += usize::from(waiter.grows());
        self.change(holder, false, |of_part| of_part.push(waiter));
        number
    }

    /// The next waiter that there is room for; the room is taken.
    pub(super) fn next(&mut self) -> Option<(Holder<O>, Waiter<Grant<P>>)> {
        let first = self.owners.first()?;
        if first.bytes > self.capacity.bytes_free() {
            // A waiter without enough bytes begins a hold, also without a look at all others.
            self.holds.may_hold();
            return None;
        }
        let Next::Of(holder) = self.look() else { return None };
        let waiter = self.change(&holder, true, |of_part| {
            let waiter = of_part.waiters.pop_front()?;
            of_part.held = of_part.held + waiter.request().into();
            Some(waiter)
        })?;
        if waiter.grows() {
            self.growing -= 1;
            self.grown += 1;
        }
        Some((holder, waiter))
    }

    /// The waiter with this number leaves.
    pub(super) fn leave(&mut self, holder: &Holder<O>, number: u64) {
        let left = self.change(holder, false, |of_part| {
            let at = of_part.waiters.iter().position(|other| other.number == number)?;
            of_part.waiters.remove(at)
        });
        self.growing -= usize::from(left.is_some_and(|left| left.grows()));
    }

    /// Returns what was taken. Returns whether a waiter may want it.
    pub(super) fn give_back(&mut self, holder: &Holder<O>, taken: Request) -> bool {
        self.change(holder, false, |of_part| of_part.held = of_part.held - taken.into());
        self.waiting > 0
    }

    /// Uses at another level what was taken, if the slots that are kept for deeper ones are free.
    pub(super) fn try_move(
        &mut self,
        holder: &Holder<O>,
        taken: Request,
        level: Level,
    ) -> Option<Request> {
        let moved = Request { level, ..taken };
        if !self.capacity.keeps(level) {
            return None;
        }
        if moved != taken {
            self.change(holder, false, |of_part| {
                of_part.held = of_part.held - taken.into() + moved.into();
            });
        }
        Some(moved)
    }

    /// The endpoint has so many slots at any time, of so many bytes each.
    pub(super) fn reserve(&mut self, holder: &Holder<O>, asked: Reserve) {
        let before = self.part(holder).map(|of_part| of_part.reserve).unwrap_or_default();
        let granted = self.capacity.grant_reserve(before, asked);
        if (before.slots, granted.slots) != (0, 0) {
            self.change(holder, false, |of_part| of_part.reserve = granted);
        }
    }

    /// The slots that the holder has beyond its reserve.
    pub(super) fn beyond_reserve(&self, holder: &Holder<O>) -> u64 {
        let beyond =
            |of_part: &PartUse<P>| of_part.held.all.slots.saturating_sub(of_part.reserve.slots);
        self.part(holder).map_or(0, beyond)
    }

    fn part(&self, Holder { owner, part }: &Holder<O>) -> Option<&PartUse<P>> {
        self.owners.get(owner)?.parts.get(part)
    }

    /// The first waiters of all owners and of their parts, in their order.
    pub(super) fn first_waiters(&self) -> impl Iterator<Item = (Holder<O>, Holders, Request)> {
        first_waiters(&self.capacity, &self.owners)
    }

    /// Changes what a part holds and awaits, and with it the sums of its owner and of all. The
    /// change is a turn of the part, and of the owner, if `is_turn`.
    fn change<T>(
        &mut self,
        holder: &Holder<O>,
        is_turn: bool,
        change: impl FnOnce(&mut PartUse<P>) -> T,
    ) -> T {
        let Self { capacity, owners, waiting, .. } = self;
        owners.change(&holder.owner, is_turn, |of_owner| {
            of_owner.parts.change(&holder.part, is_turn, |of_part| {
                let (held, waiters) = (of_part.held, of_part.waiters.len());
                let unused = of_part.unused();
                let answer = change(of_part);
                let unused_now = of_part.unused();
                if unused != unused_now {
                    of_owner.unused = of_owner.unused - unused + unused_now;
                    capacity.unused = capacity.unused - unused + unused_now;
                }
                of_part.rank = capacity.rank_of_part(of_part.held.all);
                of_owner.held = of_owner.held - held + of_part.held;
                of_owner.rank = capacity.rank(of_owner.held.all);
                of_owner.waiting = of_owner.waiting - waiters + of_part.waiters.len();
                capacity.taken = capacity.taken - held.all + of_part.held.all;
                *waiting = *waiting - waiters + of_part.waiters.len();
                answer
            })
        })
    }
}

impl<P> OwnerUse<P> {
    /// What the owner holds, and its part.
    fn holders(&self, part: &OwnerPart, of_part: Option<&PartUse<P>>, is_divided: bool) -> Holders {
        let unused = of_part.map(PartUse::unused).unwrap_or_default();
        let held = of_part.map(|of_part| of_part.held).unwrap_or_default();
        let part = (*part != OwnerPart::Rest).then_some(held);
        Holders { owner: self.held, owner_unused: self.unused, unused, part, is_divided }
    }
}

/// The first waiters of all owners and of their parts, in their order.
fn first_waiters<O: Sharer, P>(
    capacity: &Capacity,
    owners: &Turns<O, OwnerUse<P>>,
) -> impl Iterator<Item = (Holder<O>, Holders, Request)> {
    owners.in_order().flat_map(|(owner, of_owner)| {
        let is_divided = capacity.divides(owner);
        of_owner.parts.heads().filter_map(move |(part, of_part)| {
            let request = of_part.wanted()?;
            let holders = of_owner.holders(part, Some(of_part), is_divided);
            Some((Holder { owner: owner.clone(), part: part.clone() }, holders, request))
        })
    })
}

/// The first one that waits to grow and fits.
fn first_growth<O: Sharer, P>(
    capacity: &Capacity,
    owners: &Turns<O, OwnerUse<P>>,
) -> Option<Holder<O>> {
    let mut growths =
        first_waiters(capacity, owners).filter(|(_, _, request)| request.grows_since.is_some());
    let fits = |holders: &Holders, growth| capacity.fit(holders, growth) == PermitFit::Fits;
    growths.find(|(_, holders, growth)| fits(holders, *growth)).map(|(holder, ..)| holder)
}

/// Whether an owner may get a permit before waiters that would hold `bytes_max` bytes. Called jobs
/// may, since the jobs that wait for them hold memory too.
fn may_pass(holders: &Holders, Request { amount, level, .. }: Request, bytes_max: u64) -> bool {
    let held = holders.owner.all;
    holders.is_reserved(&amount)
        || level > Level::CLIENT
        || held.slots == 0
        || (held + amount).bytes <= bytes_max
}

impl<P> Waiter<Grant<P>> {
    pub(super) fn request(&self) -> Request {
        let Grant { slots, level, grows_since, .. } = self.grant;
        Request { amount: PermitAmount { slots, bytes: self.bytes }, level, grows_since }
    }

    /// Whether it waits for bytes more of a slot that it has.
    fn grows(&self) -> bool {
        self.grant.grows_since.is_some()
    }
}

impl<P> PartUse<P> {
    /// Adds a waiter: those that grow are before the others, by the ages of their jobs, and then
    /// come the deepest.
    fn push(&mut self, waiter: Waiter<Grant<P>>) {
        let Grant { level, grows_since, .. } = waiter.grant;
        let at = self.waiters.partition_point(|Waiter { grant, .. }| {
            match (grant.grows_since, grows_since) {
                (Some(other), Some(since)) => other <= since,
                (None, None) => grant.level >= level,
                (other, _) => other.is_some(),
            }
        });
        self.waiters.insert(at, waiter);
    }

    /// The part of its reserve that is not used.
    fn unused(&self) -> PermitAmount {
        self.reserve.unused(&self.held)
    }

    /// What its first waiter asks for.
    fn wanted(&self) -> Option<Request> {
        self.waiters.front().map(Waiter::request)
    }
}

impl<P> Member for PartUse<P> {
    fn urgency(&self) -> u8 {
        self.wanted().map_or(0, |request| request.level.get())
    }

    fn rank(&self) -> u128 {
        self.rank
    }

    fn first(&self) -> Option<First> {
        self.waiters.first()
    }

    fn is_idle(&self) -> bool {
        self.held.is_nothing() && self.waiters.is_empty() && self.reserve.slots == 0
    }
}

impl<P> Member for OwnerUse<P> {
    fn rank(&self) -> u128 {
        self.rank
    }

    fn first(&self) -> Option<First> {
        self.parts.first()
    }

    fn is_idle(&self) -> bool {
        self.held.is_nothing() && self.waiting == 0 && self.unused.slots == 0
    }
}
