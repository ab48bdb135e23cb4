//! What each owner holds of a resource that owners share, and how much that may be.
//!
//! **Promise.** No more is granted than the bound. Who holds something may take more only while it
//! then holds at most [three times](SHARE_TO_FREE) as much as is left free. Who holds nothing needs
//! only room, and so does the only owner of a host. So a busy owner leaves a quarter to the next
//! one, and each further owner leaves a quarter of the rest; of two that take all they may, each
//! has three sevenths. The rule needs no list of owners, and no owner loses what it holds.
//!
//! A [`Level`] is the same rule for the jobs of one holder: those at a level leave a part to those
//! that are deeper in a chain of calls, since these end first.
//!
//! `docs/internals/architecture.md` lists the resources, and what happens beyond a share.
//! **Cost.** One map entry for each holder, and one or two lookups for each change.

use std::hash::Hash;
use std::ops::{Add, Sub};

use hashbrown::HashMap;

use crate::id::{CallDepth, SubmissionKind};
use crate::sharing::tenancy::Tenancy;

/// A holder has at most this many times as much as is left free.
const SHARE_TO_FREE: u64 = 3;

/// The place of a job in a chain of handlers that wait for each other: how many of them are between
/// it and the client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// Number of levels.
    pub const COUNT: usize = CallDepth::MAX as usize + 1;

    /// A job that no handler waits for.
    pub const CLIENT: Self = Self(0);

    /// A job that a client's job waits for.
    pub const CALLED: Self = Self(1);

    /// All, that of clients first.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=CallDepth::MAX).map(Self)
    }

    /// The level of a job that a call of a handler waits for. It is deeper than that of clients,
    /// also if a client has submitted the job.
    pub fn called(submission: SubmissionKind) -> Self {
        match submission {
            SubmissionKind::Handler(depth) => Self(depth.get()),
            SubmissionKind::Async | SubmissionKind::Sync => Self::CALLED,
        }
    }

    /// The level with this number; the deepest for a greater one.
    pub fn of_number(number: u32) -> Self {
        Self(u8::try_from(number).unwrap_or(u8::MAX).min(CallDepth::MAX))
    }

    /// The level as a number, less than [`COUNT`](Self::COUNT).
    pub fn get(self) -> u8 {
        self.0
    }

    /// The next deeper level; the deepest has none.
    pub fn deeper(self) -> Self {
        Self::of_number(u32::from(self.0) + 1)
    }

    /// Whether jobs at this level that have `held` leave enough of the `left` units: a quarter of
    /// both at the level of clients, and at each deeper level a quarter of that.
    pub fn leaves_enough(self, held: u64, left: u64) -> bool {
        let to_left = (SHARE_TO_FREE + 1).pow(u32::from(self.0) + 1) - 1;
        held <= left.saturating_mul(to_left)
    }
}

/// Whether a holder may have more of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Fit {
    /// It may.
    Fits,
    /// Less is free than it asks for.
    Full,
    /// Enough is free, and is left to other holders.
    AtShare,
}

/// The bound of all holders together, with the rule for each.
#[derive(Debug, Clone)]
pub struct SharedBound {
    max: u64,
    sharing: Sharing,
}

#[derive(Debug, Clone)]
enum Sharing {
    /// Whether each holder has a share.
    Is(bool),
    OfSeveralOwners(Tenancy),
}

impl SharedBound {
    /// A bound that the only owner of a host may use up.
    pub fn new(max: u64, tenancy: Tenancy) -> Self {
        Self { max, sharing: Sharing::OfSeveralOwners(tenancy) }
    }

    /// A bound that no holder may use up alone, even on a host of one owner.
    pub const fn always(max: u64) -> Self {
        Self::now(max, true)
    }

    /// A bound in which each holder has a share if `is_shared`.
    pub const fn now(max: u64, is_shared: bool) -> Self {
        Self { max, sharing: Sharing::Is(is_shared) }
    }

    /// Most units of all holders together.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Whether there are shares now.
    pub fn has_shares(&self) -> bool {
        match &self.sharing {
            Sharing::Is(is_shared) => *is_shared,
            Sharing::OfSeveralOwners(tenancy) => tenancy.has_several_owners(),
        }
    }

    /// Whether a holder that has `held` of the `used` units may have `more`.
    pub fn fit(&self, held: u64, used: u64, more: u64) -> Fit {
        let Some(free) = self.free(used, more) else { return Fit::Full };
        let is_share = self.left_to(held.saturating_add(more), free).is_some();
        if is_share || held == 0 { Fit::Fits } else { Fit::AtShare }
    }

    /// The units that are free after `more` than the `used` ones are taken.
    pub fn free(&self, used: u64, more: u64) -> Option<u64> {
        self.max.checked_sub(used.checked_add(more)?)
    }

    /// The units that a holder of `held` ones may still take of the `free` ones. `None`: it has
    /// more than its share.
    pub fn left_to(&self, held: u64, free: u64) -> Option<u64> {
        if !self.has_shares() {
            return Some(free);
        }
        let beyond = free.saturating_mul(SHARE_TO_FREE).checked_sub(held)?;
        Some(beyond / (SHARE_TO_FREE + 1))
    }
}

/// How much each holder has, and all of them together. A holder without anything takes no memory.
#[derive(Debug)]
pub struct Holdings<K, T = u64> {
    of: HashMap<K, T>,
    all: T,
}

impl<K, T: Default> Default for Holdings<K, T> {
    fn default() -> Self {
        Self { of: HashMap::new(), all: T::default() }
    }
}

impl<K, T> Holdings<K, T>
where
    K: Eq + Hash + Clone,
    T: Copy + Default + PartialEq + Add<Output = T> + Sub<Output = T>,
{
    /// What the holder has.
    pub fn of(&self, holder: &K) -> T {
        self.of.get(holder).copied().unwrap_or_default()
    }

    /// What all have together.
    pub fn all(&self) -> T {
        self.all
    }

    /// How many have something.
    pub fn holders(&self) -> usize {
        self.of.len()
    }

    /// Each that has something, and what.
    pub fn iter(&self) -> impl Iterator<Item = (&K, T)> {
        self.of.iter().map(|(holder, held)| (holder, *held))
    }

    /// The holder has `more`.
    pub fn add(&mut self, holder: &K, more: T) {
        self.all = self.all + more;
        self.set(holder, self.of(holder) + more);
    }

    /// The holder has `less`, which was added before.
    pub fn remove(&mut self, holder: &K, less: T) {
        self.all = self.all - less;
        self.set(holder, self.of(holder) - less);
    }

    fn set(&mut self, holder: &K, held: T) {
        if held == T::default() {
            self.of.remove(holder);
        } else if let Some(known) = self.of.get_mut(holder) {
            *known = held;
        } else {
            self.of.insert(holder.clone(), held);
        }
    }
}

impl<K: Eq + Hash + Clone> Holdings<K> {
    /// The holder has `more` if they fit.
    pub fn try_add(&mut self, bound: &SharedBound, holder: &K, more: u64) -> Fit {
        let fit = bound.fit(self.of(holder), self.all, more);
        if fit == Fit::Fits {
            self.add(holder, more);
        }
        fit
    }
}

#[cfg(test)]
#[path = "shares_tests.rs"]
mod tests;
