//! The capacity that permits divide, and the share of it that an owner may hold.
//!
//! **Bounds.** While the host has several owners, an owner holds at most
//! [three times as much as is left free](fair_share), of slots and of bytes: of 256 slots, 192 for one
//! busy owner, and 109 for each of two. The first slot of an owner is exempt, so that an owner gets
//! one as soon as any slot is free; its bytes are at most three quarters of all. While the host has
//! one owner, that owner may hold everything.

use std::collections::HashMap;

use crate::id::OwnerId;
use crate::sharing::fair_share;
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

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            slots: self.slots.saturating_add(other.slots),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    fn minus(self, other: Self) -> Self {
        Self {
            slots: self.slots.saturating_sub(other.slots),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

/// Whether there is room for one slot more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// There is room.
    Fits,
    /// Every slot is taken.
    NoSlot,
    /// Too few bytes are free.
    NoBytes,
    /// The owner has its share of the slots.
    OwnerSlots,
    /// The owner has its share of the bytes.
    OwnerBytes,
}

impl Fit {
    /// Whether only the owner's share prevents a permit.
    pub(crate) fn is_share(self) -> bool {
        matches!(self, Self::OwnerSlots | Self::OwnerBytes)
    }

    /// Whether slots are free, and only bytes are missing.
    pub(crate) fn is_bytes(self) -> bool {
        matches!(self, Self::NoBytes | Self::OwnerBytes)
    }
}

/// Slots and bytes, and the part of them that each owner holds.
#[derive(Debug)]
pub(super) struct Capacity {
    all: PermitAmount,
    free: PermitAmount,
    /// Owners that hold slots.
    held: HashMap<OwnerId, PermitAmount>,
    tenancy: Tenancy,
}

impl Capacity {
    pub(super) fn new(all: PermitAmount, tenancy: Tenancy) -> Self {
        Self { all, free: all, held: HashMap::new(), tenancy }
    }

    pub(super) fn free(&self) -> PermitAmount {
        self.free
    }

    pub(super) fn held(&self, owner: &OwnerId) -> PermitAmount {
        self.held.get(owner).copied().unwrap_or_default()
    }

    /// Most bytes that one owner may hold now, when no other owner holds any.
    pub(super) fn bytes_of_owner_max(&self) -> u64 {
        if self.tenancy.has_several_owners() {
            three_quarters(self.all.bytes)
        } else {
            self.all.bytes
        }
    }

    /// Whether the owner may get a permit before waiters that would hold `bytes_max` bytes.
    pub(super) fn may_pass(&self, owner: &OwnerId, bytes: u64, bytes_max: u64) -> bool {
        let held = self.held(owner);
        held.slots == 0 || held.bytes.saturating_add(bytes) <= bytes_max
    }

    /// Whether a slot with so many bytes is free for the owner.
    pub(super) fn fit(&self, owner: &OwnerId, bytes: u64) -> Fit {
        self.fit_of(self.held(owner), self.free, bytes)
    }

    /// The same after `freed` was returned, `freed_of_owner` of it by this owner.
    pub(super) fn fit_after(
        &self,
        owner: &OwnerId,
        bytes: u64,
        freed: PermitAmount,
        freed_of_owner: PermitAmount,
    ) -> Fit {
        self.fit_of(self.held(owner).minus(freed_of_owner), self.free.plus(freed), bytes)
    }

    fn fit_of(&self, held: PermitAmount, free: PermitAmount, bytes: u64) -> Fit {
        if free.slots == 0 {
            return Fit::NoSlot;
        }
        let is_shared = self.tenancy.has_several_owners();
        let (then, left) =
            (held.plus(PermitAmount::one(bytes)), free.minus(PermitAmount::one(bytes)));
        let is_first = held.slots == 0;
        if is_shared && !is_first && !fair_share::admits(then.slots, left.slots) {
            return Fit::OwnerSlots;
        }
        if free.bytes < bytes {
            return Fit::NoBytes;
        }
        let is_share = fair_share::admits(then.bytes, left.bytes)
            || is_first && then.bytes <= three_quarters(self.all.bytes);
        if is_shared && !is_share { Fit::OwnerBytes } else { Fit::Fits }
    }

    /// Takes a slot that [`fit`](Self::fit) has found.
    pub(super) fn take(&mut self, owner: &OwnerId, bytes: u64) {
        self.free = self.free.minus(PermitAmount::one(bytes));
        match self.held.get_mut(owner) {
            Some(held) => *held = held.plus(PermitAmount::one(bytes)),
            None => {
                self.held.insert(owner.clone(), PermitAmount::one(bytes));
            }
        }
    }

    pub(super) fn give_back(&mut self, owner: &OwnerId, bytes: u64) {
        self.free = self.free.plus(PermitAmount::one(bytes));
        if let Some(held) = self.held.get_mut(owner) {
            *held = held.minus(PermitAmount::one(bytes));
            if held.slots == 0 {
                self.held.remove(owner);
            }
        }
    }
}

/// Computed without overflow: hosts may have `u64::MAX` bytes.
fn three_quarters(bytes: u64) -> u64 {
    bytes - bytes / 4
}
