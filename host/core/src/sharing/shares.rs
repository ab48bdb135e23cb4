//! What each owner holds of a resource that owners share, and how much that may be.
//!
//! **Promise.** No more is granted than the bound. Who holds something may take more only while it
//! then holds at most [three times](SHARE_TO_FREE) as much as is left free. Who holds nothing needs
//! only room, and so does the only owner of a host. So a busy owner leaves a quarter to the next
//! one, and each further owner leaves a quarter of the rest; of two that take all they may, each
//! has three sevenths. The rule needs no list of owners, and no owner loses what it holds.
//!
//! `docs/internals/architecture.md` lists the resources, and what happens beyond a share.
//! **Cost.** One map entry for each holder, and one or two lookups for each change.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::{Add, Sub};

use crate::sharing::tenancy::Tenancy;

/// A holder has at most this many times as much as is left free.
const SHARE_TO_FREE: u64 = 3;

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

    /// A bound that nobody may use up alone, on a host of one owner neither.
    pub const fn always(max: u64) -> Self {
        Self::now(max, true)
    }

    /// A bound of which each holder has a share if `is_shared`.
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
        let all = used.checked_add(more);
        let Some(free) = all.and_then(|all| self.max.checked_sub(all)) else { return Fit::Full };
        let is_share = held.saturating_add(more) <= free.saturating_mul(SHARE_TO_FREE);
        if is_share || held == 0 || !self.has_shares() { Fit::Fits } else { Fit::AtShare }
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_holder_leaves_a_quarter_to_the_next_and_the_only_owner_takes_all() {
        let tenancy = Tenancy::default();
        let bound = SharedBound::new(64, tenancy.clone());
        let mut held = Holdings::<u8>::default();
        let fill = |held: &mut Holdings<u8>, bound, holder| {
            while held.try_add(bound, &holder, 1) == Fit::Fits {}
            held.of(&holder)
        };
        assert_eq!(fill(&mut held, &bound, 0), 64);
        tenancy.set_several_owners(true);
        held.remove(&0, 60);
        let filled = [0, 1, 2, 3, 4].map(|holder| fill(&mut held, &bound, holder));
        assert_eq!(filled, [48, 12, 3, 1, 0]);
        assert_eq!([0, 4].map(|holder| held.try_add(&bound, &holder, 1)), [Fit::Full; 2]);
        held.remove(&1, 1);
        let then = [0, 4].map(|holder| held.try_add(&bound, &holder, 1));
        assert_eq!(then, [Fit::AtShare, Fit::Fits]);
        assert_eq!(fill(&mut Holdings::default(), &SharedBound::always(64), 0), 48);
    }

    #[test]
    fn an_amount_beyond_64_bits_does_not_fit() {
        let bound = SharedBound::always(u64::MAX);
        assert_eq!(bound.fit(1, u64::MAX, u64::MAX), Fit::Full);
        assert_eq!(bound.fit(u64::MAX / 2, u64::MAX / 2, 1), Fit::Fits);
    }

    proptest! {
        /// For any holders and amounts: the bound holds, what is held adds up, and a request is
        /// refused for want of room, or for a share that the holder has, and for nothing else.
        #[test]
        fn the_bound_holds_and_a_refusal_has_its_reason(
            max in 0..200_u64,
            is_shared: bool,
            events in prop::collection::vec((0..5_u8, any::<bool>(), 0..40_u64), 0..200),
        ) {
            let bound = SharedBound::now(max, is_shared);
            let mut holdings = Holdings::<u8>::default();
            for (holder, takes, amount) in events {
                let (held, free) = (holdings.of(&holder), max - holdings.all());
                if takes {
                    let is_share = |left: u64| held + amount <= 3 * left || held == 0 || !is_shared;
                    let expected = match free.checked_sub(amount) {
                        None => Fit::Full,
                        Some(left) if is_share(left) => Fit::Fits,
                        Some(_) => Fit::AtShare,
                    };
                    prop_assert_eq!(holdings.try_add(&bound, &holder, amount), expected);
                    let more = if expected == Fit::Fits { amount } else { 0 };
                    prop_assert_eq!(holdings.of(&holder), held + more);
                } else {
                    holdings.remove(&holder, amount.min(held));
                }
                prop_assert!(holdings.all() <= max);
                prop_assert_eq!(holdings.all(), holdings.iter().map(|(_, held)| held).sum::<u64>());
                prop_assert!(holdings.iter().all(|(_, held)| held > 0), "nothing is kept for nothing");
            }
        }
    }
}
