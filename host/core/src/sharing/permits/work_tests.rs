//! Permits for short work: shares of endpoints and owners, the order of waiting requests, and any
//! sequence of calls.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use proptest::prelude::*;

use super::*;

fn share(permits: &Permits, owner: &str, endpoint: &str) -> PermitShare {
    permits.share(&OwnerId::new(owner).unwrap(), &EndpointId::new(endpoint).unwrap())
}

/// Takes permits one by one until the share has no more.
fn take_all(permits: &Permits, owner: &str, endpoint: &str) -> Vec<Permit> {
    let share = share(permits, owner, endpoint);
    std::iter::from_fn(|| share.acquire().now_or_never()).collect()
}

#[test]
fn an_endpoint_has_a_quarter_and_each_owner_leaves_a_quarter_of_the_rest() {
    let permits = Permits::for_work(32);
    let first = take_all(&permits, "a", "a1");
    assert_eq!(first.len(), 8);
    assert_eq!(take_all(&permits, "a", "a1").len(), 0);
    let of_a: Vec<_> = (2..9).flat_map(|n| take_all(&permits, "a", &format!("a{n}"))).collect();
    assert_eq!(of_a.len(), 16);
    // A third and a fourth owner find permits too.
    let others = ["b", "c", "d"].map(|owner| take_all(&permits, owner, owner));
    assert_eq!(others.each_ref().map(Vec::len), [6, 1, 1]);
    drop((first, others));
    assert_eq!(take_all(&permits, "a", "a1").len(), 8);
}

#[test]
fn a_third_owner_is_next_while_two_owners_wait_for_more() {
    let permits = Permits::for_work(32);
    let shares: Vec<_> = (0..16)
        .flat_map(|n| ["a", "b"].map(|owner| share(&permits, owner, &format!("{owner}{n}"))))
        .collect();
    let mut held = vec![];
    let mut waits: Vec<BoxFuture<'_, Permit>> = vec![];
    for share in shares.iter().cycle().take(320) {
        let mut wait = share.acquire().boxed();
        match (&mut wait).now_or_never() {
            Some(permit) => held.push(permit),
            None => waits.push(wait),
        }
    }
    assert!(held.len() < 32, "two owners leave some");
    let third = share(&permits, "c", "c");
    let mut granted = vec![];
    // Beyond the permits that are free, each permit that is given back is the third owner's.
    while granted.len() < 6 {
        match third.acquire().now_or_never() {
            Some(permit) => granted.push(permit),
            None => {
                let mut wait = third.acquire().boxed();
                assert!((&mut wait).now_or_never().is_none());
                drop(held.pop().unwrap());
                granted.push(wait.now_or_never().expect("the owner with the fewest is next"));
            }
        }
    }
    assert!(waits.iter_mut().all(|wait| wait.now_or_never().is_none()));
}

#[test]
fn small_requests_do_not_starve_a_large_one() {
    let permits = Permits::for_work(100);
    let [a, b, c] = ["a", "b", "c"].map(|owner| share(&permits, owner, owner));
    let of_d: Vec<_> = (0..4).map(|n| share(&permits, "d", &format!("d{n}"))).collect();
    let held = of_d.iter().filter_map(|share| share.acquire_many(20).now_or_never());
    let held: Vec<_> = held.collect();
    assert_eq!(held.len(), 3, "a fourth part would leave too little");
    let _of_a = a.acquire_many(25).now_or_never().unwrap();
    let mut large = Box::pin(b.acquire_many(25));
    assert!(large.as_mut().now_or_never().is_none());
    assert!(c.acquire().now_or_never().is_none(), "15 are free, for the one that waits");
    drop(held);
    assert!(large.now_or_never().is_some());
    assert!(c.acquire().now_or_never().is_some());
}

#[test]
fn one_permit_goes_round_owners_and_keys() {
    let permits = Permits::for_work(1);
    let share = |owner: &str, key: &str| {
        permits.share_of_key(&OwnerId::new(owner).unwrap(), &KeyId::new(key).unwrap())
    };
    let waits = [("a", "1"), ("a", "1"), ("a", "1"), ("a", "2"), ("b", "3")];
    let shares = waits.map(|(owner, key)| share(owner, key));
    let mut waiting: Vec<_> = shares.iter().map(|share| Some(Box::pin(share.acquire()))).collect();
    let mut order = vec![];
    let mut held = None;
    for _ in 0..20 {
        for (number, wait) in waiting.iter_mut().enumerate() {
            let Some(permit) = wait.as_mut().and_then(|wait| wait.now_or_never()) else {
                continue;
            };
            assert!(held.is_none(), "there is one permit");
            (held, *wait) = (Some(permit), None);
            order.push(number);
        }
        held = None;
    }
    // The other key and the other owner wait for one permit each.
    assert_eq!(order, [0, 4, 3, 1, 2]);
}

#[test]
fn work_without_an_endpoint_has_the_share_of_its_owner() {
    let permits = Permits::for_work(4);
    let owner = |name: &str| permits.owner_share(&OwnerId::new(name).unwrap());
    let take = |name: &str| owner(name).acquire().now_or_never();
    let held = [take("a").unwrap(), take("a").unwrap(), take("a").unwrap()];
    assert!(take("a").is_none());
    assert!(share(&permits, "a", "a1").acquire().now_or_never().is_none(), "one share");
    let other = take("b");
    assert!(other.is_some() && take("c").is_none());
    drop(held);
    assert!(take("a").is_some() && take("c").is_some());
}

#[test]
fn a_request_for_more_than_a_share_takes_the_share() {
    let permits = Permits::for_work(100);
    let (a, b) = (share(&permits, "a", "a"), share(&permits, "b", "b"));
    let held = a.acquire_many(1_000).now_or_never().unwrap();
    assert!(a.acquire().now_or_never().is_none());
    let other = b.acquire_many(25).now_or_never();
    assert!(other.is_some());
    drop(held);
    assert!(a.acquire().now_or_never().is_some());
}

#[test]
fn endpoints_without_permits_take_no_memory() {
    let permits = Permits::for_work(8);
    for n in 0..1_000 {
        drop(share(&permits, "a", &format!("a{n}")));
    }
    let held = share(&permits, "a", "a").acquire().now_or_never();
    assert_eq!(permits.0.line.lock().owners.members().count(), 1);
    drop(held);
    assert!(permits.0.line.lock().owners.members().next().is_none());
}

#[test]
fn an_abandoned_wait_leaves_no_state() {
    let permits = Permits::for_work(8);
    let share = share(&permits, "a", "a");
    let held = share.acquire_many(2).now_or_never().unwrap();
    for _ in 0..100 {
        assert!(share.acquire().now_or_never().is_none());
    }
    drop(held);
    assert!(share.acquire_many(2).now_or_never().is_some());
    let line = permits.0.line.lock();
    assert_eq!((line.capacity.taken.slots, line.waiting, line.owners.members().count()), (0, 0, 0));
}

proptest! {
    /// For any calls: all permits are counted, the bounds hold, and no caller waits that may be
    /// served.
    #[test]
    fn permits_are_counted_and_none_is_kept_from_a_caller(
        max in 1..40_usize,
        events in prop::collection::vec((0..4_u8, 0..3_u8, 1..12_usize, any::<prop::sample::Index>()), 1..120),
    ) {
        let permits = Permits::for_work(max);
        let mut held: Vec<Permit> = vec![];
        let shares: Vec<_> = (0..12)
            .map(|n| share(&permits, &format!("o{}", n / 3), &format!("e{n}")))
            .collect();
        let mut waits: Vec<BoxFuture<'_, Permit>> = vec![];
        for (owner, endpoint, count, which) in events {
            match count {
                10 if !held.is_empty() => drop(held.swap_remove(which.index(held.len()))),
                11 if !waits.is_empty() => drop(waits.swap_remove(which.index(waits.len()))),
                _ => {
                    let share = &shares[usize::from(owner * 3 + endpoint)];
                    let mut wait = share.acquire_many(count).boxed();
                    match (&mut wait).now_or_never() {
                        Some(permit) => held.push(permit),
                        None => waits.push(wait),
                    }
                }
            }
            // Permits are granted when they are given back or when a caller comes, which may
            // make room for an earlier one. The futures only fetch them.
            waits.retain_mut(|wait| match wait.now_or_never() {
                Some(permit) => { held.push(permit); false }
                None => true,
            });
            let mut line = permits.0.line.lock();
            let taken: u64 = held.iter().map(|permit| permit.amount().slots).sum();
            prop_assert_eq!(line.capacity.taken.slots, taken);
            prop_assert!(taken <= max as u64);
            prop_assert_eq!(line.waiting, waits.len());
            for owner in line.owners.members() {
                let of_parts: Vec<_> = owner.parts.members().map(|part| part.held.all.slots).collect();
                prop_assert_eq!(owner.held.all.slots, of_parts.iter().sum::<u64>());
                let max = permits.0.permit_max.slots;
                prop_assert!(of_parts.iter().all(|held| *held <= max));
            }
            prop_assert!(line.next().is_none());
        }
        drop((held, waits));
        let line = permits.0.line.lock();
        prop_assert_eq!((line.capacity.taken.slots, line.waiting, line.owners.members().count()), (0, 0, 0));
    }
}
