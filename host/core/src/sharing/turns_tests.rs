//! The order of members, the sizes that are examined, and members that come and leave.

use super::*;
use crate::id::EndpointId;

fn id(number: u64) -> EndpointId {
    EndpointId::new(&format!("e{number}")).unwrap()
}

type Endpoints = Turns<EndpointId, VecDeque<Waiter<()>>>;

fn join(endpoints: &mut Endpoints, endpoint: u64, number: u64, bytes: u64) {
    let waiter = Waiter { number, bytes, grant: () };
    endpoints.change(&id(endpoint), false, |waiters| waiters.push_back(waiter));
}

fn serve(endpoints: &mut Endpoints, endpoint: &EndpointId) -> Option<u64> {
    endpoints.change(endpoint, true, VecDeque::pop_front).map(|waiter| waiter.number)
}

fn heads(endpoints: &Endpoints) -> Vec<(EndpointId, u64)> {
    let heads = endpoints.heads();
    heads.map(|(endpoint, waiters)| (endpoint.clone(), waiters[0].bytes)).collect()
}

#[test]
fn the_smallest_sizes_are_examined_behind_any_number_of_endpoints() {
    let mut endpoints = Turns::default();
    for number in 0..100 {
        join(&mut endpoints, number, number, 4_096);
    }
    assert_eq!(heads(&endpoints).len(), HEADS_MAX + 1, "all others have the same size");
    for (number, bytes) in [(100, 512), (101, 64), (102, 64)] {
        join(&mut endpoints, number, number, bytes);
    }
    let behind = |endpoints: &Endpoints| heads(endpoints).split_off(HEADS_MAX);
    assert_eq!(behind(&endpoints), [(id(0), 4_096), (id(100), 512), (id(101), 64)]);
    assert_eq!(serve(&mut endpoints, &id(101)), Some(101));
    assert_eq!(behind(&endpoints), [(id(0), 4_096), (id(100), 512), (id(102), 64)]);
    // One waiter asks for less than the one before it, since its endpoint's memory was changed. It
    // came last.
    join(&mut endpoints, 100, 103, 8);
    endpoints.change(&id(100), false, |waiters| waiters.retain(|waiter| waiter.number != 100));
    assert_eq!(behind(&endpoints), [(id(0), 4_096), (id(102), 64), (id(100), 8)]);
}

#[test]
fn sizes_beyond_those_that_are_examined_are_the_largest() {
    let mut endpoints = Turns::default();
    for number in 0..100 {
        join(&mut endpoints, number, number, u64::MAX - number);
    }
    let behind = heads(&endpoints).split_off(HEADS_MAX);
    let expected: Vec<_> = (68..100).map(|number| (id(number), u64::MAX - number)).collect();
    assert_eq!(behind, expected);
}

#[test]
fn members_take_turns() {
    let mut endpoints = Turns::default();
    for number in 0..6 {
        join(&mut endpoints, number % 2, number, number);
    }
    let mut order = vec![];
    while let Some((endpoint, _)) = heads(&endpoints).into_iter().next() {
        order.extend(serve(&mut endpoints, &endpoint));
    }
    assert_eq!(order, [0, 1, 2, 3, 4, 5]);
    assert_eq!(serve(&mut endpoints, &id(0)), None);
    assert!(endpoints.is_empty() && endpoints.sizes.is_empty());
}

#[test]
fn few_idle_members_stay() {
    let mut endpoints = Turns::default();
    for number in 0..1_000 {
        join(&mut endpoints, number, number, 0);
    }
    for number in 0..990 {
        assert_eq!(serve(&mut endpoints, &id(number)), Some(number));
        let waiting = 999 - number as usize;
        assert!(endpoints.members.len() <= waiting + IDLE_MAX.max(waiting), "{number}");
    }
    assert!(endpoints.members.len() >= 10);
    // As one that was removed, a member that comes back is behind all others but the last.
    serve(&mut endpoints, &id(990));
    join(&mut endpoints, 990, 1_000, 0);
    let order: Vec<_> = heads(&endpoints).into_iter().map(|(endpoint, _)| endpoint).collect();
    assert_eq!(order.last(), Some(&id(990)));
}

/// Two members that leave the line whenever they were served come again and again.
#[test]
fn members_that_come_again_and_again_starve_none_that_stays() {
    let mut endpoints = Turns::default();
    let mut numbers = 0..;
    let mut next = || numbers.next().unwrap();
    (0..4).for_each(|_| join(&mut endpoints, 0, next(), 0));
    let mut order = vec![];
    for _ in 0..4 {
        (1..3).for_each(|endpoint| join(&mut endpoints, endpoint, next(), 0));
        for _ in 0..3 {
            let (endpoint, _) = heads(&endpoints).swap_remove(0);
            serve(&mut endpoints, &endpoint).unwrap();
            order.push(endpoint);
        }
    }
    let turns = |endpoint| order.iter().filter(|served| **served == id(endpoint)).count();
    assert_eq!([0, 1, 2].map(turns), [4, 4, 4]);
}

#[test]
fn a_new_member_waits_for_one_turn_of_each_other() {
    let mut endpoints = Turns::default();
    (0..4).for_each(|number| join(&mut endpoints, 0, number, 0));
    assert_eq!(serve(&mut endpoints, &id(0)), Some(0));
    join(&mut endpoints, 1, 4, 0);
    let next = |endpoints: &Endpoints| heads(endpoints).swap_remove(0).0;
    assert_eq!(next(&endpoints), id(1), "the other one had the last turn");
}
