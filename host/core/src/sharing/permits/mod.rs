//! Permits for what all owners share: slots, such as sandboxes, file operations or KiB of memory,
//! and for sandboxes also the bytes of memory of all slots together.
//!
//! **Promise.** The sum of all permits never exceeds the limits, and no owner holds more than its
//! share ([`capacity`]). The owner that holds the least is next, by the larger one of its parts of
//! the slots and of the bytes, and of equals the one whose last turn is the longest ago. Then come
//! the endpoints or keys of that owner, and the callers of each in the order of their calls. A
//! caller that waits for the part of its own endpoint or owner delays no other owner.
//!
//! There are two kinds of permits:
//!
//! * [`new`](Permits::new): for what a job keeps, up to a week. Owners have shares while the host
//!   has several. The endpoints of an owner take turns, and each may hold all that the owner may.
//!   A request for more bytes than are free delays the later endpoints of its owner, and the owners
//!   that would then hold more bytes than its owner would. It does so for a [quarter](holds) of the
//!   time, since the memory that it waits for may be in use for days.
//! * [`for_work`](Permits::for_work): for short work. Owners always have shares. An endpoint or a
//!   key holds at most a quarter, since a slow one must not delay the others of its owner, and the
//!   one that holds the fewest is next. A request for more slots than are free delays all that come
//!   after it.
//!
//! A permit [grows and shrinks](growth) with the memory of its job. A growth waits in the same order,
//! before the requests of its endpoint for slots.
//!
//! Where callers have no key, their addresses have the shares of owners ([`Sharer`]).
//!
//! Without these delays, a stream of small requests would starve a large one.
//!
//! **Cost.** Taking a free permit, and returning it, each cost one uncontended lock and four looks
//! into maps. A waiting caller also costs a channel. Ordered sets
//! ([`turns`](crate::sharing::turns)) show the next waiter, and whether any waiter asks for as few
//! bytes as are free: 2 µs for each permit that is returned while 1,000 owners wait. It is 0.2 ms
//! while some bytes are free that shares and holds keep from all waiters, since all waiting owners
//! are examined then, and up to 64 endpoints of each. An owner, and an endpoint, takes some 400
//! bytes while it holds or awaits permits.

mod capacity;
mod growth;
mod holds;

use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Debug};
use std::hash::Hash;
use std::net::IpAddr;
use std::ops::Add;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::id::{EndpointId, KeyId, OwnerId};
use crate::sharing::cores::cores;
use crate::sharing::shares::SharedBound;
use crate::sharing::tenancy::Tenancy;
use crate::sharing::turns::{First, Member, Turns, Waiter};

pub use self::capacity::PermitAmount;
use self::capacity::{Capacity, PermitFit};
use self::holds::Holds;

/// A holder of a share of the permits: an owner, or the address of a caller without a key.
pub trait Sharer: Debug + Clone + Eq + Hash + Send + Sync + 'static {}

impl Sharer for OwnerId {}
impl Sharer for IpAddr {}

/// The permits for one resource. A clone shares them.
pub struct Permits<O: Sharer = OwnerId>(Arc<Shared<O>>);

impl<O: Sharer> Clone for Permits<O> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Shared<O: Sharer> {
    permit_max: PermitAmount,
    state: Mutex<State<O>>,
}

struct State<O: Sharer> {
    capacity: Capacity,
    owners: Turns<O, OwnerUse<O>>,
    /// The last number of a waiter.
    last_number: u64,
    /// The number of waiters of all owners.
    waiting: usize,
    /// Those of them that wait to grow.
    growing: usize,
    /// How often anything was taken or returned.
    moves: u64,
    holds: Holds,
    /// Whether a task examines the waiters again when a hold ends.
    is_watched: bool,
}

/// What an owner holds and awaits.
struct OwnerUse<O: Sharer> {
    held: PermitAmount,
    rank: u128,
    waiting: usize,
    parts: Turns<Part, PartUse<O>>,
}

impl<O: Sharer> Default for OwnerUse<O> {
    fn default() -> Self {
        let (held, rank, waiting, parts) = Default::default();
        Self { held, rank, waiting, parts }
    }
}

/// What an endpoint or a key holds and awaits.
struct PartUse<O: Sharer> {
    held: PermitAmount,
    rank: u128,
    waiters: VecDeque<Waiter<Grant<O>>>,
}

impl<O: Sharer> Default for PartUse<O> {
    fn default() -> Self {
        let (held, rank, waiters) = Default::default();
        Self { held, rank, waiters }
    }
}

/// Hands a waiter its permit for so many slots.
struct Grant<O: Sharer> {
    slots: u64,
    permit: oneshot::Sender<Permit<O>>,
}

/// Who takes a permit.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holder<O> {
    owner: O,
    part: Part,
}

/// The work of an owner that takes turns with the owner's other work.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Part {
    Endpoint(EndpointId),
    Key(KeyId),
    /// Work that belongs to no endpoint and no key. Only the owner's share bounds it.
    Rest,
}

/// The right of an endpoint, a key or an owner to ask for permits. It holds none by itself.
#[derive(Debug, Clone)]
pub struct PermitShare<O: Sharer = OwnerId> {
    permits: Permits<O>,
    holder: Holder<O>,
}

/// The right to some slots and bytes. Dropping it returns them.
#[must_use]
#[derive(Debug)]
pub struct Permit<O: Sharer = OwnerId> {
    share: PermitShare<O>,
    amount: PermitAmount,
}

/// The idle permits that waiters need back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted<O = OwnerId> {
    /// Permits of any owner.
    OfAny,
    /// Permits of this owner, which is at its share.
    Of(O),
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

impl<O: Sharer> Permits<O> {
    /// Permits for what jobs keep: so many slots with so many bytes together, shared among the
    /// owners of this host while it has several.
    pub fn new(slots_max: usize, bytes_max: u64, tenancy: Tenancy) -> Self {
        let slots = SharedBound::new(slots_max as u64, tenancy.clone());
        Self::of(Capacity::new(slots, SharedBound::new(bytes_max, tenancy), None))
    }

    /// Permits for short work: so many slots, at least one, shared on a host of one owner too.
    /// Where a quarter would be less than one slot it is one; with a single slot, a caller then
    /// waits for at most one permit of each other owner.
    pub fn for_work(slots_max: usize) -> Self {
        Self::with_parts(SharedBound::always(slots_max.max(1) as u64))
    }

    /// As many permits for short work as half of the cores, for work that keeps a core busy.
    pub fn half_of_cores() -> Self {
        Self::for_work(cores() / 2)
    }

    /// Permits for short work, with this rule for owners.
    pub fn with_parts(slots: SharedBound) -> Self {
        let of_part = (slots.max() / 4).max(1);
        Self::of(Capacity::new(slots, SharedBound::always(0), Some(of_part)))
    }

    fn of(capacity: Capacity) -> Self {
        let permit_max = capacity.permit_max();
        let state = State {
            capacity,
            owners: Turns::default(),
            last_number: 0,
            waiting: 0,
            growing: 0,
            moves: 0,
            holds: Holds::default(),
            is_watched: false,
        };
        Self(Arc::new(Shared { permit_max, state: Mutex::new(state) }))
    }

    /// The share of an endpoint.
    pub fn share(&self, owner: &O, endpoint: &EndpointId) -> PermitShare<O> {
        self.share_of(owner, Part::Endpoint(endpoint.clone()))
    }

    /// The share of a key, which is as large as an endpoint's.
    pub fn share_of_key(&self, owner: &O, key: &KeyId) -> PermitShare<O> {
        self.share_of(owner, Part::Key(key.clone()))
    }

    /// The share of an owner, for work that belongs to no endpoint.
    pub fn owner_share(&self, owner: &O) -> PermitShare<O> {
        self.share_of(owner, Part::Rest)
    }

    fn share_of(&self, owner: &O, part: Part) -> PermitShare<O> {
        PermitShare { permits: self.clone(), holder: Holder { owner: owner.clone(), part } }
    }

    /// All bytes of this host's slots together.
    pub fn bytes_max(&self) -> u64 {
        self.0.permit_max.bytes
    }

    /// Most bytes of one permit: all of them, or three quarters while owners have shares.
    pub fn bytes_of_owner_max(&self) -> u64 {
        self.0.state.lock().capacity.bytes_of_owner_max()
    }

    /// How many slots are taken.
    pub fn taken(&self) -> usize {
        let slots = self.0.state.lock().capacity.taken.slots;
        usize::try_from(slots).unwrap_or(usize::MAX)
    }

    /// How many callers wait for a permit.
    pub fn waiting(&self) -> usize {
        self.0.state.lock().waiting
    }

    /// Grants all permits that there is room for. To be called when the owners of the host may have
    /// changed.
    pub fn serve(&self) {
        loop {
            let mut state = self.0.state.lock();
            let Some((holder, waiter)) = state.next() else { return };
            drop(state);
            let amount = waiter.amount();
            let share = PermitShare { permits: self.clone(), holder };
            // Outside the lock: if a waiter has just left, its permit is dropped here, which takes
            // the lock.
            drop(waiter.grant.permit.send(Permit { share, amount }));
        }
    }

    /// Serves again whenever a hold has ended, for as long as callers wait for bytes.
    fn watch(&self) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.0.state.lock();
        let is_held = self.bytes_max() > 0 && state.waiting > 0;
        if !is_held || std::mem::replace(&mut state.is_watched, true) {
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
    pub fn wanted(&self, idle: &HashMap<O, PermitAmount>) -> Option<Wanted<O>> {
        let State { capacity, owners, .. } = &*self.0.state.lock();
        let all_idle = idle.values().copied().fold(PermitAmount::default(), Add::add);
        let mut waiters = owners.in_order().flat_map(|(owner, of_owner)| {
            let heads = of_owner.parts.heads();
            heads.filter_map(move |(_, of_part)| Some((owner, of_owner.held, of_part.wanted()?)))
        });
        waiters.find_map(|(owner, held, amount)| {
            let own = idle.get(owner).copied();
            let then = capacity.fit_after(held - own.unwrap_or_default(), amount, all_idle);
            let is_own = own.is_some() && capacity.fit(held, amount).is_share();
            match (then, is_own) {
                (PermitFit::Fits, true) => Some(Wanted::Of(owner.clone())),
                (PermitFit::Fits, false) => Some(Wanted::OfAny),
                _ => None,
            }
        })
    }
}

impl<O: Sharer> PermitShare<O> {
    /// How many callers of the owner wait.
    pub fn waiting(&self) -> usize {
        let owners = &self.permits.0.state.lock().owners;
        owners.get(&self.holder.owner).map_or(0, |owner| owner.waiting)
    }

    /// Whether the host has room for a slot with so many bytes, and only the owner's share prevents
    /// a permit.
    pub fn is_at_share(&self, bytes: u64) -> bool {
        let state = self.permits.0.state.lock();
        let (of_owner, _) = state.held(&self.holder);
        state.capacity.fit(of_owner, PermitAmount::one(bytes)).is_share()
    }

    /// A permit for a slot with so many bytes, if one is free and no caller waits for it.
    pub fn try_take(&self, bytes: u64) -> Option<Permit<O>> {
        self.try_take_amount(PermitAmount::one(bytes))
    }

    fn try_take_amount(&self, amount: PermitAmount) -> Option<Permit<O>> {
        let is_taken = self.permits.0.state.lock().try_take(&self.holder, amount);
        is_taken.then(|| Permit { share: self.clone(), amount })
    }

    /// Waits for a slot without bytes.
    pub async fn acquire(&self) -> Permit<O> {
        self.acquire_many(1).await
    }

    /// Waits for so many slots without bytes, or for as many as an endpoint may hold when that is
    /// less.
    pub async fn acquire_many(&self, slots: usize) -> Permit<O> {
        let slots = (slots as u64).clamp(1, self.permits.0.permit_max.slots);
        let amount = PermitAmount { slots, bytes: 0 };
        match self.try_take_amount(amount) {
            Some(permit) => permit,
            None => self.join(amount).await,
        }
    }

    /// Joins the queue for a slot with so many bytes. The future resolves to the permit; dropping
    /// the future leaves the queue. A request for more than all bytes counts as one for all bytes,
    /// so that every wait can end.
    pub fn queue(&self, bytes: u64) -> impl Future<Output = Permit<O>> + Send + use<O> {
        self.join(PermitAmount::one(bytes.min(self.permits.bytes_max())))
    }

    fn join(&self, amount: PermitAmount) -> impl Future<Output = Permit<O>> + Send + use<O> {
        let (permit, granted) = oneshot::channel();
        let number = self.permits.0.state.lock().push(&self.holder, amount, permit);
        let position = WaiterPosition { share: self.clone(), number };
        // There may be room by now, and the queue may have been empty.
        self.permits.serve();
        self.permits.watch();
        async move {
            let permit = granted.await.expect("only its own future removes a waiter");
            drop(position);
            permit
        }
    }
}

impl<O: Sharer> Permit<O> {
    /// The owner that holds it.
    pub fn owner(&self) -> &O {
        &self.share.holder.owner
    }

    /// The slots and the bytes that it permits.
    pub fn amount(&self) -> PermitAmount {
        self.amount
    }
}

impl<O: Sharer> State<O> {
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
            let held = of_owner.held;
            for (part, of_part) in of_owner.parts.heads() {
                let Some(amount) = of_part.wanted() else { continue };
                if !part.admits(capacity, of_part.held, amount) {
                    continue;
                }
                match capacity.fit(held, amount) {
                    PermitFit::Fits if may_pass(held, amount, bytes_max) => {
                        return Next::Of(Holder { owner: owner.clone(), part: part.clone() });
                    }
                    // An owner that holds some is at its share when too few slots are free.
                    PermitFit::NoSlot if held.slots == 0 => return Next::Delayed,
                    PermitFit::NoSlot | PermitFit::OwnerSlots => break,
                    fit if fit.is_bytes() && *may_hold.get_or_insert_with(|| holds.may_hold()) => {
                        bytes_max = bytes_max.min((held + amount).bytes);
                        break;
                    }
                    _ => {}
                }
            }
        }
        Next::NoWaiter { bytes_max }
    }

    /// What the owner and the part hold.
    fn held(&self, holder: &Holder<O>) -> (PermitAmount, PermitAmount) {
        let of_owner = self.owners.get(&holder.owner);
        let of_part = of_owner.and_then(|of_owner| of_owner.parts.get(&holder.part));
        let of_part = of_part.map_or_else(PermitAmount::default, |of_part| of_part.held);
        (of_owner.map_or_else(PermitAmount::default, |of_owner| of_owner.held), of_part)
    }

    /// Whether a new request may be served at once.
    fn admits(&mut self, holder: &Holder<O>, amount: PermitAmount) -> bool {
        let (of_owner, of_part) = self.held(holder);
        if !holder.part.admits(&self.capacity, of_part, amount)
            || self.capacity.fit(of_owner, amount) != PermitFit::Fits
        {
            return false;
        }
        if self.waiting == 0 {
            return true;
        }
        let Next::NoWaiter { bytes_max } = self.look() else { return false };
        let waits = self.owners.get(&holder.owner).is_some_and(|of_owner| of_owner.waiting > 0);
        !waits && may_pass(of_owner, amount, bytes_max)
    }

    /// Takes room for a new request. Returns whether there was some.
    fn try_take(&mut self, holder: &Holder<O>, amount: PermitAmount) -> bool {
        let admits = self.admits(holder, amount);
        if admits {
            self.change(holder, true, |of_part| of_part.held = of_part.held + amount);
        }
        admits
    }

    /// Adds a waiter, and returns its number.
    fn push(
        &mut self,
        holder: &Holder<O>,
        PermitAmount { slots, bytes }: PermitAmount,
        permit: oneshot::Sender<Permit<O>>,
    ) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let waiter = Waiter { number, bytes, grant: Grant { slots, permit } };
        self.growing += usize::from(waiter.grows());
        self.change(holder, false, |of_part| of_part.push(waiter));
        number
    }

    /// The next waiter that there is room for; the room is taken.
    fn next(&mut self) -> Option<(Holder<O>, Waiter<Grant<O>>)> {
        let first = self.owners.first()?;
        if first.bytes > self.capacity.bytes_free() {
            // A waiter without enough bytes begins a hold, also without a look at all others.
            self.holds.may_hold();
            return None;
        }
        let Next::Of(holder) = self.look() else { return None };
        let waiter = self.change(&holder, true, |of_part| {
            let waiter = of_part.waiters.pop_front()?;
            of_part.held = of_part.held + waiter.amount();
            Some(waiter)
        })?;
        self.growing -= usize::from(waiter.grows());
        Some((holder, waiter))
    }

    /// Changes what a part holds and awaits, and with it the sums of its owner and of all. The
    /// change is a turn of the part, and of the owner, if `is_turn`.
    fn change<T>(
        &mut self,
        holder: &Holder<O>,
        is_turn: bool,
        change: impl FnOnce(&mut PartUse<O>) -> T,
    ) -> T {
        let Self { capacity, owners, waiting, moves, .. } = self;
        owners.change(&holder.owner, is_turn, |of_owner| {
            of_owner.parts.change(&holder.part, is_turn, |of_part| {
                let (held, waiters) = (of_part.held, of_part.waiters.len());
                let answer = change(of_part);
                *moves += u64::from(held != of_part.held);
                of_part.rank = capacity.rank_of_part(of_part.held);
                of_owner.held = of_owner.held - held + of_part.held;
                of_owner.rank = capacity.rank(of_owner.held);
                of_owner.waiting = of_owner.waiting - waiters + of_part.waiters.len();
                capacity.taken = capacity.taken - held + of_part.held;
                *waiting = *waiting - waiters + of_part.waiters.len();
                answer
            })
        })
    }
}

impl Part {
    /// Whether it may hold so much more.
    fn admits(&self, capacity: &Capacity, held: PermitAmount, more: PermitAmount) -> bool {
        *self == Self::Rest || capacity.part_admits(held, more)
    }
}

/// The first one that waits to grow and fits.
fn first_growth<O: Sharer>(
    capacity: &Capacity,
    owners: &Turns<O, OwnerUse<O>>,
) -> Option<Holder<O>> {
    let mut growths = owners.in_order().flat_map(|(owner, of_owner)| {
        let heads = of_owner.parts.heads();
        heads.map(move |(part, of_part)| (owner, part, of_owner.held, of_part.wanted()))
    });
    let found = growths.find(|(_, _, held, wanted)| {
        wanted.is_some_and(|wanted| {
            wanted.slots == 0 && capacity.fit(*held, wanted) == PermitFit::Fits
        })
    });
    found.map(|(owner, part, ..)| Holder { owner: owner.clone(), part: part.clone() })
}

/// Whether an owner may get a permit before waiters that would hold `bytes_max` bytes.
fn may_pass(held: PermitAmount, more: PermitAmount, bytes_max: u64) -> bool {
    held.slots == 0 || (held + more).bytes <= bytes_max
}

impl<O: Sharer> Waiter<Grant<O>> {
    fn amount(&self) -> PermitAmount {
        PermitAmount { slots: self.grant.slots, bytes: self.bytes }
    }

    /// Whether it waits for bytes more of a slot that it has.
    fn grows(&self) -> bool {
        self.grant.slots == 0
    }
}

impl<O: Sharer> PartUse<O> {
    /// Adds a waiter: one that grows behind the others that grow, and any other one at the end.
    fn push(&mut self, waiter: Waiter<Grant<O>>) {
        let at = match waiter.grows() {
            true => self.waiters.partition_point(Waiter::grows),
            false => self.waiters.len(),
        };
        self.waiters.insert(at, waiter);
    }

    /// What its first waiter asks for.
    fn wanted(&self) -> Option<PermitAmount> {
        self.waiters.front().map(Waiter::amount)
    }
}

impl<O: Sharer> Member for PartUse<O> {
    fn rank(&self) -> u128 {
        self.rank
    }

    fn first(&self) -> Option<First> {
        self.waiters.first()
    }

    fn is_idle(&self) -> bool {
        self.held == PermitAmount::default() && self.waiters.is_empty()
    }
}

impl<O: Sharer> Member for OwnerUse<O> {
    fn rank(&self) -> u128 {
        self.rank
    }

    fn first(&self) -> Option<First> {
        self.parts.first()
    }

    fn is_idle(&self) -> bool {
        self.held == PermitAmount::default() && self.waiting == 0
    }
}

/// A waiter's position in the queue. Dropping it leaves the queue.
struct WaiterPosition<O: Sharer> {
    share: PermitShare<O>,
    number: u64,
}

impl<O: Sharer> Drop for WaiterPosition<O> {
    fn drop(&mut self) {
        let Self { share: PermitShare { permits, holder }, number } = self;
        let mut state = permits.0.state.lock();
        let left = state.change(holder, false, |of_part| {
            let at = of_part.waiters.iter().position(|other| other.number == *number)?;
            of_part.waiters.remove(at)
        });
        state.growing -= usize::from(left.is_some_and(|left| left.grows()));
        drop(state);
        // The waiter may have been a large one that held up the others.
        permits.serve();
    }
}

impl<O: Sharer> Drop for Permit<O> {
    fn drop(&mut self) {
        let Self { share: PermitShare { permits, holder }, amount } = self;
        let is_wanted = {
            let mut state = permits.0.state.lock();
            state.change(holder, false, |of_part| of_part.held = of_part.held - *amount);
            state.waiting > 0
        };
        if is_wanted {
            permits.serve();
        }
    }
}

impl<O: Sharer> Debug for Permits<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (taken, waiting) = (self.taken(), self.waiting());
        f.debug_struct("Permits").field("taken", &taken).field("waiting", &waiting).finish()
    }
}

#[cfg(test)]
mod owner_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod work_tests;
