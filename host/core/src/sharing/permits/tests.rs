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
        self.waiting.push((endpoint, self.permits.queue(&owner(), &id(endpoint), bytes).boxed()));
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
    let small = permits.try_take(&owner(), 4 * MIB).unwrap();
    let _large = permits.try_take(&owner(), 6 * MIB).unwrap();
    assert!(permits.try_take(&owner(), 1).is_none(), "no memory");
    let _empty = permits.try_take(&owner(), 0).unwrap();
    assert_eq!(permits.taken(), 3);
    assert!(permits.try_take(&owner(), 0).is_none(), "no sandbox");
    drop(small);
    assert!(permits.try_take(&owner(), 5 * MIB).is_none());
    assert!(permits.try_take(&owner(), 4 * MIB).is_some());
}

#[test]
fn endpoints_take_turns_and_their_workers_queue() {
    let permits = Permits::new(1, MIB, Tenancy::default());
    let mut last = permits.try_take(&owner(), 1);
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
    let mut running: VecDeque<_> =
        (0..10).filter_map(|_| permits.try_take(&owner(), MIB)).collect();
    let mut queue = Queue::new(&permits);
    queue.join("large", 9 * MIB);
    for _ in 0..50 {
        queue.join("small", MIB);
    }
    assert!(permits.try_take(&owner(), 0).is_none(), "new requests do not pass waiting ones");
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
    let first = permits.try_take(&owner(), MIB).unwrap();
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
    assert!(permits.try_take(&owner(), 10 * MIB).is_some(), "nothing is lost");
}

#[test]
fn a_request_beyond_the_total_gets_the_total() {
    let permits = Permits::new(2, MIB, Tenancy::default());
    assert!(permits.try_take(&owner(), 2 * MIB).is_none());
    let mut queue = Queue::new(&permits);
    queue.join("huge", 2 * MIB);
    assert_eq!(queue.granted(), ["huge"]);
    assert!(permits.try_take(&owner(), 1).is_none());
}
