//! Those that wait by turns, such as the endpoints of an owner, each with a queue of its waiters.
//!
//! A key joins behind all others, keeps its turn until one of its waiters is served, and then moves
//! to the end. The waiters of a key are served in the order in which they came.
//! **Promise.** [`heads`](Turns::heads) always has a first waiter that asks for the fewest bytes,
//! however many other keys wait: if any waiter has enough room, a waiter of `heads` has.
//! **Cost.** [`heads`](Turns::heads) examines at most 2 × [`HEADS_MAX`] keys; every change takes
//! two map entries.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::iter;

/// Most keys that are examined by their turns, and most sizes that are examined after these.
const HEADS_MAX: usize = 32;

/// A waiter for a permit of so many bytes, which it receives through its `grant`.
#[derive(Debug)]
pub struct Waiter<G> {
    /// Its number among all waiters.
    pub number: u64,
    /// 0 where all ask for the same.
    pub bytes: u64,
    /// Where it receives the permit.
    pub grant: G,
}

/// The waiting keys.
#[derive(Debug)]
pub struct Turns<K, G> {
    /// The first waiter of each key, by the key's turn.
    turns: BTreeMap<u64, Head<K>>,
    /// The same first waiters: their bytes, and the turns of their keys.
    sizes: BTreeSet<(u64, u64)>,
    queues: HashMap<K, Waiters<G>>,
    next_turn: u64,
}

#[derive(Debug)]
struct Head<K> {
    key: K,
    bytes: u64,
}

/// The waiters of a key; never empty.
#[derive(Debug)]
struct Waiters<G> {
    turn: u64,
    queue: VecDeque<Waiter<G>>,
}

impl<K, G> Default for Turns<K, G> {
    fn default() -> Self {
        let (turns, sizes, queues) = (BTreeMap::new(), BTreeSet::new(), HashMap::new());
        Self { turns, sizes, queues, next_turn: 0 }
    }
}

impl<K: Clone + Eq + Hash, G> Turns<K, G> {
    /// Whether there is no waiter.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The number of waiters of a key.
    pub fn waiting(&self, key: &K) -> usize {
        self.queues.get(key).map_or(0, |waiters| waiters.queue.len())
    }

    /// Adds a waiter.
    pub fn join(&mut self, key: &K, waiter: Waiter<G>) {
        if let Some(waiters) = self.queues.get_mut(key) {
            waiters.queue.push_back(waiter);
        } else {
            self.insert(key.clone(), VecDeque::from([waiter]));
        }
    }

    /// Removes the first waiter of a key. The key's next turn is behind all others.
    pub fn serve(&mut self, key: &K) -> Option<Waiter<G>> {
        let mut queue = self.take(key)?;
        let served = queue.pop_front();
        self.insert(key.clone(), queue);
        served
    }

    /// Removes the waiter of a key with this number, if it still waits. The key keeps its turn.
    /// Returns whether it waited.
    pub fn remove(&mut self, key: &K, number: u64) -> bool {
        let Some(waiters) = self.queues.get_mut(key) else { return false };
        let mut waiting = waiters.queue.iter();
        let Some(position) = waiting.position(|waiter| waiter.number == number) else {
            return false;
        };
        let turn = waiters.turn;
        if position > 0 {
            waiters.queue.remove(position);
        } else if let Some(mut queue) = self.take(key) {
            queue.pop_front();
            self.insert_at(turn, key.clone(), queue);
        }
        true
    }

    /// First waiters with the bytes that they want: those of the first keys by their turns, and
    /// then the first one of each of the smallest sizes, by their turns too. A key may come twice.
    pub fn heads(&self) -> impl Iterator<Item = (&K, u64)> {
        let first = self.turns.values().take(HEADS_MAX);
        let smallest = iter::once_with(|| self.smallest()).flatten();
        first.chain(smallest).map(|head| (&head.key, head.bytes))
    }

    /// The first waiter of each of the smallest sizes; none when [`heads`](Self::heads) has
    /// examined all keys without them.
    fn smallest(&self) -> Vec<&Head<K>> {
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

    /// Takes a key out of the line.
    fn take(&mut self, key: &K) -> Option<VecDeque<Waiter<G>>> {
        let Waiters { turn, queue } = self.queues.remove(key)?;
        if let Some(head) = self.turns.remove(&turn) {
            self.sizes.remove(&(head.bytes, turn));
        }
        Some(queue)
    }

    /// Puts a key at the end of the line, unless its queue is empty.
    fn insert(&mut self, key: K, queue: VecDeque<Waiter<G>>) {
        let turn = self.next_turn;
        self.next_turn += 1;
        self.insert_at(turn, key, queue);
    }

    fn insert_at(&mut self, turn: u64, key: K, queue: VecDeque<Waiter<G>>) {
        let Some(bytes) = queue.front().map(|waiter| waiter.bytes) else { return };
        self.turns.insert(turn, Head { key: key.clone(), bytes });
        self.sizes.insert((bytes, turn));
        self.queues.insert(key, Waiters { turn, queue });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::EndpointId;

    fn id(number: u64) -> EndpointId {
        EndpointId::new(&format!("e{number}")).unwrap()
    }

    fn join(endpoints: &mut Turns<EndpointId, ()>, endpoint: u64, number: u64, bytes: u64) {
        endpoints.join(&id(endpoint), Waiter { number, bytes, grant: () });
    }

    fn heads(endpoints: &Turns<EndpointId, ()>) -> Vec<(EndpointId, u64)> {
        endpoints.heads().map(|(endpoint, bytes)| (endpoint.clone(), bytes)).collect()
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
        let behind = |endpoints: &Turns<EndpointId, ()>| heads(endpoints).split_off(HEADS_MAX);
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
        let mut endpoints = Turns::default();
        for number in 0..100 {
            join(&mut endpoints, number, number, u64::MAX - number);
        }
        let behind = heads(&endpoints).split_off(HEADS_MAX);
        let expected: Vec<_> = (68..100).map(|number| (id(number), u64::MAX - number)).collect();
        assert_eq!(behind, expected);
    }

    #[test]
    fn a_key_without_waiters_leaves_nothing() {
        let mut endpoints = Turns::default();
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
