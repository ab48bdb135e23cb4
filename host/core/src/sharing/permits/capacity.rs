//! The capacity that permits divide, and the parts of it that an owner, an endpoint and a key may
//! hold.
//!
//! **Bounds.** Each owner has [a share](SharedBound) of the slots, and one of the bytes: of 256
//! slots, 192 for one busy owner, and 109 for each of two. The first slot of an owner may have at
//! most three quarters of the bytes while owners have shares, since a job may keep it for a week.
//!
//! For what jobs keep, an endpoint has a share too, of what its owner may have: so much that
//! [enough is left](Level::leaves_enough) for the owner's other endpoints, and at deeper levels. It
//! has one while its owner has several endpoints, or while handlers may call endpoints. Its first
//! slot at a level or deeper needs no share, and neither does that of its owner, so that each chain
//! of calls continues; the owner's first one at a deeper level leaves a sixteenth of the bytes.
//!
//! While handlers may call endpoints, a slot stays free for each deeper level, but at most an
//! eighth of all: so called jobs start although callers hold all other slots, up to a depth of 8
//! with 64 slots, and of 1 with 8 slots. The shares are parts of the rest.
//!
//! An endpoint may have a [`Reserve`] of slots for itself alone. All reserves together have
//! half of the slots and a quarter of the bytes at most. Their bytes are kept from those who have
//! some already. The first slot of an owner or an endpoint may use them, and so may the growths of
//! their owner and of an owner with one slot, since a job could wait for ever otherwise. The unused
//! bytes of an owner's reserves do not count for its share: what others use would decide how much
//! more it gets.
//!
//! For short work the bound of an endpoint or a key is a quarter of the slots.

use std::ops::{Add, Sub};
use std::time::Instant;

use super::sharer::Sharer;
use crate::id::CallDepth;
use crate::sharing::shares::{Level, SharedBound};
use crate::sharing::tenancy::Tenancy;

/// An amount of room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PermitAmount {
    /// Slots.
    pub slots: u64,
    /// Bytes of memory of all of them together.
    pub bytes: u64,
}

impl PermitAmount {
    /// One slot with so many bytes.
    pub fn one(bytes: u64) -> Self {
        Self { slots: 1, bytes }
    }
}

impl Add for PermitAmount {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            slots: self.slots.saturating_add(other.slots),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

impl Sub for PermitAmount {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            slots: self.slots.saturating_sub(other.slots),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// What a caller asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) amount: PermitAmount,
    pub(super) level: Level,
    /// When the job began, if it has its slot and asks for bytes only.
    pub(super) grows_since: Option<Instant>,
}

impl Request {
    /// A request for slots, or for a slot with bytes.
    pub(super) fn new(amount: PermitAmount, level: Level) -> Self {
        Self { amount, level, grows_since: None }
    }
}

/// What an owner or an endpoint holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) all: PermitAmount,
    /// The slots at each level.
    slots_at: [u32; Level::COUNT],
}

impl Held {
    /// Whether it has no slot at this level or deeper.
    fn has_none_at(&self, level: Level) -> bool {
        self.slots_at.iter().skip(level.get().into()).all(|slots| *slots == 0)
    }

    /// Whether it has neither slots nor bytes.
    pub(super) fn is_nothing(&self) -> bool {
        self.all == PermitAmount::default()
    }
}

impl From<Request> for Held {
    fn from(Request { amount, level, .. }: Request) -> Self {
        let mut held = Self { all: amount, ..Self::default() };
        if let Some(slots) = held.slots_at.get_mut(usize::from(level.get())) {
            *slots = u32::try_from(amount.slots).unwrap_or(u32::MAX);
        }
        held
    }
}

impl Add for Held {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        let mut sum = self;
        sum.all = self.all + other.all;
        for (slots, more) in sum.slots_at.iter_mut().zip(other.slots_at) {
            *slots = slots.saturating_add(more);
        }
        sum
    }
}

impl Sub for Held {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        let mut rest = self;
        rest.all = self.all - other.all;
        for (slots, less) in rest.slots_at.iter_mut().zip(other.slots_at) {
            *slots = slots.saturating_sub(less);
        }
        rest
    }
}

/// The slots that an endpoint has at any time, also when it uses none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reserve {
    pub(super) slots: u64,
    /// Bytes of each.
    pub(super) bytes: u64,
}

impl Reserve {
    fn all(&self) -> PermitAmount {
        PermitAmount { slots: self.slots, bytes: self.slots.saturating_mul(self.bytes) }
    }

    /// The part of it that the endpoint does not use.
    pub(super) fn unused(&self, held: &Held) -> PermitAmount {
        Self { slots: self.slots.saturating_sub(held.all.slots), ..*self }.all()
    }
}

/// What those hold who ask for more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holders {
    pub(super) owner: Held,
    /// The unused reserves of all of its endpoints.
    pub(super) owner_unused: PermitAmount,
    /// The unused reserve of the endpoint.
    pub(super) unused: PermitAmount,
    /// The endpoint or the key; `None` for work that belongs to none.
    pub(super) part: Option<Held>,
    /// Whether the endpoint has a share.
    pub(super) is_divided: bool,
}

impl Holders {
    /// Whether the endpoint has reserved what it asks for.
    pub(super) fn is_reserved(&self, more: &PermitAmount) -> bool {
        more.slots > 0 && more.slots <= self.unused.slots
    }
}

/// Whether there is room for a permit more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PermitFit {
    /// There is room.
    Fits,
    /// Too few slots are free.
    NoSlot,
    /// The free slots are for deeper levels.
    Kept,
    /// The free slots are reserves.
    Reserved,
    /// Too few bytes are free.
    NoBytes,
    /// The owner has its share of the slots.
    OwnerSlots,
    /// The owner has its share of the bytes.
    OwnerBytes,
    /// The endpoint has its share of the slots, or the endpoint or the key has its quarter.
    PartSlots,
    /// The endpoint has its share of the bytes.
    PartBytes,
}

impl PermitFit {
    /// Whether only the share of the owner or of the endpoint prevents a permit.
    pub(super) fn is_share(self) -> bool {
        matches!(self, Self::OwnerSlots | Self::OwnerBytes | Self::PartSlots | Self::PartBytes)
    }

    /// Whether slots are free, and only bytes are missing.
    pub(super) fn is_bytes(self) -> bool {
        matches!(self, Self::NoBytes | Self::OwnerBytes)
    }
}

/// The rule for endpoints and keys.
#[derive(Debug)]
pub(super) enum Parts {
    /// Each may have so many slots.
    OfWork { slots_max: u64 },
    /// Endpoints have shares.
    OfJobs(Tenancy),
}

/// Slots and bytes, and how much of them is taken.
#[derive(Debug)]
pub(super) struct Capacity {
    slots: SharedBound,
    pub(super) bytes: SharedBound,
    parts: Parts,
    /// What all owners hold together.
    pub(super) taken: PermitAmount,
    /// Bytes that no holder gets.
    pub(super) withheld: u64,
    /// All reserves together.
    pub(super) reserved: PermitAmount,
    /// The parts of them that are not used.
    pub(super) unused: PermitAmount,
}

/// What a holder would have, and whether it needs no share for that.
#[derive(Debug, Clone, Copy)]
struct Then {
    held: u64,
    is_first: bool,
}

/// The holder that would have more than its share.
enum AtShare {
    Owner,
    Part,
}

impl Capacity {
    pub(super) fn new(slots: SharedBound, bytes: SharedBound, parts: Parts) -> Self {
        let (taken, reserved, unused) = Default::default();
        Self { slots, bytes, parts, taken, withheld: 0, reserved, unused }
    }

    /// The part of the `asked` reserve that is granted in place of the one before, beside the
    /// reserves of all others.
    pub(super) fn grant_reserve(&mut self, before: Reserve, asked: Reserve) -> Reserve {
        let others = self.reserved - before.all();
        let max = PermitAmount {
            slots: reservable(self.slots.max()),
            // The largest job then has room beside them.
            bytes: self.bytes.max() / 4,
        };
        let left = max - others;
        let slots = match asked.bytes {
            0 => left.slots,
            bytes => left.slots.min(left.bytes / bytes),
        };
        let granted = Reserve { slots: asked.slots.min(slots), ..asked };
        self.reserved = others + granted.all();
        granted
    }

    /// All slots and all bytes.
    pub(super) fn max(&self) -> PermitAmount {
        PermitAmount { slots: self.slots.max(), bytes: self.bytes.max() }
    }

    /// The largest permit.
    pub(super) fn permit_max(&self) -> PermitAmount {
        match self.parts {
            Parts::OfWork { slots_max } => PermitAmount { slots: slots_max, ..self.max() },
            Parts::OfJobs(_) => self.max(),
        }
    }

    /// The rank of an owner that holds so much: the larger one of its parts of the slots and of the
    /// bytes. An owner that has many slots with few bytes would otherwise wait behind all that hold
    /// most of the memory in few slots.
    pub(super) fn rank(&self, held: PermitAmount) -> u128 {
        let part = |held: u64, other_max: u64| u128::from(held) * u128::from(other_max.max(1));
        part(held.slots, self.bytes.max()).max(part(held.bytes, self.slots.max()))
    }

    /// The rank of an endpoint or a key. Those without a bound take turns, whatever they hold.
    pub(super) fn rank_of_part(&self, held: PermitAmount) -> u128 {
        match self.parts {
            Parts::OfWork { .. } => held.slots.into(),
            Parts::OfJobs(_) => 0,
        }
    }

    /// Whether every slot is taken.
    pub(super) fn is_full(&self) -> bool {
        self.taken.slots >= self.slots.max()
    }

    /// Bytes that are not taken.
    pub(super) fn bytes_free(&self) -> u64 {
        self.bytes.max().saturating_sub(self.taken.bytes.saturating_add(self.withheld))
    }

    /// Whether the endpoints of the owner have shares.
    pub(super) fn divides<O: Sharer>(&self, owner: &O) -> bool {
        match &self.parts {
            Parts::OfWork { .. } => false,
            Parts::OfJobs(tenancy) => tenancy.has_calls() || owner.has_several_endpoints(tenancy),
        }
    }

    /// The slots that stay free for levels deeper than this one.
    fn kept(&self, level: Level) -> u64 {
        match &self.parts {
            Parts::OfJobs(tenancy) if tenancy.has_calls() && self.slots.max() > 1 => {
                let deepest = (self.slots.max() / 8).clamp(1, CallDepth::MAX.into());
                deepest.saturating_sub(level.get().into())
            }
            _ => 0,
        }
    }

    /// Whether the slots that are kept for levels deeper than this one are free.
    pub(super) fn keeps(&self, level: Level) -> bool {
        self.slots.free(self.taken.slots, self.kept(level)).is_some()
    }

    /// Whether there is room for so much more.
    pub(super) fn fit(&self, held: &Holders, more: Request) -> PermitFit {
        self.fit_after(held, more, PermitAmount::default())
    }

    /// The same after `freed` was returned, by any owners. The holders have `held` then.
    pub(super) fn fit_after(
        &self,
        held: &Holders,
        Request { amount: more, level, grows_since }: Request,
        freed: PermitAmount,
    ) -> PermitFit {
        let Holders { owner, owner_unused, part, unused, is_divided } = held;
        if let (Parts::OfWork { slots_max }, Some(part)) = (&self.parts, part)
            && part.all.slots.saturating_add(more.slots) > *slots_max
        {
            return PermitFit::PartSlots;
        }
        let taken = self.taken - freed;
        let Some(free) = self.slots.free(taken.slots, more.slots) else {
            return PermitFit::NoSlot;
        };
        let is_reserved = held.is_reserved(&more);
        let of_others = self.unused - *unused;
        if grows_since.is_none() && !is_reserved {
            let Some(free) = free.checked_sub(of_others.slots) else { return PermitFit::Reserved };
            if let Some(full) = self.slots_full(held, more.slots, level, free) {
                return full;
            }
        }
        let taken_bytes = taken.bytes.saturating_add(self.withheld);
        let Some(free) = self.bytes.free(taken_bytes, more.bytes) else {
            return PermitFit::NoBytes;
        };
        if is_reserved {
            return PermitFit::Fits;
        }
        if more.bytes > owner_max(&self.bytes) {
            return PermitFit::OwnerBytes;
        }
        let bytes = |held: &Held| Then {
            held: (held.all + more).bytes,
            is_first: grows_since.is_none() && (held.all.bytes == 0 || held.has_none_at(level)),
        };
        let mut of_owner = bytes(owner);
        // No level has bytes of its own, so the first slot of each could take all of them.
        of_owner.is_first &=
            owner.all.bytes == 0 || Level::CALLED.leaves_enough(of_owner.held, free);
        let part = part.as_ref().filter(|_| *is_divided).map(bytes);
        let kept = match grows_since {
            Some(_) if owner.all.slots <= 1 => 0,
            Some(_) => (self.unused - *owner_unused).bytes,
            None => of_others.bytes,
        };
        let free = free.saturating_sub(kept);
        match at_share(&self.bytes, level, of_owner, part, [free; 2]) {
            Some(AtShare::Owner) => PermitFit::OwnerBytes,
            Some(AtShare::Part) => PermitFit::PartBytes,
            None => PermitFit::Fits,
        }
    }

    /// Why there are too few slots for so many more, of which `free` stay free then.
    fn slots_full(
        &self,
        Holders { owner, owner_unused, unused, part, is_divided }: &Holders,
        more: u64,
        level: Level,
        free: u64,
    ) -> Option<PermitFit> {
        let Some(of_level) = free.checked_sub(self.kept(level)) else {
            return Some(PermitFit::Kept);
        };
        // At each level, so that the deep jobs of an owner leave slots to the clients of others.
        let of_owners = free.saturating_sub(self.kept(Level::CLIENT));
        let slots = |held: &Held| {
            let is_first = held.has_none_at(level);
            Then { held: held.all.slots.saturating_add(more), is_first }
        };
        let mut of_owner = slots(owner);
        let of_other_parts = owner_unused.slots - unused.slots;
        of_owner.held = of_owner.held.saturating_add(of_other_parts);
        of_owner.is_first &= of_other_parts == 0 || level > Level::CLIENT;
        let part = part.as_ref().filter(|_| *is_divided).map(slots);
        let free = [of_owners, of_level];
        at_share(&self.slots, level, of_owner, part, free).map(|full| match full {
            AtShare::Owner => PermitFit::OwnerSlots,
            AtShare::Part => PermitFit::PartSlots,
        })
    }
}

/// Most bytes that one owner may hold now, when no other owner holds any.
pub(super) fn owner_max(bytes: &SharedBound) -> u64 {
    let all = bytes.max();
    // Without overflow: hosts may have `u64::MAX` bytes.
    if bytes.has_shares() { all - all / 4 } else { all }
}

/// How many of so many slots may be reserved.
pub const fn reservable(slots: u64) -> u64 {
    slots / 2
}

/// The holder that would have more than its share, when so much is left free for owners, and for
/// this level.
fn at_share(
    bound: &SharedBound,
    level: Level,
    owner: Then,
    part: Option<Then>,
    [of_owners, of_level]: [u64; 2],
) -> Option<AtShare> {
    let left = match bound.has_shares() {
        true => match bound.left_to(owner.held, of_owners) {
            None if !owner.is_first => return Some(AtShare::Owner),
            left => left.unwrap_or(0),
        },
        false => of_level,
    };
    let part = part.filter(|part| !part.is_first && !level.leaves_enough(part.held, left));
    part.map(|_| AtShare::Part)
}
