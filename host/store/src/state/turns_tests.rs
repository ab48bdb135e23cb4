use proptest::prelude::*;

use super::*;

/// The turns that a flow had, and those that are its share, must differ by at most one.
fn assert_shares(weights: &[u32], turns: u64) {
    let mut all = Turns::default();
    for (key, weight) in weights.iter().enumerate() {
        all.contend(key, *weight);
    }
    let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    let mut had = vec![0_u64; weights.len()];
    for turn in 1..=turns {
        let key = all.first().unwrap();
        had[key] += 1;
        all.taken(key);
        // Both sides times the sum of the weights, so that no number is rounded.
        let far =
            |(had, weight): (&u64, &u32)| (had * sum).abs_diff(turn * u64::from(*weight)) > sum;
        // With many flows only that of the turn and the last one are looked at each time.
        let looked_at = if weights.len() > 100 {
            vec![key, weights.len() - 1]
        } else {
            (0..weights.len()).collect()
        };
        for key in looked_at {
            assert!(
                !far((&had[key], &weights[key])),
                "flow {key} had {} of {turn} turns",
                had[key]
            );
        }
    }
}

#[test]
fn many_flows_have_their_shares() {
    assert_shares(&vec![1; 10_000], 30_000);
    let heavy = |flows: usize| [vec![1; flows], vec![u32::try_from(flows).unwrap()]].concat();
    assert_shares(&heavy(100), 10_000);
    assert_shares(&heavy(10_000), 60_000);
}

#[test]
fn without_flows_there_is_no_turn() {
    let mut all = Turns::default();
    assert_eq!(all.first(), None);
    all.contend(1, 1);
    all.taken(1);
    all.rest(1);
    all.rest(1);
    assert_eq!(all.first(), None);
}

#[test]
fn a_flow_that_stops_after_each_turn_has_its_share() {
    let mut all = Turns::default();
    for key in 0..10 {
        all.contend(key, 1);
    }
    let mut had = 0;
    for _ in 0..11_000 {
        // It has one job, and its client sends the next one when that has begun.
        all.contend(10, 1);
        while let Some(key) = all.first() {
            all.taken(key);
            if key == 10 {
                all.rest(key);
                had += 1;
                break;
            }
        }
    }
    assert_eq!(had, 11_000);
}

#[test]
fn a_flow_that_rested_has_no_turns_for_the_time_before() {
    let mut all = Turns::default();
    all.contend('a', 1);
    all.contend('b', 1);
    for _ in 0..1_000 {
        all.taken('a');
    }
    all.rest('b');
    for _ in 0..1_000 {
        all.taken('a');
    }
    all.contend('b', 1);
    let mut turns = Vec::new();
    for _ in 0..6 {
        let key = all.first().unwrap();
        all.taken(key);
        turns.push(key);
    }
    let count = turns.iter().filter(|key| **key == 'b').count();
    assert!((2..=4).contains(&count), "{turns:?}");
}

proptest! {
    #[test]
    fn shares_differ_by_a_turn_at_most(weights in proptest::collection::vec(1_u32..=1_000, 1..40)) {
        assert_shares(&weights, 3_000);
    }

    /// Flows that come and go: no call fails, and what is first contends.
    #[test]
    fn the_first_flow_contends(steps in proptest::collection::vec((0_u8..3, 0_usize..6, 1_u32..9), 1..200)) {
        let mut all = Turns::default();
        let mut contending = BTreeSet::new();
        for (step, key, weight) in steps {
            match step {
                0 => {
                    all.contend(key, weight);
                    contending.insert(key);
                }
                1 => {
                    all.rest(key);
                    contending.remove(&key);
                }
                _ => if let Some(first) = all.first() { all.taken(first) },
            }
            prop_assert_eq!(all.first().is_some(), !contending.is_empty());
            prop_assert!(all.first().is_none_or(|first| contending.contains(&first)));
        }
    }
}
