//! The order compared with a set after any changes, and pieces after insertions at the end.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::state::slab::Slab;

const HIGH: u64 = 1 << 32;

#[derive(Debug, Clone)]
enum Op {
    /// Inserts jobs with these numbers, in this step.
    Insert { from: u64, count: u64, step: i64 },
    /// Removes jobs at these positions, in this step.
    Remove { from: usize, count: usize, step: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let from = prop_oneof![0..2_000_u64, HIGH - 500..HIGH + 500, Just(u64::MAX)];
    let step = prop_oneof![Just(1), Just(-1), Just(0), Just(7), Just(-5)];
    prop_oneof![
        (from, 1..700_u64, step).prop_map(|(from, count, step)| Op::Insert { from, count, step }),
        (0..2_000_usize, 1..700_usize, 0..4_usize).prop_map(|(from, count, step)| Op::Remove {
            from,
            count,
            step
        }),
    ]
}

/// Compares all queries with the model, and checks the module's invariants on its pieces.
fn check(order: &Order, model: &BTreeSet<(u64, JobKey)>) {
    assert_eq!(order.len(), model.len());
    assert!(order.iter().eq(model.iter().copied()));
    for end in [0, 1, 700, HIGH - 1, HIGH, HIGH + 3, u64::MAX] {
        let expected = model.iter().copied().filter(|(number, _)| *number < end);
        assert!(order.below(end).rev().eq(expected.rev()));
        let expected = model.iter().copied().filter(|(number, _)| *number >= end);
        assert!(order.since(end).eq(expected));
    }
    assert!(order.pieces.iter().all(|piece| (1..=PIECE).contains(&piece.jobs.len())));
    for (one, next) in order.pieces.iter().zip(order.pieces.iter().skip(1)) {
        assert!(one.high != next.high || one.jobs.len() + next.jobs.len() > PIECE / 2);
    }
}

proptest! {
    #[test]
    fn the_order_behaves_like_an_ordered_set(ops in prop::collection::vec(op(), 1..30)) {
        let mut slab = Slab::new();
        let keys: Vec<_> = (0..4).map(|n| slab.insert(n)).collect();
        let mut order = Order::default();
        let mut model = BTreeSet::new();
        for op in ops {
            match op {
                Op::Insert { from, count, step } => {
                    for n in 0..i64::try_from(count).unwrap() {
                        let number = from.saturating_add_signed(n * step);
                        let key = keys[usize::try_from(n % 4).unwrap()];
                        prop_assert_eq!(order.insert(number, key), model.insert((number, key)));
                    }
                }
                Op::Remove { from, count, step } => {
                    let all: Vec<_> = model.iter().copied().collect();
                    for n in 0..count {
                        let Some((number, key)) = all.get(from + n * step) else { break };
                        let expected = model.remove(&(*number, *key));
                        prop_assert_eq!(order.remove(*number, *key), expected);
                    }
                }
            }
            check(&order, &model);
        }
        for (number, key) in model {
            prop_assert!(order.remove(number, key));
        }
        prop_assert_eq!(order.pieces.len(), 0);
    }
}

#[test]
fn ordered_insertions_fill_the_pieces() {
    let mut slab = Slab::new();
    let key = slab.insert(());
    let mut order = Order::default();
    // Two runs at a time: jobs that wait for a day, and results that are kept for a minute.
    for n in 0..10_000 {
        order.insert(86_400_000 + n, key);
        order.insert(60_000 + n, key);
    }
    let bytes: usize = order.pieces.iter().map(|piece| piece.jobs.capacity() * 8).sum();
    assert!(bytes < 20_000 * 9, "{bytes}");
}
