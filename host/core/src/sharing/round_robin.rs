//! Round robin: waiting keys are served in a circle, and each key has a queue of its waiters.
//!
//! A key joins the circle behind all others, keeps its turn until one of its waiters is served, and
//! then moves to the end. A key without waiters leaves the circle. A round robin is itself a queue,
//! so that round robins nest.
//!
//! **Cost:** a hash map entry for each waiting key; leaving the circle examines each waiting key.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Waiters of one key.
pub trait Queue: Default {
    /// Whether there is no waiter.
    fn is_empty(&self) -> bool;
}

impl<T> Queue for VecDeque<T> {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

/// Keys that wait, by their turns.
#[derive(Debug)]
pub struct RoundRobin<K, Q> {
    order: VecDeque<K>,
    /// The queues of waiting keys; none is empty.
    queues: HashMap<K, Q>,
}

impl<K, Q> Default for RoundRobin<K, Q> {
    fn default() -> Self {
        Self { order: VecDeque::new(), queues: HashMap::new() }
    }
}

impl<K: Clone + Eq + Hash, Q: Queue> Queue for RoundRobin<K, Q> {
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

impl<K: Clone + Eq + Hash, Q: Queue> RoundRobin<K, Q> {
    /// Adds waiters of a key with `add`, which must add at least one.
    pub fn join(&mut self, key: &K, add: impl FnOnce(&mut Q)) {
        let queue = self.queues.entry(key.clone()).or_default();
        if queue.is_empty() {
            self.order.push_back(key.clone());
        }
        add(queue);
    }

    /// The keys that wait, the next one first.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &Q)> {
        self.order.iter().filter_map(|key| Some((key, self.queues.get(key)?)))
    }

    /// The queue of a key that waits.
    pub fn get(&self, key: &K) -> Option<&Q> {
        self.queues.get(key)
    }

    /// Serves a key: `take` takes a waiter from its queue, and the key's next turn is behind all
    /// others.
    pub fn serve<T>(&mut self, key: &K, take: impl FnOnce(&mut Q) -> Option<T>) -> Option<T> {
        let queue = self.queues.get_mut(key)?;
        let served = take(queue);
        let is_empty = queue.is_empty();
        let position = self.order.iter().position(|waiting| waiting == key);
        let key = position.and_then(|position| self.order.remove(position))?;
        if is_empty {
            self.queues.remove(&key);
        } else {
            self.order.push_back(key);
        }
        served
    }

    /// Changes the queue of a key that waits; the key keeps its turn if any waiter is left.
    pub fn change(&mut self, key: &K, change: impl FnOnce(&mut Q)) {
        let Some(queue) = self.queues.get_mut(key) else { return };
        change(queue);
        if queue.is_empty() {
            self.queues.remove(key);
            self.order.retain(|waiting| waiting != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Nested = RoundRobin<char, RoundRobin<u8, VecDeque<u32>>>;

    fn next(turns: &mut Nested) -> Option<u32> {
        let key = *turns.iter().next()?.0;
        turns.serve(&key, |inner| {
            let key = *inner.iter().next()?.0;
            inner.serve(&key, VecDeque::pop_front)
        })
    }

    #[test]
    fn keys_take_turns_on_each_level() {
        let mut turns = Nested::default();
        for (outer, inner, value) in
            [('a', 1, 10), ('a', 1, 11), ('a', 2, 20), ('b', 1, 30), ('b', 1, 31), ('c', 9, 40)]
        {
            turns.join(&outer, |queue| queue.join(&inner, |queue| queue.push_back(value)));
        }
        turns.change(&'c', |queue| queue.change(&9, VecDeque::clear));
        assert!(turns.get(&'c').is_none());
        let served: Vec<_> = std::iter::from_fn(|| next(&mut turns)).collect();
        assert_eq!(served, [10, 30, 20, 31, 11]);
        assert!(turns.is_empty() && turns.queues.is_empty());
    }
}
