//! Permits on a host with one owner: bounds and turns.

use std::collections::VecDeque;

use futures::FutureExt as _;
use futures::future::BoxFuture;

use super::*;

const MIB: u64 = 1 << 20;

fn owner() -> OwnerId {
    OwnerId::operator()
}

fn id(name: &str) -> EndpointId {
    EndpointId::new(name).unwrap()
}

fn try_take(permits: &Permits, bytes: u64) -> Option<Permit> {
    permits.owner_share(&owner()).try_take(bytes, Level::CLIENT)
}

/// Workers that wait, by the names of their endpoints.
struct Queue {
    permits: Permits,
    waiting: Vec<(&'static str, BoxFuture<'static, Permit>)>,
    held: Vec<Permit>,
}

impl Queue {
    fn new(permits: &Permits) -> Self {
        Self { permits: permits.clone(), waiting: Vec::new(), held: Vec::new() }
    }

    fn join(&mut self, endpoint: &'static str, bytes: u64) {
        self.waiting.push((
            endpoint,
            self.permits.share(&owner(), &id(endpoint)).queue(bytes, Level::CLIENT).boxed(),
        ));
    }

    /// Takes the granted permits, and returns the names of their endpoints.
    fn granted(&mut self) -> Vec<&'static str> {
        let mut granted = Vec::new();
        let held = &mut self.held;
        self.waiting.retain_mut(|(endpoint, wait)| match wait.now_or_never() {
            Some(permit) => {
                held.push(permit);
                granted.push(*endpoint);
                false
            }
            None => true,
        });
        granted
    }
}

#[test]
fn permits_are_bounded_by_number_and_by_memory() {
    let permits = Permits::new(3, 10 * MIB, Tenancy::default());
    let small = try_take(&permits, 4 * MIB).unwrap();
    let _large = try_take(&permits, 6 * MIB).unwrap();
    assert!(try_take(&permits, 1).is_none(), "no memory");
    let _empty = try_take(&permits, 0).unwrap();
    assert_eq!(permits.taken(), 3);
    assert!(try_take(&permits, 0).is_none(), "no sandbox");
    drop(small);
    assert!(try_take(&permits, 5 * MIB).is_none());
    assert!(try_take(&permits, 4 * MIB).is_some());
}

#[test]
fn endpoints_take_turns_and_their_workers_queue() {
    let permits = Permits::new(1, MIB, Tenancy::default());
    let mut last = try_take(&permits, 1);
    let mut queue = Queue::new(&permits);
    for _ in 0..100 {
        queue.join("many", 1);
    }
    queue.join("few", 1);
    queue.join("few", 1);
    assert_eq!((permits.waiting(), permits.taken()), (102, 1));
    let mut order = Vec::new();
    for _ in 0..6 {
        drop(last.take());
        order.extend(queue.granted());
        last = queue.held.pop();
    }
    assert_eq!(order, ["many", "few", "many", "few", "many", "many"]);
}

#[test]
fn a_large_sandbox_is_not_starved_by_small_ones() {
    let permits = Permits::new(10, 10 * MIB, Tenancy::default());
    let mut running: VecDeque<_> = (0..10).filter_map(|_| try_take(&permits, MIB)).collect();
    let mut queue = Queue::new(&permits);
    queue.join("large", 9 * MIB);
    for _ in 0..50 {
        queue.join("small", MIB);
    }
    assert!(try_take(&permits, 0).is_none(), "new requests do not pass waiting ones");
    for _ in 0..8 {
        running.pop_front();
        assert!(queue.granted().is_empty(), "the large one has the turn");
    }
    running.pop_front();
    assert_eq!(queue.granted(), ["large"]);
    running.pop_front();
    assert_eq!(queue.granted(), ["small"]);
}

#[test]
fn a_waiter_that_gives_up_does_not_delay_the_others() {
    let permits = Permits::new(10, 10 * MIB, Tenancy::default());
    let first = try_take(&permits, MIB).unwrap();
    let mut queue = Queue::new(&permits);
    queue.join("large", 10 * MIB);
    queue.join("small", MIB);
    assert!(queue.granted().is_empty());
    drop(queue.waiting.remove(0));
    assert_eq!(queue.granted(), ["small"]);
    // A waiter gives up after it was served, and before it was polled.
    queue.join("large", 10 * MIB);
    drop((first, std::mem::take(&mut queue.held)));
    assert_eq!(permits.taken(), 1);
    queue.waiting.clear();
    assert_eq!((permits.taken(), permits.waiting()), (0, 0));
    assert!(try_take(&permits, 10 * MIB).is_some(), "nothing is lost");
}

#[test]
fn a_request_beyond_the_total_gets_the_total() {
    let permits = Permits::new(2, MIB, Tenancy::default());
    assert!(try_take(&permits, 2 * MIB).is_none());
    let mut queue = Queue::new(&permits);
    queue.join("huge", 2 * MIB);
    assert_eq!(queue.granted(), ["huge"]);
    assert!(try_take(&permits, 1).is_none());
}
