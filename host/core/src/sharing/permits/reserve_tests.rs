//! Permits for endpoints that have reserves of slots.

use std::time::Instant;

use futures::FutureExt as _;
use proptest::prelude::*;

use super::*;
use crate::sharing::tenancy::Tenancy;

const A: &str = "a";
const B: &str = "b";

fn share(permits: &Permits, who: &str, endpoint: &str) -> PermitShare {
    permits.share(&OwnerId::new(who).unwrap(), &EndpointId::new(endpoint).unwrap())
}

/// The slots of all reserves.
fn reserved(permits: &Permits) -> u64 {
    permits.0.line.lock().capacity.reserved.slots
}

/// Takes permits of a byte until none is granted.
fn take_all(share: &PermitShare) -> Vec<Permit> {
    std::iter::from_fn(|| share.try_take(1, Level::CLIENT)).collect()
}

/// Takes permits of a byte for many endpoints of an owner, until none is granted.
fn take_rest(permits: &Permits, who: &str) -> Vec<Permit> {
    (0..20).flat_map(|n| take_all(&share(permits, who, &format!("e{n}")))).collect()
}

/// Of these owners, with several endpoints each.
fn tenancy(owners: &[&str]) -> Tenancy {
    let tenancy = Tenancy::default();
    tenancy.set_several_owners(owners.len() > 1);
    let owners = owners.iter().map(|name| OwnerId::new(name).unwrap());
    tenancy.set_owners_of_several_endpoints(owners.collect());
    tenancy
}

#[test]
fn a_reserve_is_free_for_its_endpoint_however_busy_the_others_are() {
    for owners in [&[A][..], &[A, B, "c", "d", "e", "f", "g"]] {
        let permits = Permits::new(16, 64, tenancy(owners));
        let kept = share(&permits, owners[owners.len() / 2], "kept");
        kept.reserve(3, 4);
        let busy: Vec<_> = owners.iter().flat_map(|who| take_rest(&permits, who)).collect();
        assert_eq!(busy.len(), 13);
        assert_eq!(share(&permits, A, "f").shortage(1).cause, ShortageCause::OfReserves);
        let held: Vec<_> = (0..3).map(|_| kept.try_take(4, Level::CLIENT).unwrap()).collect();
        // Used slots are reserved again.
        drop(held);
        assert!(take_rest(&permits, A).is_empty());
        assert!(kept.try_take(4, Level::CLIENT).is_some());
    }
}

#[test]
fn a_reserve_of_slots_that_are_in_use_is_made_when_they_are_returned() {
    let permits = Permits::new(8, 64, tenancy(&[A]));
    let mut busy = take_rest(&permits, A);
    assert_eq!(busy.len(), 8);
    let kept = share(&permits, A, "kept");
    kept.reserve(1, 8);
    assert_eq!(kept.shortage(8).cause, ShortageCause::OfHost);
    let mut other = Box::pin(share(&permits, A, "h").queue(1, Level::CLIENT));
    let mut waits = Box::pin(kept.queue(8, Level::CLIENT));
    drop(busy.pop());
    assert!((&mut other).now_or_never().is_none(), "it came first");
    let used = (&mut waits).now_or_never().unwrap();
    drop(busy.pop());
    let other = other.now_or_never().unwrap();
    drop((used, other));
    assert!(kept.try_take(8, Level::CLIENT).is_some());
}

#[test]
fn all_reserves_together_have_half_of_the_slots() {
    let permits = Permits::new(9, 64, tenancy(&[A]));
    let [kept, other] = ["kept", "other"].map(|endpoint| share(&permits, A, endpoint));
    kept.reserve(3, 1);
    other.reserve(3, 1);
    assert_eq!(reserved(&permits), 4);
    kept.reserve(0, 1);
    assert_eq!(reserved(&permits), 1);
    other.reserve(5, 1);
    assert_eq!(reserved(&permits), 4);
    other.reserve(0, 0);
    assert_eq!(reserved(&permits), 0);
    assert!(permits.0.line.lock().owners.members().next().is_none());
}

#[test]
fn a_growth_and_the_first_slot_of_an_endpoint_may_use_the_bytes_of_a_reserve() {
    let permits = Permits::new(16, 64, tenancy(&[A]));
    share(&permits, A, "kept").reserve(4, 4);
    let first = share(&permits, A, "e");
    let large = first.try_take(44, Level::CLIENT).unwrap();
    assert_eq!(first.shortage(8).cause, ShortageCause::OfEndpoint);
    assert!(first.try_grow(4, Level::CLIENT, Instant::now()).is_some());
    drop(large);
    let held: Vec<_> = std::iter::from_fn(|| first.try_take(6, Level::CLIENT)).collect();
    assert_eq!(held.len(), 6, "three times what is left beside the reserve: 48 of 64");
}

#[test]
fn a_reserve_of_another_owner_leaves_more_than_the_first_slot() {
    let permits = Permits::new(16, 64, tenancy(&[A, B]));
    share(&permits, A, "kept").reserve(8, 1 << 30);
    assert_eq!(reserved(&permits), 0, "one is larger than all that may be reserved");
    share(&permits, A, "kept").reserve(8, 5);
    assert_eq!(reserved(&permits), 3, "a quarter of the bytes");
    let of_other = share(&permits, B, "e");
    let held: Vec<_> = std::iter::from_fn(|| of_other.try_take(2, Level::CLIENT)).collect();
    assert!(held.len() >= 5, "{}", held.len());
}

#[test]
fn growths_of_others_and_an_unused_reserve_leave_an_owner_its_next_slot() {
    for growing in 1..=6 {
        let others: Vec<_> = (0..growing).map(|number| format!("o{number}")).collect();
        let owners: Vec<_> = others.iter().map(String::as_str).chain([A]).collect();
        let permits = Permits::new(1_000, 1 << 20, tenancy(&owners));
        share(&permits, A, "kept").reserve(20, 1 << 14);
        let other = share(&permits, A, "e");
        let _first = other.try_take(1 << 10, Level::CLIENT).unwrap();
        let shares: Vec<_> = others.iter().map(|who| share(&permits, who, "grows")).collect();
        let mut held: Vec<_> = (shares.iter())
            .flat_map(|share| (0..4).map(|_| share.try_take(1, Level::CLIENT).unwrap()))
            .collect();
        loop {
            let grown =
                shares.iter().filter_map(|of| of.try_grow(1 << 8, Level::CLIENT, Instant::now()));
            let before = held.len();
            held.extend(grown);
            if held.len() == before {
                break;
            }
        }
        assert!(other.try_take(1 << 10, Level::CLIENT).is_some(), "beside {growing} others");
        let kept = share(&permits, A, "kept");
        assert!(kept.try_take(1 << 14, Level::CLIENT).is_some());
    }
}

#[test]
fn an_idle_permit_of_a_reserve_is_wanted_by_its_endpoint_and_by_growths() {
    let permits = Permits::new(8, 8, tenancy(&[A]));
    let kept = share(&permits, A, "kept");
    kept.reserve(2, 1);
    let idle: Vec<_> = (0..3).map(|_| kept.try_take(1, Level::CLIENT).unwrap()).collect();
    let busy = take_rest(&permits, A);
    assert_eq!(busy.len(), 5);
    let other = share(&permits, A, "g").queue(1, Level::CLIENT);
    assert_eq!(permits.wanted(idle.iter()), Some(0), "one is beyond the reserve");
    assert_eq!(permits.wanted(idle[1..].iter()), Some(0));
    let mut idle = idle;
    drop(idle.remove(0));
    let other = other.now_or_never().unwrap();
    let _waits = share(&permits, A, "h").queue(1, Level::CLIENT);
    assert_eq!(permits.wanted(idle.iter()), None, "they stay reserved");
    let _grows = share(&permits, A, "g").grow(1, Level::CLIENT, Instant::now());
    assert_eq!(permits.wanted(idle.iter()), Some(0));
    drop(other);
}

proptest! {
    /// For any reserves, and any permits that others hold: an endpoint gets its reserve.
    #[test]
    fn reserves_are_never_taken(
        slots in 2..40_u64,
        reserves in prop::collection::vec(0..10_u64, 4),
        events in prop::collection::vec((0..4_usize, 0..3_u8, any::<prop::sample::Index>()), 1..80),
    ) {
        let permits = Permits::new(slots as usize, u64::MAX, tenancy(&[A, B]));
        let shares: Vec<_> =
            (0..4).map(|n| share(&permits, [A, B][n % 2], &format!("e{n}"))).collect();
        let mut granted = vec![];
        for (share, reserve) in shares.iter().zip(reserves) {
            let before = reserved(&permits);
            share.reserve(reserve, 1);
            granted.push(reserved(&permits) - before);
        }
        let mut held: Vec<(usize, Permit)> = vec![];
        for (who, event, which) in events {
            if event == 0 && !held.is_empty() {
                drop(held.swap_remove(which.index(held.len())));
            } else {
                held.extend(shares[who].try_take(1, Level::CLIENT).map(|permit| (who, permit)));
            }
            for (who, granted) in granted.iter().enumerate() {
                let of_part = held.iter().filter(|(holder, _)| *holder == who).count() as u64;
                let missing = granted.saturating_sub(of_part);
                let more: Vec<_> = (0..missing).map(|_| shares[who].try_take(1, Level::CLIENT)).collect();
                prop_assert!(more.iter().all(Option::is_some), "endpoint {who} misses {missing}");
            }
        }
        drop(held);
        shares.iter().for_each(|share| share.reserve(0, 0));
        let line = permits.0.line.lock();
        prop_assert_eq!(line.capacity.unused, PermitAmount::default());
        prop_assert!(line.owners.members().next().is_none());
    }
}
