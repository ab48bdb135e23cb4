//! The capacity that permits divide, and the parts of it that an owner, an endpoint and a key may
//! hold.
//!
//! **Bounds.** Each owner has [a share](SharedBound) of the slots, and one of the bytes: of 256
//! slots, 192 for one busy owner, and 109 for each of two. The first slot of an owner may have at
//! most three quarters of the bytes while owners have shares, since a job may keep it for a week.
//! Where endpoints and keys have a bound, it is a quarter of the slots.

use std::ops::{Add, Sub};

use crate::sharing::shares::{Fit, SharedBound};

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

/// Whether there is room for a permit more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PermitFit {
    /// There is room.
    Fits,
    /// Too few slots are free.
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
    pub(super) fn is_share(self) -> bool {
        matches!(self, Self::OwnerSlots | Self::OwnerBytes)
    }

    /// Whether slots are free, and only bytes are missing.
    pub(super) fn is_bytes(self) -> bool {
        matches!(self, Self::NoBytes | Self::OwnerBytes)
    }
}

/// Slots and bytes, and how much of them is taken.
#[derive(Debug)]
pub(super) struct Capacity {
    slots: SharedBound,
    bytes: SharedBound,
    /// Most slots of an endpoint or a key, where these have a bound.
    of_part: Option<u64>,
    /// What all owners hold together.
    pub(super) taken: PermitAmount,
}

impl Capacity {
    pub(super) fn new(slots: SharedBound, bytes: SharedBound, of_part: Option<u64>) -> Self {
        Self { slots, bytes, of_part, taken: PermitAmount::default() }
    }

    /// The largest permit.
    pub(super) fn permit_max(&self) -> PermitAmount {
        let slots = self.of_part.unwrap_or_else(|| self.slots.max());
        PermitAmount { slots, bytes: self.bytes.max() }
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
        self.of_part.map_or(0, |_| u128::from(held.slots))
    }

    /// Whether every slot is taken.
    pub(super) fn is_full(&self) -> bool {
        self.taken.slots >= self.slots.max()
    }

    /// Bytes that are not taken.
    pub(super) fn bytes_free(&self) -> u64 {
        self.bytes.max().saturating_sub(self.taken.bytes)
    }

    /// Most bytes that one owner may hold now, when no other owner holds any.
    pub(super) fn bytes_of_owner_max(&self) -> u64 {
        let all = self.bytes.max();
        // Without overflow: hosts may have `u64::MAX` bytes.
        if self.bytes.has_shares() { all - all / 4 } else { all }
    }

    /// Whether an endpoint or a key may hold so much more.
    pub(super) fn part_admits(&self, held: PermitAmount, more: PermitAmount) -> bool {
        self.of_part.is_none_or(|max| held.slots + more.slots <= max)
    }

    /// Whether there is room for so much more of an owner.
    pub(super) fn fit(&self, held: PermitAmount, more: PermitAmount) -> PermitFit {
        self.fit_after(held, more, PermitAmount::default())
    }

    /// The same after `freed` was returned, by any owners. The owner holds `held` then.
    pub(super) fn fit_after(
        &self,
        held: PermitAmount,
        more: PermitAmount,
        freed: PermitAmount,
    ) -> PermitFit {
        let taken = self.taken - freed;
        let slots = match more.slots {
            // A growth takes no slot.
            0 => Fit::Fits,
            more => self.slots.fit(held.slots, taken.slots, more),
        };
        match slots {
            Fit::Full => PermitFit::NoSlot,
            Fit::AtShare => PermitFit::OwnerSlots,
            Fit::Fits => match self.bytes.fit(held.bytes, taken.bytes, more.bytes) {
                Fit::Full => PermitFit::NoBytes,
                Fit::Fits if more.bytes <= self.bytes_of_owner_max() => PermitFit::Fits,
                Fit::Fits | Fit::AtShare => PermitFit::OwnerBytes,
            },
        }
    }
}
