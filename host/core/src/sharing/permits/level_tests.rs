//! Permits for jobs of several endpoints, and of handlers that call endpoints: shares of endpoints,
//! levels, and the order of both.

use std::collections::HashSet;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use proptest::prelude::*;

use super::*;

const A: &str = "a";

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

fn share(permits: &Permits, who: &str, endpoint: &str) -> PermitShare {
    permits.share(&owner(who), &EndpointId::new(endpoint).unwrap())
}

fn level(number: u32) -> Level {
    Level::of_number(number)
}

/// Of owners with several endpoints, and with calls.
fn tenancy(owners: &[&str], has_calls: bool) -> Tenancy {
    let tenancy = Tenancy::default();
    tenancy.set_several_owners(owners.len() > 1);
    tenancy.set_owners_of_several_endpoints(owners.iter().map(|name| owner(name)).collect());
    tenancy.set_calls(has_calls);
    tenancy
}

/// Takes permits until none is granted.
fn take_all(permits: &Permits, who: &str, endpoint: &str, at: u32) -> Vec<Permit> {
    let share = share(permits, who, endpoint);
    std::iter::from_fn(|| share.try_take(1, level(at))).collect()
}

fn try_take(permits: &Permits, who: &str, endpoint: &str, at: u32) -> Option<Permit> {
    share(permits, who, endpoint).try_take(1, level(at))
}

fn join(permits: &Permits, who: &str, endpoint: &str, at: u32) -> BoxFuture<'static, Permit> {
    share(permits, who, endpoint).queue(1, level(at)).boxed()
}

#[test]
fn the_only_endpoint_of_the_only_owner_takes_all() {
    let permits = Permits::new(8, u64::MAX, Tenancy::default());
    assert_eq!(take_all(&permits, A, "e", 0).len(), 8);
}

#[test]
fn each_endpoint_leaves_a_quarter_of_what_its_owner_may_have() {
    let permits = Permits::new(64, u64::MAX, tenancy(&[A], false));
    let held = ["e", "f", "g", "h", "i"].map(|endpoint| take_all(&permits, A, endpoint, 0));
    assert_eq!(held.each_ref().map(Vec::len), [48, 12, 3, 1, 0]);
    // The other owner's endpoint is the only one.
    let several = tenancy(&[A], false);
    several.set_several_owners(true);
    let permits = Permits::new(64, u64::MAX, several);
    let held = ["e", "f", "g", "h"].map(|endpoint| take_all(&permits, A, endpoint, 0));
    assert_eq!(held.each_ref().map(Vec::len), [36, 9, 2, 1]);
    let other = take_all(&permits, "b", "of-b", 0);
    assert_eq!((held.iter().map(Vec::len).sum::<usize>(), other.len()), (48, 12));
    let shortage = share(&permits, A, "e").shortage(1);
    assert_eq!(shortage.cause, ShortageCause::OfOwner);
    assert_eq!((shortage.needed_bytes, shortage.held, shortage.max), (None, 48, 64));
}

#[test]
fn an_endpoint_leaves_bytes_to_the_first_slot_of_another() {
    let permits = Permits::new(256, 64, tenancy(&[A], false));
    let first = share(&permits, A, "e");
    let held: Vec<_> = std::iter::from_fn(|| first.try_take(8, Level::CLIENT)).collect();
    assert_eq!(held.len(), 6);
    assert_eq!(first.shortage(8).cause, ShortageCause::OfEndpoint);
    assert!(share(&permits, A, "f").try_take(16, Level::CLIENT).is_some());
}

#[test]
fn an_endpoint_that_held_everything_is_served_after_the_others() {
    let tenancy = Tenancy::default();
    let permits = Permits::new(8, u64::MAX, tenancy.clone());
    let mut held = take_all(&permits, A, "many", 0);
    tenancy.set_several_endpoints(&owner(A), true);
    let mut more = join(&permits, A, "many", 0);
    let few = join(&permits, A, "few", 0);
    held.pop();
    let few = few.now_or_never().expect("its first slot");
    held.truncate(5);
    assert!((&mut more).now_or_never().is_none(), "two are free, and it would have six");
    held.truncate(4);
    assert!((&mut more).now_or_never().is_some());
    drop(few);
}

/// So many slots for clients' jobs, and then at each deeper level, of one endpoint that calls
/// itself.
#[test]
fn each_level_leaves_slots_to_the_deeper_ones() {
    for (slots, expected) in [
        (1, [1, 1, 1, 1]),
        (2, [1, 2, 2, 2]),
        (3, [1, 2, 3, 3]),
        (4, [2, 3, 4, 4]),
        (8, [5, 7, 8, 8]),
        (64, [42, 53, 57, 58]),
        (256, [186, 233, 246, 250]),
    ] {
        let permits = Permits::new(slots, u64::MAX, {
            let calls = Tenancy::default();
            calls.set_calls(true);
            calls
        });
        let mut held = vec![];
        let filled = [0, 1, 2, 3].map(|at| {
            held.extend(take_all(&permits, A, "e", at));
            held.len()
        });
        assert_eq!(filled, expected, "{slots}");
    }
}

/// Callers of many owners, each with its first slot, leave a slot for each depth.
#[test]
fn a_chain_of_calls_finds_a_slot_at_each_depth() {
    let permits = Permits::new(64, u64::MAX, tenancy(&[A, "b"], true));
    let name = |number: usize| (format!("o{number}"), format!("e{number}"));
    let caller = |number| try_take(&permits, &name(number).0, &name(number).1, 0);
    let mut held: Vec<_> = (0..100).filter_map(caller).collect();
    let other = share(&permits, "c", "of-c");
    assert_eq!((held.len(), other.shortage(1).cause), (56, ShortageCause::OfClients));
    for depth in 1..=8 {
        let called = try_take(&permits, "o0", "e0", depth);
        held.push(called.unwrap_or_else(|| panic!("depth {depth}")));
    }
    assert!(try_take(&permits, "c", "of-c", 8).is_none());
}

/// However deep its jobs are, an owner has its share.
#[test]
fn deep_jobs_of_an_owner_leave_the_same_to_other_owners() {
    let permits = Permits::new(256, 256, tenancy(&[A, "b"], true));
    let mut held = vec![];
    for at in 0..=8 {
        for endpoint in ["e", "f", "g", "h"] {
            held.extend(take_all(&permits, A, endpoint, at));
        }
    }
    assert!((180..=194).contains(&held.len()), "{}", held.len());
    assert!(take_all(&permits, "b", "of-b", 0).len() > 20);
}

#[test]
fn the_first_slot_at_a_deeper_level_leaves_bytes_to_other_owners() {
    let permits = Permits::new(256, 64, tenancy(&[A, "b"], true));
    let share = share(&permits, A, "e");
    let _first = share.try_take(48, Level::CLIENT).unwrap();
    assert!(share.try_take(16, level(1)).is_none());
    let _called = share.try_take(12, level(1)).unwrap();
    assert!(share.try_take(1, level(2)).is_none(), "others have a sixteenth");
    assert!(try_take(&permits, "b", "f", 0).is_some());
}

#[test]
fn a_deeper_waiter_passes_those_of_clients_that_do_not_fit() {
    let permits = Permits::new(8, u64::MAX, tenancy(&[A], true));
    let mut held = take_all(&permits, A, "e", 0);
    held.extend(["f", "g"].map(|endpoint| try_take(&permits, A, endpoint, 0).unwrap()));
    assert_eq!(held.len(), 7);
    let mut clients = ["e", "e", "f", "h"].map(|endpoint| join(&permits, A, endpoint, 0));
    let mut called = [join(&permits, A, "e", 1), join(&permits, A, "e", 2)];
    let granted = |waits: &mut [BoxFuture<'static, Permit>]| -> Vec<bool> {
        waits.iter_mut().map(|wait| wait.now_or_never().is_some()).collect()
    };
    assert_eq!(granted(&mut called[..1]), [true], "its permit is dropped at once");
    assert_eq!(granted(&mut called[1..]), [true]);
    assert_eq!(granted(&mut clients), [false; 4]);
    assert_eq!(permits.waiting(), 4);
}

/// A large sandbox that waits for memory holds up clients' jobs, and no called job.
#[test]
fn a_hold_delays_no_called_job() {
    let permits = Permits::new(64, 64, tenancy(&[A], true));
    let _held = share(&permits, A, "e").try_take(30, Level::CLIENT).unwrap();
    let mut large = share(&permits, A, "large").queue(50, Level::CLIENT).boxed();
    assert!((&mut large).now_or_never().is_none());
    assert!((&mut join(&permits, A, "other", 0)).now_or_never().is_none());
    assert!(join(&permits, A, "called", 1).now_or_never().is_some());
}

#[test]
fn many_waiting_endpoints_hide_no_called_job() {
    let permits = Permits::new(64, u64::MAX, tenancy(&[A], true));
    let held: Vec<_> = (0..56).filter_map(|n| try_take(&permits, A, &format!("e{n}"), 0)).collect();
    let clients: Vec<_> = (0..200).map(|n| join(&permits, A, &format!("w{n}"), 0)).collect();
    assert_eq!((held.len(), permits.waiting()), (56, clients.len()));
    assert!(join(&permits, A, "called", 1).now_or_never().is_some());
}

#[test]
fn a_permit_moves_to_a_level_whose_deeper_slots_are_free() {
    let permits = Permits::new(8, u64::MAX, tenancy(&[A], true));
    let mut held = take_all(&permits, A, "e", 0);
    held.extend(["f", "g"].map(|endpoint| try_take(&permits, A, endpoint, 0).unwrap()));
    let mut called = try_take(&permits, A, "e", 1).unwrap();
    assert!(!called.try_move(Level::CLIENT) && called.try_move(level(2)));
    assert!(try_take(&permits, A, "e", 1).is_none(), "every slot is taken");
    held.pop();
    assert!(called.try_move(Level::CLIENT));
    drop((held, called));
    assert_eq!(permits.taken(), 0);
    assert!(permits.0.line.lock().owners.members().next().is_none());
}

const OWNERS: [&str; 3] = ["a", "b", "c"];

#[derive(Debug, Clone)]
enum Event {
    Comes { owner: usize, endpoint: usize, level: u32 },
    Ends(prop::sample::Index),
    GivesUp(prop::sample::Index),
}

fn event() -> impl Strategy<Value = Event> {
    let level = prop_oneof![3 => Just(0_u32), 2 => 1..=8_u32];
    prop_oneof![
        6 => (0..OWNERS.len(), 0..3_usize, level)
            .prop_map(|(owner, endpoint, level)| Event::Comes { owner, endpoint, level }),
        3 => any::<prop::sample::Index>().prop_map(Event::Ends),
        1 => any::<prop::sample::Index>().prop_map(Event::GivesUp),
    ]
}

type Who = (usize, usize, u32);

proptest! {
    /// For any events: the bounds hold, the slots that are kept for deeper levels are never taken,
    /// and no owner and no endpoint keeps another one from its first slot at a level.
    #[test]
    fn no_owner_and_no_endpoint_keeps_another_from_its_first_slot(
        slots in 1..70_usize,
        has_calls: bool,
        events in prop::collection::vec(event(), 1..200),
    ) {
        let permits = Permits::new(slots, u64::MAX, tenancy(&OWNERS, has_calls));
        let kept = |level: u32| match has_calls && slots > 1 {
            true => (slots / 8).clamp(1, 8).saturating_sub(level as usize),
            false => 0,
        };
        let (mut held, mut waits) = (vec![], Vec::<(Who, BoxFuture<'static, Permit>)>::new());
        for event in events {
            match event {
                Event::Comes { owner, endpoint, level } => {
                    let name = format!("{owner}-{endpoint}");
                    let wait = join(&permits, OWNERS[owner], &name, level);
                    waits.push(((owner, endpoint, level), wait));
                }
                Event::Ends(at) if !held.is_empty() => drop(held.remove(at.index(held.len()))),
                Event::GivesUp(at) if !waits.is_empty() => {
                    drop(waits.remove(at.index(waits.len())));
                }
                Event::Ends(_) | Event::GivesUp(_) => {}
            }
            let free_before = slots - held.len();
            let mut granted = vec![];
            waits.retain_mut(|(who, wait)| match wait.now_or_never() {
                Some(permit) => { granted.push((*who, permit)); false }
                None => true,
            });
            // The last of several may have taken the slots of a deeper level than the others'.
            if let [((_, _, level), _)] = granted.as_slice() {
                prop_assert!(free_before > kept(*level), "{free_before} {level}");
            }
            held.append(&mut granted);
            prop_assert!(held.len() <= slots);
            prop_assert_eq!((permits.taken(), permits.waiting()), (held.len(), waits.len()));
            let free = slots - held.len();
            let has = |of: usize, endpoint: Option<usize>, at: u32| {
                held.iter().any(|((owner, part, level), _): &(Who, Permit)| {
                    *owner == of && endpoint.is_none_or(|endpoint| endpoint == *part) && *level >= at
                })
            };
            for ((of, endpoint, level), _) in &waits {
                let needs_no_share = !has(*of, None, *level) && !has(*of, Some(*endpoint), *level);
                prop_assert!(!needs_no_share || free <= kept(*level), "{of} {endpoint} {level}: {free}");
            }
            let names: HashSet<_> = held.iter().map(|((owner, ..), _)| *owner).collect();
            for owner in names {
                let all = held.iter().filter(|((of, ..), _)| *of == owner).count();
                // Beside its share, an owner has its first slot at each level.
                let deep = if has_calls { 8 } else { 9 };
                prop_assert!(all <= slots * 3 / 4 + 1 + deep, "{all} of {slots}");
            }
        }
        waits.clear();
        held.clear();
        prop_assert_eq!((permits.taken(), permits.waiting()), (0, 0));
    }
}
