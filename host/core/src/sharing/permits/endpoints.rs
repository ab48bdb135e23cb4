//! The endpoints of an owner that wait for a permit, by their turns.
//!
//! An endpoint joins behind all others, keeps its turn until one of its waiters is served, and then
//! moves to the end. The waiters of an endpoint are served in the order in which they came.
//! **Promise.** [`heads`](Endpoints::heads) always has a first waiter that asks for the fewest bytes,
//! however many other endpoints wait: if any waiter has enough room, a waiter of `heads` has.
//! **Cost.** [`heads`](Endpoints::heads) examines at most 2 × [`HEADS_MAX`] endpoints; every change
//! takes two map entries.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::iter;

use crate::id::EndpointId;

use crate::sharing::round_robin::Queue;

/// Most endpoints that are examined by their turns, and most sizes that are examined after these.
const HEADS_MAX: usize = 32;

/// A waiter for a permit of so many bytes, which it receives through its `grant`.
pub(super) struct Waiter<G> {
    pub(super) number: u64,
    pub(super) bytes: u64,
    pub(super) grant: G,
}

/// The waiting endpoints of an owner.
pub(super) struct Endpoints<G> {
    /// The first waiter of each endpoint, by the endpoint's turn.
    turns: BTreeMap<u64, Head>,
    /// The same first waiters: their bytes, and the turns of their endpoints.
    sizes: BTreeSet<(u64, u64)>,
    queues: HashMap<EndpointId, Waiters<G>>,
    next_turn: u64,
}

struct Head {
    endpoint: EndpointId,
    bytes: u64,
}

/// The waiters of an endpoint; never empty.
struct Waiters<G> {
    turn: u64,
    queue: VecDeque<Waiter<G>>,
}

impl<G> Default for Endpoints<G> {
    fn default() -> Self {
        let (turns, sizes, queues) = (BTreeMap::new(), BTreeSet::new(), HashMap::new());
        Self { turns, sizes, queues, next_turn: 0 }
    }
}

impl<G> Queue for Endpoints<G> {
    fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }
}

impl<G> Endpoints<G> {
    /// Adds a waiter.
    pub(super) fn join(&mut self, endpoint: &EndpointId, waiter: Waiter<G>) {
        if let Some(waiters) = self.queues.get_mut(endpoint) {
            waiters.queue.push_back(waiter);
        } else {
            self.insert(endpoint.clone(), VecDeque::from([waiter]));
        }
    }

    /// Removes the first waiter of an endpoint. The endpoint's next turn is behind all others.
    pub(super) fn serve(&mut self, endpoint: &EndpointId) -> Option<Waiter<G>> {
        let mut queue = self.take(endpoint)?;
        let served = queue.pop_front();
        self.insert(endpoint.clone(), queue);
        served
    }

    /// Removes the waiter of an endpoint with this number, if it still waits. The endpoint keeps its
    /// turn. Returns whether it waited.
    pub(super) fn remove(&mut self, endpoint: &EndpointId, number: u64) -> bool {
        let Some(waiters) = self.queues.get_mut(endpoint) else { return false };
        let mut waiting = waiters.queue.iter();
        let Some(position) = waiting.position(|waiter| waiter.number == number) else {
            return false;
        };
        let turn = waiters.turn;
        if position > 0 {
            waiters.queue.remove(position);
        } else if let Some(mut queue) = self.take(endpoint) {
            queue.pop_front();
            self.insert_at(turn, endpoint.clone(), queue);
        }
        true
    }

    /// First waiters with the bytes that they want: those of the first endpoints by their turns, and
    /// then the first one of each of the smallest sizes, by their turns too. An endpoint may come
    /// twice.
    pub(super) fn heads(&self) -> impl Iterator<Item = (&EndpointId, u64)> {
        let first = self.turns.values().take(HEADS_MAX);
        let smallest = iter::once_with(|| self.smallest()).flatten();
        first.chain(smallest).map(|head| (&head.endpoint, head.bytes))
    }

    /// The first waiter of each of the smallest sizes; none when [`heads`](Self::heads) has examined
    /// all endpoints without them.
    fn smallest(&self) -> Vec<&Head> {
        if self.turns.len() <= HEADS_MAX {
            return Vec::new();
        }
        let mut turns = Vec::new();
        let mut next = self.sizes.first();
        while let Some(&(bytes, turn)) = next
            && turns.len() < HEADS_MAX
        {
            turns.push(turn);
            next = bytes.checked_add(1).and_then(|larger| self.sizes.range((larger, 0)..).next());
        }
        turns.sort_unstable();
        turns.iter().filter_map(|turn| self.turns.get(turn)).collect()
    }

    /// Takes an endpoint out of the line.
    fn take(&mut self, endpoint: &EndpointId) -> Option<VecDeque<Waiter<G>>> {
        let Waiters { turn, queue } = self.queues.remove(endpoint)?;
        if let Some(head) = self.turns.remove(&turn) {
            self.sizes.remove(&(head.bytes, turn));
        }
        Some(queue)
    }

    /// Puts an endpoint at the end of the line, unless its queue is empty.
    fn insert(&mut self, endpoint: EndpointId, queue: VecDeque<Waiter<G>>) {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.insert_at(turn, endpoint, queue);
    }

    fn insert_at(&mut self, turn: u64, endpoint: EndpointId, queue: VecDeque<Waiter<G>>) {
        let Some(bytes) = queue.front().map(|waiter| waiter.bytes) else { return };
        self.turns.insert(turn, Head { endpoint: endpoint.clone(), bytes });
        self.sizes.insert((bytes, turn));
        self.queues.insert(endpoint, Waiters { turn, queue });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> EndpointId {
        EndpointId::new(&format!("e{number}")).unwrap()
    }

    fn join(endpoints: &mut Endpoints<()>, endpoint: u64, number: u64, bytes: u64) {
        endpoints.join(&id(endpoint), Waiter { number, bytes, grant: () });
    }

    fn heads(endpoints: &Endpoints<()>) -> Vec<(EndpointId, u64)> {
        endpoints.heads().map(|(endpoint, bytes)| (endpoint.clone(), bytes)).collect()
    }

    #[test]
    fn the_smallest_sizes_are_examined_behind_any_number_of_endpoints() {
        let mut endpoints = Endpoints::default();
        for number in 0..100 {
            join(&mut endpoints, number, number, 4_096);
        }
        assert_eq!(heads(&endpoints).len(), HEADS_MAX + 1, "all others have the same size");
        for (number, bytes) in [(100, 512), (101, 64), (102, 64)] {
            join(&mut endpoints, number, number, bytes);
        }
        let behind = |endpoints: &Endpoints<()>| heads(endpoints).split_off(HEADS_MAX);
        assert_eq!(behind(&endpoints), [(id(0), 4_096), (id(100), 512), (id(101), 64)]);
        assert_eq!(endpoints.serve(&id(101)).unwrap().number, 101);
        assert_eq!(behind(&endpoints), [(id(0), 4_096), (id(100), 512), (id(102), 64)]);
        // One waiter asks for less than the one before it: an endpoint's memory was changed.
        join(&mut endpoints, 100, 103, 8);
        assert!(endpoints.remove(&id(100), 100) && !endpoints.remove(&id(100), 100));
        assert_eq!(behind(&endpoints), [(id(0), 4_096), (id(100), 8), (id(102), 64)]);
    }

    #[test]
    fn sizes_beyond_those_that_are_examined_are_the_largest() {
        let mut endpoints = Endpoints::default();
        for number in 0..100 {
            join(&mut endpoints, number, number, u64::MAX - number);
        }
        let behind = heads(&endpoints).split_off(HEADS_MAX);
        let expected: Vec<_> = (68..100).map(|number| (id(number), u64::MAX - number)).collect();
        assert_eq!(behind, expected);
    }

    #[test]
    fn an_endpoint_without_waiters_leaves_nothing() {
        let mut endpoints = Endpoints::default();
        for number in 0..6 {
            join(&mut endpoints, number % 2, number, number);
        }
        let mut order = vec![];
        while let Some((endpoint, _)) = heads(&endpoints).into_iter().next() {
            order.extend(endpoints.serve(&endpoint).map(|waiter| waiter.number));
        }
        assert_eq!(order, [0, 1, 2, 3, 4, 5]);
        join(&mut endpoints, 7, 7, 7);
        assert!(!endpoints.remove(&id(7), 8) && endpoints.remove(&id(7), 7));
        assert!(endpoints.is_empty() && endpoints.turns.is_empty() && endpoints.sizes.is_empty());
        assert!(endpoints.serve(&id(7)).is_none());
    }
}
