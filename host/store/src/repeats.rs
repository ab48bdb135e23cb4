//! The submissions that are recognised when they come again.
//!
//! **Bounds.** [`KEYS_MAX`] of about 110 bytes; at the bound, and after [`KEY_LIFE_MS`], the oldest
//! is forgotten. Each lookup is one in a hash map.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use gristmill_core::id::JobId;
use gristmill_core::idempotency::{Idempotency, KEY_LIFE_MS, KEYS_MAX};
use gristmill_core::store::SubmitAnswer;
use gristmill_core::time::Timestamp;

/// Submissions by endpoint `E` and key.
#[derive(Debug)]
pub(crate) struct Repeats<E> {
    by_key: HashMap<(E, [u8; 16]), First>,
    /// Oldest first: all live equally long.
    order: VecDeque<(u64, E, [u8; 16])>,
    keys_max: usize,
}

/// What came first under a key.
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
    /// What to answer to a submission that came before; `None` when it is new.
    pub(crate) fn find(&self, endpoint: &E, mark: Idempotency) -> Option<SubmitAnswer> {
        let first = self.by_key.get(&(endpoint.clone(), mark.key))?;
        Some(if first.content == mark.content {
            SubmitAnswer::Repeated(first.job)
        } else {
            SubmitAnswer::KeyReused
        })
    }

    /// Remembers what [`find`](Self::find) did not know. Numbers grow from call to call. Answers
    /// with the number up to which everything is forgotten, if that has changed.
    pub(crate) fn remember(&mut self, endpoint: E, key: [u8; 16], first: First) -> Option<u64> {
        self.by_key.insert((endpoint.clone(), key), first);
        self.order.push_back((first.seq, endpoint, key));
        if self.order.len() > self.keys_max { self.forget_oldest() } else { None }
    }

    /// Forgets what has been remembered for long enough; answers like
    /// [`remember`](Self::remember).
    pub(crate) fn forget(&mut self, now: Timestamp) -> Option<u64> {
        let mut last = None;
        while self.next() <= now {
            last = self.forget_oldest();
        }
        last
    }

    /// When there is something to forget; [`Timestamp::NEVER`] when nothing is remembered.
    pub(crate) fn next(&self) -> Timestamp {
        let oldest = self.order.front();
        let oldest = oldest.and_then(|(_, e, key)| self.by_key.get(&(e.clone(), *key)));
        oldest.map_or(Timestamp::NEVER, |first| first.at.plus_millis(KEY_LIFE_MS))
    }

    /// Forgets all of an endpoint that is deleted, and answers with the number up to which nothing
    /// is remembered any more; `last` is the highest that there is. Looks at everything that is
    /// remembered: 20 ms at the bound.
    pub(crate) fn forget_endpoint(&mut self, endpoint: &E, last: u64) -> u64 {
        self.by_key.retain(|(of, _), _| of != endpoint);
        self.order.retain(|(_, of, _)| of != endpoint);
        self.nothing_up_to(last)
    }

    /// The number up to which nothing is remembered; `last` is the highest that there is.
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
