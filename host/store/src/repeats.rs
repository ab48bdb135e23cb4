//! Idempotency records: the submissions by which duplicates are recognised.
//!
//! **Bounds.** [`KEYS_MAX`] records of about 110 bytes; at the bound, and after [`KEY_LIFE_MS`],
//! the oldest is removed. A lookup is one access to a hash map.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use gristmill_core::id::JobId;
use gristmill_core::idempotency::{Idempotency, KEY_LIFE_MS, KEYS_MAX};
use gristmill_core::store::SubmitAnswer;
use gristmill_core::time::Timestamp;

/// Records by endpoint `E` and key.
#[derive(Debug)]
pub(crate) struct Repeats<E> {
    by_key: HashMap<(E, [u8; 16]), First>,
    /// Oldest first: all have the same lifetime.
    order: VecDeque<(u64, E, [u8; 16])>,
    keys_max: usize,
}

/// The first submission with a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct First {
    /// The number of the job's rows.
    pub(crate) seq: u64,
    pub(crate) job: JobId,
    pub(crate) content: [u8; 16],
    pub(crate) at: Timestamp,
}

impl<E> Default for Repeats<E> {
    fn default() -> Self {
        Self { by_key: HashMap::new(), order: VecDeque::new(), keys_max: KEYS_MAX }
    }
}

impl<E: Clone + Eq + Hash> Repeats<E> {
    /// The answer to a duplicate submission; `None` when the submission is new.
    pub(crate) fn find(&self, endpoint: &E, mark: Idempotency) -> Option<SubmitAnswer> {
        let first = self.by_key.get(&(endpoint.clone(), mark.key))?;
        Some(if first.content == mark.content {
            SubmitAnswer::Repeated(first.job)
        } else {
            SubmitAnswer::KeyReused
        })
    }

    /// Adds a record that [`find`](Self::find) did not find. Numbers grow from call to call.
    /// Returns the number up to which all records are removed, if that has changed.
    pub(crate) fn remember(&mut self, endpoint: E, key: [u8; 16], first: First) -> Option<u64> {
        self.by_key.insert((endpoint.clone(), key), first);
        self.order.push_back((first.seq, endpoint, key));
        if self.order.len() > self.keys_max { self.forget_oldest() } else { None }
    }

    /// Removes records at the end of their lifetime; returns the same as
    /// [`remember`](Self::remember).
    pub(crate) fn forget(&mut self, now: Timestamp) -> Option<u64> {
        let mut last = None;
        while self.next() <= now {
            last = self.forget_oldest();
        }
        last
    }

    /// The time of the next removal; [`Timestamp::NEVER`] when there are no records.
    pub(crate) fn next(&self) -> Timestamp {
        let oldest = self.order.front();
        let oldest = oldest.and_then(|(_, e, key)| self.by_key.get(&(e.clone(), *key)));
        oldest.map_or(Timestamp::NEVER, |first| first.at.plus_millis(KEY_LIFE_MS))
    }

    /// Removes all records of a deleted endpoint, and returns the number up to which no records are
    /// left; `last` is the highest existing number. Examines all records: 20 ms at the bound.
    pub(crate) fn forget_endpoint(&mut self, endpoint: &E, last: u64) -> u64 {
        self.by_key.retain(|(of, _), _| of != endpoint);
        self.order.retain(|(_, of, _)| of != endpoint);
        self.nothing_up_to(last)
    }

    /// The number up to which no records are left; `last` is the highest existing number.
    pub(crate) fn nothing_up_to(&self, last: u64) -> u64 {
        self.order.front().map_or(last, |(seq, ..)| seq - 1)
    }

    fn forget_oldest(&mut self) -> Option<u64> {
        let (seq, endpoint, key) = self.order.pop_front()?;
        self.by_key.remove(&(endpoint, key));
        Some(seq)
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::{NodeId, Submission};

    use super::*;

    fn first(seq: u64, at: u64) -> First {
        let job = JobId::generate(Submission::Async, NodeId(1));
        First { seq, job, content: [0; 16], at: Timestamp::from_millis(at) }
    }

    #[test]
    fn the_oldest_goes_after_its_time_and_at_the_bound() {
        let mut repeats = Repeats { keys_max: 2, ..Repeats::default() };
        let mark = |n| Idempotency { key: [n; 16], content: [0; 16] };
        assert_eq!(repeats.next(), Timestamp::NEVER);
        assert_eq!(repeats.remember('e', [1; 16], first(1, 0)), None);
        assert_eq!(repeats.remember('e', [2; 16], first(2, 5)), None);
        assert_eq!(repeats.remember('f', [2; 16], first(3, 9)), Some(1));
        assert_eq!(repeats.find(&'e', mark(1)), None);
        assert!(matches!(repeats.find(&'e', mark(2)), Some(SubmitAnswer::Repeated(_))));
        let other = Idempotency { content: [7; 16], ..mark(2) };
        assert_eq!(repeats.find(&'f', other), Some(SubmitAnswer::KeyReused));
        assert_eq!(repeats.forget(Timestamp::from_millis(KEY_LIFE_MS + 4)), None);
        assert_eq!(repeats.forget(Timestamp::from_millis(KEY_LIFE_MS + 5)), Some(2));
        assert_eq!(repeats.next(), Timestamp::from_millis(KEY_LIFE_MS + 9));
    }
}
