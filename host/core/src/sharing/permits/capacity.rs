//! The capacity that permits divide, and the share of it that an owner may hold.
//!
//! **Bounds.** Each owner has [a share](SharedBound) of the slots, and one of the bytes: of 256
//! slots, 192 for one busy owner, and 109 for each of two. The first slot of an owner may have at
//! most three quarters of the bytes while the host has several owners, since a job may keep it for
//! a week.

use std::ops::{Add, Sub};

use crate::id::OwnerId;
use crate::sharing::shares::{Fit, Holdings, SharedBound};
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

/// Whether there is room for one slot more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PermitFit {
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

impl PermitFit {
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
    slots: SharedBound,
    bytes: SharedBound,
    held: Holdings<OwnerId, PermitAmount>,
}

impl Capacity {
    pub(super) fn new(all: PermitAmount, tenancy: Tenancy) -> Self {
        let bytes = SharedBound::new(all.bytes, tenancy.clone());
        Self { slots: SharedBound::new(all.slots, tenancy), bytes, held: Holdings::default() }
    }

    pub(super) fn held(&self) -> &Holdings<OwnerId, PermitAmount> {
        &self.held
    }

    /// How much the owner holds, for the order of owners: the larger one of its parts of the slots
    /// and of the bytes. One who has many slots with few bytes would otherwise wait behind all
    /// that hold most of the memory in few slots.
    pub(super) fn rank(&self, owner: &OwnerId) -> u128 {
        let held = self.held.of(owner);
        let part = |held: u64, other_max: u64| u128::from(held) * u128::from(other_max);
        part(held.slots, self.bytes.max()).max(part(held.bytes, self.slots.max()))
    }

    /// Whether every slot is taken.
    pub(super) fn is_full(&self) -> bool {
        self.held.all().slots >= self.slots.max()
    }

    /// Most bytes that one owner may hold now, when no other owner holds any.
    pub(super) fn bytes_of_owner_max(&self) -> u64 {
        let all = self.bytes.max();
        // Without overflow: hosts may have `u64::MAX` bytes.
        if self.bytes.has_shares() { all - all / 4 } else { all }
    }

    /// Whether the owner may get a permit before waiters that would hold `bytes_max` bytes.
    pub(super) fn may_pass(&self, owner: &OwnerId, bytes: u64, bytes_max: u64) -> bool {
        let held = self.held.of(owner);
        held.slots == 0 || held.bytes.saturating_add(bytes) <= bytes_max
    }

    /// Whether a slot with so many bytes is free for the owner.
    pub(super) fn fit(&self, owner: &OwnerId, bytes: u64) -> PermitFit {
        self.fit_of(self.held.of(owner), self.held.all(), bytes)
    }

    /// The same after `freed` was returned, `freed_of_owner` of it by this owner.
    pub(super) fn fit_after(
        &self,
        owner: &OwnerId,
        bytes: u64,
        freed: PermitAmount,
        freed_of_owner: PermitAmount,
    ) -> PermitFit {
        self.fit_of(self.held.of(owner) - freed_of_owner, self.held.all() - freed, bytes)
    }

    fn fit_of(&self, held: PermitAmount, all: PermitAmount, bytes: u64) -> PermitFit {
        match self.slots.fit(held.slots, all.slots, 1) {
            Fit::Full => PermitFit::NoSlot,
            Fit::AtShare => PermitFit::OwnerSlots,
            Fit::Fits => match self.bytes.fit(held.bytes, all.bytes, bytes) {
                Fit::Full => PermitFit::NoBytes,
                Fit::Fits if bytes <= self.bytes_of_owner_max() => PermitFit::Fits,
                Fit::Fits | Fit::AtShare => PermitFit::OwnerBytes,
            },
        }
    }

    /// Takes a slot that [`fit`](Self::fit) has found.
    pub(super) fn take(&mut self, owner: &OwnerId, bytes: u64) {
        self.held.add(owner, PermitAmount::one(bytes));
    }

    pub(super) fn give_back(&mut self, owner: &OwnerId, bytes: u64) {
        self.held.remove(owner, PermitAmount::one(bytes));
    }
}
