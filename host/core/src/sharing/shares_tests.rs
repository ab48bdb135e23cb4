//! Shares of holders and levels: tables, and any sequence of changes.

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
fn each_level_leaves_a_quarter_of_the_part_that_the_one_before_leaves() {
    let filled = |level: Level| {
        (0..=256_u64).take_while(|held| level.leaves_enough(*held, 256 - held)).last().unwrap()
    };
    let filled: Vec<_> = Level::all().map(filled).collect();
    assert_eq!(filled, [192, 240, 252, 255, 255, 255, 255, 255, 255]);
    assert!(Level::all().all(|level| level.leaves_enough(u64::MAX, u64::MAX)));
    assert_eq!(Level::all().count(), Level::COUNT);
    assert!(Level::called(SubmissionKind::Async) > Level::CLIENT);
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
            if let Some(left) = bound.left_to(held, max - held) {
                let fits = |more: u64| bound.left_to(held + more, max - held - more).is_some();
                prop_assert!(fits(left) && (left == max - held || !fits(left + 1)));
            }
            prop_assert_eq!(holdings.all(), holdings.iter().map(|(_, held)| held).sum::<u64>());
            prop_assert!(holdings.iter().all(|(_, held)| held > 0), "nothing is kept for nothing");
        }
    }
}
