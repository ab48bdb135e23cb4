//! The rule for a resource that owners share: an owner holds at most three times as much as is left free.
//!
//! An owner that is alone leaves a quarter to the next owner, and each further owner leaves a quarter of the rest. Of two owners
//! that take all they may, each has three sevenths. The rule needs no list of owners, and no owner loses what it holds.

/// An owner holds at most this many times as much as is left free.
const SHARE_TO_FREE: u64 = 3;

/// Whether an owner may hold `held` when `free` is left then, both in the same unit.
pub fn admits(held: u64, free: u64) -> bool {
    held <= free.saturating_mul(SHARE_TO_FREE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_leaves_a_quarter_to_the_next() {
        let (all, mut held) = (64, [0; 3]);
        for owner in 0..held.len() {
            while let Some(free) = u64::checked_sub(all, held.iter().sum::<u64>() + 1)
                && admits(held[owner] + 1, free)
            {
                held[owner] += 1;
            }
        }
        assert_eq!(held, [48, 12, 3]);
        assert!(admits(u64::MAX, u64::MAX) && !admits(1, 0));
    }
}
