//! Permits on a host with several owners: shares, turns and idle permits.

use std::ops::Add;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;

fn owner(name: &str) -> OwnerId {
    OwnerId::new(name).unwrap()
}

fn id(name: &str) -> EndpointId {
    EndpointId::new(name).unwrap()
}

fn several() -> Tenancy {
    let tenancy = Tenancy::default();
    tenancy.set_several_owners(true);
    tenancy
}

fn try_take(permits: &Permits, who: &str, bytes: u64) -> Option<Permit> {
    permits.owner_share(&owner(who)).try_take(bytes, Level::CLIENT)
}

fn is_at_share(permits: &Permits, who: &str, bytes: u64) -> bool {
    permits.owner_share(&owner(who)).shortage(bytes).cause == ShortageCause::OfOwner
}

/// Takes permits until none is granted.
fn take_all(permits: &Permits, who: &str, bytes: u64) -> Vec<Permit> {
    std::iter::from_fn(|| try_take(permits, who, bytes)).collect()
}

fn join(permits: &Permits, who: &str, endpoint: &str, bytes: u64) -> BoxFuture<'static, Permit> {
    permits.share(&owner(who), &id(endpoint)).queue(bytes, Level::CLIENT).boxed()
}

/// The permits that were granted; the waiters of the others stay.
fn served(waits: &mut Vec<BoxFuture<'static, Permit>>) -> Vec<Permit> {
    let mut served = vec![];
    waits.retain_mut(|wait| match wait.now_or_never() {
        Some(permit) => {
            served.push(permit);
            false
        }
        None => true,
    });
    served
}

#[test]
fn an_owner_alone_leaves_a_quarter_for_the_others() {
    let permits = Permits::new(256, u64::MAX, several());
    let first = take_all(&permits, "first", MIB);
    assert_eq!(first.len(), 192);
    assert!(is_at_share(&permits, "first", MIB) && !is_at_share(&permits, "second", MIB));
    let memory = Permits::new(256, 256 * MIB, several());
    assert_eq!(memory.bytes_of_owner_max(), 192 * MIB);
    assert!(try_take(&memory, "first", 193 * MIB).is_none());
    assert_eq!(take_all(&memory, "first", 16 * MIB).len(), 12);
}

#[test]
fn two_owners_come_to_equal_shares() {
    let permits = Permits::new(256, u64::MAX, several());
    let mut held = ["first", "second"].map(|who| (who, take_all(&permits, who, 1)));
    for _ in 0..256 {
        for (who, permits_of) in &mut held {
            permits_of.pop();
            permits_of.extend(take_all(&permits, who, 1));
        }
    }
    let counts = held.map(|(_, permits_of)| permits_of.len());
    assert!(counts.iter().all(|count| (108..=111).contains(count)), "{counts:?}");
}

#[test]
fn small_hosts_serve_several_owners() {
    for (slots, of_first) in [(1, 1), (2, 1), (3, 2), (4, 3), (8, 6)] {
        let permits = Permits::new(slots, u64::MAX, several());
        let first = take_all(&permits, "first", 1);
        assert_eq!(first.len(), of_first, "{slots}");
        let second = take_all(&permits, "second", 1);
        assert_eq!(second.is_empty(), slots == 1, "{slots}");
    }
}

#[test]
fn an_owner_that_held_everything_is_served_after_the_other() {
    let tenancy = Tenancy::default();
    let permits = Permits::new(8, u64::MAX, tenancy.clone());
    let mut first = take_all(&permits, "first", 1);
    assert_eq!(first.len(), 8, "while it is the only owner");
    tenancy.set_several_owners(true);
    let mut waits: Vec<_> = (0..20).map(|_| join(&permits, "first", "many", 1)).collect();
    let mut others: Vec<_> = (0..2).map(|_| join(&permits, "second", "few", 1)).collect();
    let mut granted = vec![];
    // The first slot of the second owner is exempt. With its second one it leaves one free.
    for count in [1, 1, 2] {
        drop(first.pop());
        granted.extend(served(&mut others));
        assert_eq!((granted.len(), served(&mut waits).len()), (count, 0));
    }
    // The first owner holds 5 of 8, and 3 are free. One more leaves 2, and the owner may hold three
    // times the free ones.
    drop(granted);
    first.extend(served(&mut waits));
    assert_eq!(first.len(), 6);
    // The second owner leaves the host.
    tenancy.set_several_owners(false);
    permits.serve();
    first.extend(served(&mut waits));
    assert_eq!(first.len(), 8);
}

#[test]
fn the_owner_that_holds_the_fewest_is_next() {
    let permits = Permits::new(8, u64::MAX, Tenancy::default());
    let take = |who, count| -> Vec<_> {
        (0..count).map(|_| try_take(&permits, who, 1).unwrap()).collect()
    };
    let (mut first, _second) = (take("first", 6), take("second", 2));
    let mut waits: Vec<_> =
        ["first", "first", "second", "second"].map(|who| (who, join(&permits, who, who, 1))).into();
    let (mut order, mut held) = (vec![], vec![]);
    while !waits.is_empty() {
        drop(first.pop());
        waits.retain_mut(|(who, wait)| match wait.now_or_never() {
            Some(permit) => {
                order.push(*who);
                held.push(permit);
                false
            }
            None => true,
        });
    }
    assert_eq!(order, ["second", "second", "first", "first"]);
}

/// As of requests and of open files.
#[test]
fn slots_without_bytes_go_to_the_owner_that_holds_the_fewest() {
    let permits = Permits::new(8, 0, Tenancy::default());
    let mut first: Vec<_> = (0..7).map(|_| try_take(&permits, "first", 0).unwrap()).collect();
    let _second = try_take(&permits, "second", 0).unwrap();
    let mut waits = ["first", "second", "second"].map(|who| join(&permits, who, who, 0));
    first.truncate(5);
    let served = waits.each_mut().map(|wait| wait.now_or_never().is_some());
    assert_eq!(served, [false, true, true]);
}

/// Ten sandboxes of 16 MiB are less than two of 2 GiB, although they are more.
#[test]
fn an_owner_of_many_small_sandboxes_is_before_those_of_few_large_ones() {
    let permits = Permits::new(256, 16 << 10, several());
    let take = |who, count, mib| -> Vec<_> {
        (0..count).map(|_| try_take(&permits, who, mib).unwrap()).collect()
    };
    let (mut first, _second) = (take("first", 3, 2_048), take("second", 3, 2_048));
    let _small = take("small", 10, 16);
    let mut next = [("first", 2_048), ("second", 2_048), ("small", 3_900)]
        .map(|(who, mib)| join(&permits, who, who, mib));
    assert!(next.iter_mut().all(|wait| wait.now_or_never().is_none()));
    drop(first.pop());
    assert_eq!(next.map(|wait| wait.now_or_never().is_some()), [false, false, true]);
}

#[test]
fn owners_take_turns_before_endpoints_do() {
    let permits = Permits::new(1, u64::MAX, several());
    let mut last = try_take(&permits, "first", 1);
    let names = [("first", "a"), ("first", "b"), ("first", "c"), ("second", "d"), ("second", "d")];
    let mut waits: Vec<_> =
        names.map(|(who, endpoint)| (endpoint, join(&permits, who, endpoint, 1))).into();
    let mut order = vec![];
    while !waits.is_empty() {
        drop(last.take());
        waits.retain_mut(|(endpoint, wait)| match wait.now_or_never() {
            Some(permit) => {
                order.push(*endpoint);
                last = Some(permit);
                false
            }
            None => true,
        });
        assert!(last.is_some(), "a free permit goes to a waiter");
    }
    assert_eq!(order, ["d", "a", "d", "b", "c"], "the first owner had the last turn");
}

#[test]
fn waiters_of_an_owner_at_its_share_delay_no_other_owner() {
    let permits = Permits::new(8, 800 * MIB, several());
    let _first = take_all(&permits, "first", MIB);
    let mut waits = join(&permits, "first", "parked", MIB);
    assert!(waits.as_mut().now_or_never().is_none());
    assert!(is_at_share(&permits, "first", MIB));
    for _ in 0..3 {
        drop(try_take(&permits, "second", 100 * MIB).expect("without a queue"));
    }
    // A second sandbox of the second owner: fewer slots than the first one has, and more memory.
    let second = try_take(&permits, "second", 100 * MIB).unwrap();
    drop((second, try_take(&permits, "second", 100 * MIB)));
    assert!(waits.now_or_never().is_none());
}

#[test]
fn a_large_sandbox_delays_only_owners_that_hold_more() {
    let permits = Permits::new(100, 100 * MIB, several());
    let mut first = take_all(&permits, "first", 5 * MIB);
    assert_eq!(first.len(), 15);
    let mut large = join(&permits, "second", "large", 40 * MIB);
    assert!(try_take(&permits, "third", 5 * MIB).is_some(), "it holds less");
    for left in [14, 13, 12] {
        assert!((&mut large).now_or_never().is_none(), "{left}");
        first.pop();
        assert!(try_take(&permits, "first", MIB).is_none(), "{left}: it holds more");
    }
    let large = large.now_or_never().expect("40 MiB are free");
    assert_eq!(large.amount().bytes, 40 * MIB);
}

/// A large sandbox that cannot start for a long time stops neither its own owner's other endpoints,
/// nor another owner.
#[tokio::test(start_paused = true)]
async fn a_large_sandbox_that_waits_for_days_holds_up_others_for_a_part_of_the_time() {
    for (is_shared, holder, waiter) in [(false, "first", "first"), (true, "first", "second")] {
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(is_shared);
        let permits = Permits::new(100, 12 * MIB, tenancy);
        let _long = [4, 4].map(|mib| try_take(&permits, holder, mib * MIB).unwrap());
        let _small = try_take(&permits, waiter, 1).unwrap();
        let mut large = join(&permits, waiter, "large", 4 * MIB);
        let mut ran = 0;
        for second in 0..120 {
            let mut other = join(&permits, holder, "other", MIB / 4);
            tokio::time::advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
            let is_served = (&mut other).now_or_never().is_some();
            ran += usize::from(is_served);
            assert!((&mut large).now_or_never().is_none(), "{second}");
        }
        assert!((80..100).contains(&ran), "{is_shared}: {ran} of 120");
    }
}

/// Any number of large sandboxes that cannot start hide no endpoint behind them.
#[tokio::test(start_paused = true)]
async fn large_sandboxes_of_many_endpoints_hold_up_others_for_a_part_of_the_time() {
    let permits = Permits::new(100, 12 * MIB, Tenancy::default());
    let _long = [4, 4].map(|mib| try_take(&permits, "first", mib * MIB).unwrap());
    let _small = try_take(&permits, "first", 1).unwrap();
    let large: Vec<_> =
        (0..100).map(|number| join(&permits, "first", &format!("l{number}"), 4 * MIB)).collect();
    let mut ran = 0;
    for _ in 0..120 {
        let mut others: Vec<_> =
            ["a", "b"].map(|name| join(&permits, "first", name, MIB / 4)).into();
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
        let served = served(&mut others).len();
        assert_ne!(served, 1, "both have room");
        ran += served / 2;
    }
    assert!((80..100).contains(&ran), "{ran} of 120");
    assert_eq!(permits.waiting(), large.len());
}

/// A stream of small jobs that take less time than a hold does not starve a large sandbox.
#[tokio::test(start_paused = true)]
async fn a_large_sandbox_starts_in_the_next_hold() {
    let permits = Permits::new(100, 12 * MIB, Tenancy::default());
    let mut small: Vec<Vec<Permit>> = vec![take_all(&permits, "first", MIB)];
    let mut large = join(&permits, "first", "large", 8 * MIB);
    let mut waits = vec![];
    for _ in 0..60 {
        // Each second two small jobs come, and the jobs of six seconds ago end.
        waits.extend([(); 2].map(|()| join(&permits, "first", "small", MIB)));
        tokio::time::advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
        small.push(served(&mut waits));
        if small.len() > 6 {
            drop(small.remove(0));
        }
        if (&mut large).now_or_never().is_some() {
            return;
        }
    }
    panic!("it did not start within a minute");
}

#[test]
fn idle_permits_are_wanted_where_they_help() {
    let permits = Permits::new(8, u64::MAX, several());
    let first = take_all(&permits, "first", 1);
    let second = try_take(&permits, "second", 1).unwrap();
    let of_second = || [&second].into_iter();
    assert_eq!(permits.wanted(first.iter()), None, "nobody waits");
    let _waits = join(&permits, "first", "e", 1);
    assert_eq!(permits.wanted(std::iter::empty()), None);
    assert_eq!(permits.wanted(of_second()), None, "it would not help the first one");
    let both = [&second].into_iter().chain(first.iter().take(3));
    assert_eq!(permits.wanted(both), Some(1), "the first one has its share");
    let _last = try_take(&permits, "third", 1).unwrap();
    let _other = join(&permits, "fourth", "f", 1);
    assert_eq!(permits.wanted(of_second()), Some(0));
}

/// An event of permits.
#[derive(Debug, Clone)]
enum Event {
    Comes { owner: usize, endpoint: usize, bytes: u64 },
    Tries { owner: usize, bytes: u64 },
    Ends(prop::sample::Index),
    GivesUp(prop::sample::Index),
}

fn event() -> impl Strategy<Value = Event> {
    let owner = 0..OWNERS.len();
    prop_oneof![
        4 => (owner.clone(), 0..2_usize, 1..40_u64)
            .prop_map(|(owner, endpoint, bytes)| Event::Comes { owner, endpoint, bytes }),
        3 => (owner, 1..40_u64).prop_map(|(owner, bytes)| Event::Tries { owner, bytes }),
        5 => any::<prop::sample::Index>().prop_map(Event::Ends),
        2 => any::<prop::sample::Index>().prop_map(Event::GivesUp),
    ]
}

const OWNERS: [&str; 4] = ["a", "b", "c", "d"];

struct Waits {
    owner: usize,
    endpoint: usize,
    bytes: u64,
    wait: BoxFuture<'static, Permit>,
}

/// Permits with all who hold or await one, oldest first.
struct Model {
    permits: Permits,
    all: PermitAmount,
    is_shared: bool,
    held: Vec<(usize, Permit)>,
    waiting: Vec<Waits>,
}

impl Model {
    fn sum(&self, owner: Option<usize>) -> PermitAmount {
        let of = self.held.iter().filter(|(holder, _)| owner.is_none_or(|owner| owner == *holder));
        of.map(|(_, permit)| permit.amount()).fold(PermitAmount::default(), Add::add)
    }

    #[expect(clippy::needless_pass_by_value, reason = "an event happens once")]
    fn apply(&mut self, event: Event) {
        match event {
            Event::Comes { owner: who, endpoint, bytes } => {
                let name = format!("{who}-{endpoint}");
                let wait = join(&self.permits, OWNERS[who], &name, bytes);
                self.waiting.push(Waits { owner: who, endpoint, bytes, wait });
            }
            Event::Tries { owner: who, bytes } => {
                let permit = try_take(&self.permits, OWNERS[who], bytes);
                self.held.extend(permit.map(|permit| (who, permit)));
            }
            Event::Ends(at) if !self.held.is_empty() => {
                drop(self.held.remove(at.index(self.held.len())));
            }
            Event::GivesUp(at) if !self.waiting.is_empty() => {
                drop(self.waiting.remove(at.index(self.waiting.len())));
            }
            Event::Ends(_) | Event::GivesUp(_) => {}
        }
        let held = &mut self.held;
        self.waiting.retain_mut(|waits| match (&mut waits.wait).now_or_never() {
            Some(permit) => {
                held.push((waits.owner, permit));
                false
            }
            None => true,
        });
    }

    fn bytes_of_owner_max(&self) -> u64 {
        self.all.bytes - self.all.bytes / 4
    }

    /// Whether the rules let the owner hold one slot more with so many bytes.
    fn may_have(&self, who: usize, bytes: u64) -> bool {
        let (held, all) = (self.sum(Some(who)), self.sum(None));
        let free =
            PermitAmount { slots: self.all.slots - all.slots, bytes: self.all.bytes - all.bytes };
        if free.slots == 0 || free.bytes < bytes {
            return false;
        }
        let is_first = held.slots == 0 && bytes <= self.bytes_of_owner_max();
        let is_share =
            held.slots < 3 * (free.slots - 1) && held.bytes + bytes <= 3 * (free.bytes - bytes);
        !self.is_shared || is_first || is_share
    }

    fn check(&self) {
        let sum = self.sum(None);
        assert!(sum.slots <= self.all.slots && sum.bytes <= self.all.bytes, "{sum:?}");
        assert_eq!(self.permits.taken() as u64, sum.slots);
        assert_eq!(self.permits.waiting(), self.waiting.len());
        for who in 0..OWNERS.len() {
            let held = self.sum(Some(who));
            if self.is_shared {
                let is_bounded = held.slots <= (self.all.slots * 3 / 4).max(1);
                assert!(is_bounded && held.bytes <= self.bytes_of_owner_max(), "{held:?}");
            }
            // An owner's first waiter of some endpoint has its turn.
            let own: Vec<_> = self.waiting.iter().filter(|waits| waits.owner == who).collect();
            let heads = own.iter().enumerate().filter(|(at, waits)| {
                own.iter().position(|other| other.endpoint == waits.endpoint) == Some(*at)
            });
            let ready = heads.filter(|(_, head)| self.may_have(who, head.bytes));
            let all_ready = !own.is_empty() && ready.count() == own_endpoints(&own);
            let is_first = held.slots == 0;
            assert!(
                !all_ready || self.is_held_up(who, held.bytes),
                "an owner waits, though there is room for it"
            );
            assert!(!(is_first && all_ready), "an owner without a permit waits beside a free one");
        }
    }

    /// Whether another owner waits for bytes, and would hold fewer than this one.
    fn is_held_up(&self, who: usize, held: u64) -> bool {
        let others = self.waiting.iter().filter(|waits| waits.owner != who);
        others
            .filter(|waits| !self.may_have(waits.owner, waits.bytes))
            .any(|waits| self.sum(Some(waits.owner)).bytes + waits.bytes < held + 40)
    }
}

fn own_endpoints(own: &[&Waits]) -> usize {
    own.iter().map(|waits| waits.endpoint).collect::<std::collections::HashSet<_>>().len()
}

proptest! {
    /// In any order of events: no bound is exceeded, no owner without a permit waits while there is
    /// room for it, and other owners wait while there is room only for an owner that would hold
    /// less memory.
    #[test]
    fn bounds_hold_and_no_owner_waits_without_need(
        slots in 1..12_usize,
        bytes in 40..200_u64,
        is_shared: bool,
        events in prop::collection::vec(event(), 1..120),
    ) {
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(is_shared);
        let permits = Permits::new(slots, bytes, tenancy);
        let all = PermitAmount { slots: slots as u64, bytes };
        let mut model = Model { permits, all, is_shared, held: vec![], waiting: vec![] };
        for event in events {
            model.apply(event);
            model.check();
        }
        model.waiting.clear();
        model.held.clear();
        prop_assert_eq!((model.permits.taken(), model.permits.waiting()), (0, 0));
    }
}
