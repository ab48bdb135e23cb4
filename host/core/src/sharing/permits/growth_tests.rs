//! Permits that grow and shrink: order, bounds, and waits that end early.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use proptest::prelude::*;

use super::*;
use crate::id::{EndpointId, OwnerId};
use crate::sharing::permits::{PermitBytes, ShortageCause};
use crate::sharing::tenancy::Tenancy;

fn permits(slots: usize, bytes: u64) -> Permits {
    Permits::new(slots, bytes, Tenancy::default())
}

fn share(permits: &Permits, endpoint: u8) -> PermitShare {
    let endpoint = EndpointId::new(&format!("e{endpoint}")).unwrap();
    permits.share(&OwnerId::operator(), &endpoint)
}

fn growing(permits: &Permits) -> usize {
    permits.0.line.lock().growing
}

fn bytes_taken(permits: &Permits) -> u64 {
    permits.0.line.lock().capacity.taken.bytes
}

#[test]
fn a_permit_grows_into_free_bytes_and_shrinks_to_what_is_used() {
    let permits = permits(2, 100);
    let share = share(&permits, 0);
    let mut permit = share.try_take(10, Level::CLIENT).unwrap();
    permit.absorb(share.try_grow(70, Level::CLIENT, Instant::now()).unwrap());
    assert_eq!(permit.amount(), PermitAmount { slots: 1, bytes: 80 });
    assert!(share.try_grow(21, Level::CLIENT, Instant::now()).is_none());
    permit.shrink_to(90);
    assert_eq!((permit.amount().bytes, permits.taken()), (80, 1));
    permit.shrink_to(5);
    assert_eq!((bytes_taken(&permits), permits.taken()), (5, 1));
    drop(permit);
    assert_eq!((bytes_taken(&permits), permits.taken()), (0, 0));
}

#[test]
fn a_growth_is_before_the_requests_of_its_endpoint_and_waits_without_a_slot() {
    let permits = permits(2, 100);
    let share = share(&permits, 0);
    let mut first = share.try_take(60, Level::CLIENT).unwrap();
    let second = share.try_take(40, Level::CLIENT).unwrap();
    let now = Instant::now();
    let mut next = share.queue(10, Level::CLIENT).boxed();
    let mut grows =
        [share.grow(30, Level::CLIENT, now).boxed(), share.grow(5, Level::CLIENT, now).boxed()];
    assert_eq!((growing(&permits), permits.waiting()), (2, 3));
    first.shrink_to(40);
    assert!(grows.iter_mut().all(|grow| grow.now_or_never().is_none()), "20 of 30 are free");
    drop(second);
    let grown = grows.map(|grow| grow.now_or_never().unwrap());
    assert_eq!(grown.map(|grown| grown.amount().bytes), [30, 5]);
    assert!(next.as_mut().now_or_never().is_some(), "a slot is free too");
    assert_eq!((growing(&permits), permits.waiting(), permits.grown()), (0, 0, 2));
}

#[test]
fn the_growth_of_the_oldest_job_is_first() {
    let permits = permits(9, 100);
    let share = share(&permits, 0);
    let mut held = share.try_take(100, Level::CLIENT).unwrap();
    let begun = Instant::now();
    let mut grows = [2, 1, 3].map(|age| {
        let since = begun - Duration::from_secs(age);
        (age, share.grow(10, Level::CLIENT, since).boxed())
    });
    let mut order = vec![];
    for left in [90, 80, 70] {
        held.shrink_to(left);
        for (age, grow) in &mut grows {
            if !order.contains(age)
                && grow.now_or_never().is_some_and(|more| {
                    held.absorb(more);
                    true
                })
            {
                order.push(*age);
            }
        }
    }
    assert_eq!(order, [3, 2, 1]);
}

#[test]
fn all_slots_may_be_taken_while_permits_grow() {
    let permits = permits(2, 100);
    let (one, other) = (share(&permits, 0), share(&permits, 1));
    let mut held = one.try_take(90, Level::CLIENT).unwrap();
    let _small = other.try_take(1, Level::CLIENT).unwrap();
    let _third = one.queue(1, Level::CLIENT).boxed();
    let mut grows = other.grow(20, Level::CLIENT, Instant::now()).boxed();
    held.shrink_to(50);
    assert!(grows.as_mut().now_or_never().is_some());
}

#[test]
fn a_growth_that_is_dropped_takes_nothing_also_when_it_was_granted() {
    let permits = permits(1, 100);
    let share = share(&permits, 0);
    let mut permit = share.try_take(90, Level::CLIENT).unwrap();
    let (waits, granted) =
        [50, 20].map(|bytes| share.grow(bytes, Level::CLIENT, Instant::now())).into();
    drop(waits);
    permit.shrink_to(60);
    assert_eq!(bytes_taken(&permits), 80);
    drop(granted);
    assert_eq!((bytes_taken(&permits), growing(&permits)), (60, 0));
}

proptest! {
    /// For any takes, growths, shrinks and ends of three endpoints: the limits hold, what is held
    /// adds up, nobody waits who is first of its endpoint and has room, and nothing stays at the
    /// end.
    #[test]
    fn the_limits_hold_and_nobody_waits_beside_free_bytes(
        events in prop::collection::vec((0..4_u8, 0..3_u8, 1..60_u64), 1..80),
    ) {
        let permits = permits(4, 100);
        let mut held: Vec<Permit> = vec![];
        let mut waits: Vec<(u64, BoxFuture<'static, Permit>)> = vec![];
        for (event, endpoint, bytes) in events {
            let at = usize::from(endpoint) % held.len().max(1);
            match event {
                0 => held.extend(share(&permits, endpoint).try_take(bytes, Level::CLIENT)),
                1 if !held.is_empty() => waits.push((bytes, held[at].share().grow(bytes, Level::CLIENT, Instant::now()).boxed())),
                2 if !held.is_empty() => held[at].shrink_to(bytes),
                3 if !held.is_empty() => drop(held.swap_remove(at)),
                _ => {}
            }
            let is_granted = |(_, wait): &mut (u64, BoxFuture<'static, Permit>)| wait.now_or_never();
            while let Some((at, more)) =
                waits.iter_mut().enumerate().find_map(|(at, wait)| Some((at, is_granted(wait)?)))
            {
                drop(waits.remove(at));
                // If the job has ended, its growth is returned, and the next one may be granted.
                let of_same = |permit: &&mut Permit| permit.share.holder == more.share.holder;
                if let Some(permit) = held.iter_mut().find(of_same) {
                    permit.absorb(more);
                }
            }
            let sum: u64 = held.iter().map(|permit| permit.amount().bytes).sum();
            prop_assert_eq!(sum, bytes_taken(&permits));
            prop_assert!(sum <= 100 && permits.taken() <= 4);
            prop_assert_eq!(growing(&permits), waits.len());
            let smallest = waits.iter().map(|(bytes, _)| *bytes).min();
            if waits.len() == 1 {
                prop_assert!(smallest.is_some_and(|bytes| bytes.min(100) > 100 - sum));
            }
        }
        drop((held, waits));
        prop_assert_eq!((bytes_taken(&permits), permits.taken(), permits.waiting()), (0, 0, 0));
    }
}

#[test]
fn withheld_bytes_are_granted_to_no_permit_and_no_growth() {
    let permits = Permits::new(8, 10, Tenancy::default());
    let held = share(&permits, 0).try_take(4, Level::CLIENT).unwrap();
    permits.withhold(5);
    assert_eq!(share(&permits, 1).shortage(2).cause, ShortageCause::OfMachine);
    assert!(share(&permits, 0).try_grow(2, Level::CLIENT, Instant::now()).is_none());
    let mut waits = Box::pin(share(&permits, 1).queue(2, Level::CLIENT));
    let mut grows = Box::pin(share(&permits, 0).grow(3, Level::CLIENT, Instant::now()));
    assert!((&mut waits).now_or_never().is_none());
    permits.withhold(0);
    let granted = ((&mut grows).now_or_never().unwrap(), (&mut waits).now_or_never().unwrap());
    assert_eq!(permits.bytes(), PermitBytes { max: 10, taken: 9, withheld: 0, growing: 0 });
    drop((held, granted));
}
