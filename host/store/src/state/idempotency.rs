//! Idempotency records: the submissions by which duplicates are recognised.
//!
//! **Bounds.** [`KEYS_MAX`] of about 110 bytes. At the bound the endpoint that has the most loses its oldest: an endpoint with
//! at most an equal part of them loses none, however many others send. After [`KEY_LIFETIME_MS`] each is forgotten.
//! **Cost.** A lookup is one in a hash map; remembering and forgetting also change one entry of an ordered set.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

use gristmill_core::id::JobId;
use gristmill_core::idempotency::{Idempotency, KEY_LIFETIME_MS, KEYS_MAX};
use gristmill_core::store::SubmitAnswer;
use gristmill_core::time::Timestamp;

/// Records by endpoint `E` and key.
#[derive(Debug)]
pub(crate) struct IdempotencyIndex<E> {
    by_key: HashMap<(E, [u8; 16]), IdempotencyRecord>,
    /// Of each endpoint, with their numbers, oldest first: all live equally long. Never empty.
    by_endpoint: HashMap<E, VecDeque<(u64, [u8; 16])>>,
    /// The number of each endpoint's oldest.
    oldest: BTreeSet<(u64, E)>,
    /// How many each endpoint has.
    counts: BTreeSet<(usize, E)>,
    keys_max: usize,
}

/// The first submission with a key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdempotencyRecord {
    /// The number of the job's rows.
    pub(crate) seq: u64,
    pub(crate) job: JobId,
    pub(crate) content: [u8; 16],
    pub(crate) at: Timestamp,
}

/// The submissions that are not remembered any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// Everything up to this number.
    UpTo(u64),
    /// This number, and not all that are lower.
    Only(u64),
}

impl<E> Default for IdempotencyIndex<E> {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            by_endpoint: HashMap::new(),
            oldest: BTreeSet::new(),
            counts: BTreeSet::new(),
            keys_max: KEYS_MAX,
        }
    }
}

impl<E: Clone + Hash + Ord> IdempotencyIndex<E> {
    /// What to answer to a submission that came before; `None` when it is new.
    pub(crate) fn find(&self, endpoint: &E, idempotency: Idempotency) -> Option<SubmitAnswer> {
        let first = self.by_key.get(&(endpoint.clone(), idempotency.key))?;
        Some(if first.content == idempotency.content {
            SubmitAnswer::Repeated(first.job)
        } else {
            SubmitAnswer::KeyReused
        })
    }

    /// Remembers what [`find`](Self::find) did not know. Numbers grow from call to call. Returns what is forgotten for it.
    pub(crate) fn insert(
        &mut self,
        endpoint: E,
        key: [u8; 16],
        first: IdempotencyRecord,
    ) -> Option<Dropped> {
        self.by_key.insert((endpoint.clone(), key), first);
        let queue = self.by_endpoint.entry(endpoint.clone()).or_default();
        queue.push_back((first.seq, key));
        let count = queue.len();
        if count == 1 {
            self.oldest.insert((first.seq, endpoint.clone()));
        }
        self.counts.remove(&(count - 1, endpoint.clone()));
        self.counts.insert((count, endpoint));
        if self.by_key.len() <= self.keys_max {
            return None;
        }
        let (_, largest) = self.counts.last()?.clone();
        let seq = self.forget_oldest_of(&largest)?;
        let is_oldest = self.oldest.first().is_none_or(|(oldest, _)| seq < *oldest);
        Some(if is_oldest { Dropped::UpTo(seq) } else { Dropped::Only(seq) })
    }

    /// Forgets what has been remembered for long enough, and returns the number up to which everything is forgotten, if that has
    /// changed.
    pub(crate) fn expire(&mut self, now: Timestamp) -> Option<u64> {
        let mut last = None;
        while self.next() <= now {
            let Some((_, endpoint)) = self.oldest.first().cloned() else { break };
            last = self.forget_oldest_of(&endpoint);
        }
        last
    }

    /// The time of the next removal; [`Timestamp::NEVER`] when there are no records.
    pub(crate) fn next(&self) -> Timestamp {
        let oldest = self.oldest.first().and_then(|(_, endpoint)| {
            let (_, key) = self.by_endpoint.get(endpoint)?.front()?;
            self.by_key.get(&(endpoint.clone(), *key))
        });
        oldest.map_or(Timestamp::NEVER, |first| first.at.plus_millis(KEY_LIFETIME_MS))
    }

    /// Forgets all of an endpoint that is deleted, and answers with the number up to which nothing
    /// is remembered any more; `last` is the highest that there is. Costs about 100 ns for each.
    pub(crate) fn forget_endpoint(&mut self, endpoint: &E, last: u64) -> u64 {
        let queue = self.by_endpoint.remove(endpoint).unwrap_or_default();
        self.counts.remove(&(queue.len(), endpoint.clone()));
        if let Some((seq, _)) = queue.front() {
            self.oldest.remove(&(*seq, endpoint.clone()));
        }
        for (_, key) in queue {
            self.by_key.remove(&(endpoint.clone(), key));
        }
        self.no_record_up_to(last)
    }

    /// The number up to which no records are left; `last` is the highest existing number.
    pub(crate) fn no_record_up_to(&self, last: u64) -> u64 {
        self.oldest.first().map_or(last, |(seq, _)| seq - 1)
    }

    /// Forgets the oldest of an endpoint, and returns its number.
    fn forget_oldest_of(&mut self, endpoint: &E) -> Option<u64> {
        let queue = self.by_endpoint.get_mut(endpoint)?;
        let count = queue.len();
        let (seq, key) = queue.pop_front()?;
        let next = queue.front().map(|(seq, _)| *seq);
        self.by_key.remove(&(endpoint.clone(), key));
        self.oldest.remove(&(seq, endpoint.clone()));
        self.counts.remove(&(count, endpoint.clone()));
        match next {
            Some(next) => {
                self.oldest.insert((next, endpoint.clone()));
                self.counts.insert((count - 1, endpoint.clone()));
            }
            None => {
                self.by_endpoint.remove(endpoint);
            }
        }
        Some(seq)
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::id::{NodeId, Submission};

    use super::*;

    fn first(seq: u64, at: u64) -> IdempotencyRecord {
        let job = JobId::generate(Submission::Async, NodeId(1));
        IdempotencyRecord { seq, job, content: [0; 16], at: Timestamp::from_millis(at) }
    }

    #[test]
    fn the_oldest_record_is_dropped_at_the_bound_and_after_its_lifetime() {
        let mut idempotency_index = IdempotencyIndex { keys_max: 2, ..IdempotencyIndex::default() };
        let idempotency = |n| Idempotency { key: [n; 16], content: [0; 16] };
        assert_eq!(idempotency_index.next(), Timestamp::NEVER);
        assert_eq!(idempotency_index.insert('e', [1; 16], first(1, 0)), None);
        assert_eq!(idempotency_index.insert('e', [2; 16], first(2, 5)), None);
        assert_eq!(idempotency_index.insert('f', [2; 16], first(3, 9)), Some(Dropped::UpTo(1)));
        assert_eq!(idempotency_index.find(&'e', idempotency(1)), None);
        assert!(matches!(
            idempotency_index.find(&'e', idempotency(2)),
            Some(SubmitAnswer::Repeated(_))
        ));
        let other = Idempotency { content: [7; 16], ..idempotency(2) };
        assert_eq!(idempotency_index.find(&'f', other), Some(SubmitAnswer::KeyReused));
        assert_eq!(idempotency_index.expire(Timestamp::from_millis(KEY_LIFETIME_MS + 4)), None);
        assert_eq!(idempotency_index.expire(Timestamp::from_millis(KEY_LIFETIME_MS + 5)), Some(2));
        assert_eq!(idempotency_index.next(), Timestamp::from_millis(KEY_LIFETIME_MS + 9));
    }

    #[test]
    fn the_endpoint_with_the_most_records_loses_its_own_first() {
        let mut idempotency_index =
            IdempotencyIndex { keys_max: 100, ..IdempotencyIndex::default() };
        let idempotency = |n: u64| {
            let mut key = [0; 16];
            key[..8].copy_from_slice(&n.to_be_bytes());
            Idempotency { key, content: [0; 16] }
        };
        let mut last = 0;
        let mut send = |idempotency_index: &mut IdempotencyIndex<char>, endpoint, count: u64| {
            let mut forgotten = vec![];
            for _ in 0..count {
                last += 1;
                forgotten.extend(idempotency_index.insert(
                    endpoint,
                    idempotency(last).key,
                    first(last, last),
                ));
            }
            forgotten
        };
        assert_eq!(send(&mut idempotency_index, 'a', 30), []);
        assert_eq!(
            send(&mut idempotency_index, 'b', 70),
            [],
            "one endpoint may use what others do not"
        );
        let forgotten = send(&mut idempotency_index, 'b', 1_000);
        assert_eq!(forgotten[0], Dropped::Only(31));
        assert!((1..=30).all(|n| idempotency_index.find(&'a', idempotency(n)).is_some()));
        assert_eq!(idempotency_index.by_key.len(), 100);
        // With as many endpoints as there are, each keeps an equal part.
        for endpoint in ['c', 'd', 'e'] {
            send(&mut idempotency_index, endpoint, 1_000);
        }
        let counts: Vec<_> = idempotency_index.counts.iter().map(|(count, _)| *count).collect();
        assert_eq!(counts, [20; 5]);
        assert!(
            (11..=30).all(|n| idempotency_index.find(&'a', idempotency(n)).is_some()),
            "its newest"
        );
        // The oldest of all is the oldest of the first endpoint: what is lower is forgotten.
        assert_eq!(idempotency_index.no_record_up_to(9_999), 10);
        assert_eq!(idempotency_index.next(), Timestamp::from_millis(KEY_LIFETIME_MS + 11));
        assert!(idempotency_index.forget_endpoint(&'a', last) > 1_000);
        assert_eq!(idempotency_index.expire(Timestamp::NEVER), Some(last));
        assert!(idempotency_index.by_endpoint.is_empty() && idempotency_index.by_key.is_empty());
        assert!(idempotency_index.oldest.is_empty() && idempotency_index.counts.is_empty());
    }
}
