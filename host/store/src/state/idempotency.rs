//! Idempotency records: the submissions by which duplicates are recognised.
//!
//! **Bounds.** [`KEYS_MAX`] of about 150 bytes. At the bound the owner that has the most loses the
//! oldest of its fullest endpoint: an owner with at most an equal part of them loses none, however
//! many others send, and neither does an endpoint with at most an equal part of its owner's. After
//! [`KEY_LIFETIME_MS`] each is forgotten. **A wrong clock.** Records end in the order of their
//! numbers. A record that was made while the clock was ahead therefore counts as made when the
//! clock was seen to be right again, with all records up to the newest: they end after another
//! [`KEY_LIFETIME_MS`]. **Cost.** A lookup is one in a hash map of endpoints and one in an ordered
//! map of keys; remembering and forgetting also change two entries of ordered sets. An endpoint is
//! forgotten in one step, whatever the number of its records.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

use gristmill_core::id::JobId;
use gristmill_core::job::idempotency::{Idempotency, KEY_LIFETIME_MS, KEYS_MAX};
use gristmill_core::store::SubmitAnswer;
use gristmill_core::time::Timestamp;

/// Records by endpoint `E` and key. Each endpoint has an owner `O`.
#[derive(Debug)]
pub(crate) struct IdempotencyIndex<E, O> {
    /// Never empty ones.
    endpoints: HashMap<E, EndpointRecords<O>>,
    /// Never empty ones.
    owners: HashMap<O, OwnerRecords<E>>,
    /// The number of each endpoint's oldest.
    oldest: BTreeSet<(u64, E)>,
    /// How many each owner has.
    counts: BTreeSet<(usize, O)>,
    len: usize,
    keys_max: usize,
    /// The highest number of a record that there was.
    last: u64,
    /// Records up to this number count as made at this time at the latest: some were made while the
    /// clock was ahead.
    made_by: (u64, Timestamp),
}

/// The records of an endpoint.
#[derive(Debug)]
struct EndpointRecords<O> {
    owner: O,
    /// Ordered: a hash table of a million records stops all callers for half a second when it
    /// grows.
    by_key: BTreeMap<[u8; 16], IdempotencyRecord>,
    /// The keys with their numbers, oldest first: all live equally long.
    keys: VecDeque<(u64, [u8; 16])>,
}

/// How many records an owner has.
#[derive(Debug)]
struct OwnerRecords<E> {
    len: usize,
    /// How many each endpoint has.
    counts: BTreeSet<(usize, E)>,
}

/// The records of a deleted endpoint, to be dropped without any lock: a million of them take a
/// tenth of a second.
#[derive(Debug)]
#[must_use]
pub(crate) struct ForgottenRecords<O>(Option<EndpointRecords<O>>);

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

impl<E, O> Default for IdempotencyIndex<E, O> {
    fn default() -> Self {
        Self {
            endpoints: HashMap::new(),
            owners: HashMap::new(),
            oldest: BTreeSet::new(),
            counts: BTreeSet::new(),
            len: 0,
            keys_max: KEYS_MAX,
            last: 0,
            made_by: (0, Timestamp::NEVER),
        }
    }
}

impl<E: Clone + Hash + Ord, O: Clone + Hash + Ord> IdempotencyIndex<E, O> {
    /// What to answer to a submission that came before; `None` when it is new.
    pub(crate) fn find(&self, endpoint: &E, idempotency: Idempotency) -> Option<SubmitAnswer> {
        let first = self.endpoints.get(endpoint)?.by_key.get(&idempotency.key)?;
        Some(if first.content == idempotency.content {
            SubmitAnswer::Repeated(first.job)
        } else {
            SubmitAnswer::KeyReused
        })
    }

    /// Remembers what [`find`](Self::find) did not know. Numbers grow from call to call. `owner` is
    /// asked for the owner of an endpoint without records. Returns what is forgotten for it.
    pub(crate) fn insert(
        &mut self,
        endpoint: &E,
        owner: impl FnOnce() -> O,
        key: [u8; 16],
        first: IdempotencyRecord,
    ) -> Option<Dropped> {
        let records = self.endpoints.entry(endpoint.clone()).or_insert_with(|| EndpointRecords {
            owner: owner(),
            by_key: BTreeMap::new(),
            keys: VecDeque::new(),
        });
        self.last = self.last.max(first.seq);
        records.by_key.insert(key, first);
        records.keys.push_back((first.seq, key));
        let (owner, len) = (records.owner.clone(), records.keys.len());
        if len == 1 {
            self.oldest.insert((first.seq, endpoint.clone()));
        }
        self.recount(&owner, endpoint, len - 1, len);
        if self.len <= self.keys_max {
            return None;
        }
        let (_, largest) = self.counts.last()?;
        let (_, fullest) = self.owners.get(largest)?.counts.last()?.clone();
        let seq = self.forget_oldest_of(&fullest)?;
        let is_oldest = self.oldest.first().is_none_or(|(oldest, _)| seq < *oldest);
        Some(if is_oldest { Dropped::UpTo(seq) } else { Dropped::Only(seq) })
    }

    /// Forgets what has been remembered for long enough, at most `count_max` of it, and returns the
    /// number up to which everything is forgotten, if that has changed. Afterwards the oldest
    /// record ends at most [`KEY_LIFETIME_MS`] after `now`.
    pub(crate) fn expire(&mut self, now: Timestamp, count_max: usize) -> Option<u64> {
        let mut last = None;
        for _ in 0..count_max {
            let Some((_, endpoint)) = self.oldest.first().cloned() else { break };
            if self.next() > now {
                break;
            }
            last = self.forget_oldest_of(&endpoint);
        }
        if self.oldest_made_at().is_some_and(|at| at > now) {
            self.made_by = (self.last, now);
        }
        last
    }

    /// The time of the next removal; [`Timestamp::NEVER`] when there are no records.
    pub(crate) fn next(&self) -> Timestamp {
        self.oldest_made_at().map_or(Timestamp::NEVER, |at| at.plus_millis(KEY_LIFETIME_MS))
    }

    /// When the oldest record was made, as it counts for its end.
    fn oldest_made_at(&self) -> Option<Timestamp> {
        let (_, endpoint) = self.oldest.first()?;
        let EndpointRecords { by_key, keys, .. } = self.endpoints.get(endpoint)?;
        let first = by_key.get(&keys.front()?.1)?;
        let (up_to, made_by) = self.made_by;
        Some(if first.seq <= up_to { first.at.min(made_by) } else { first.at })
    }

    /// Forgets all of an endpoint that is deleted. Returns its records, and the number up to which
    /// nothing is remembered any more; `last` is the highest that there is.
    pub(crate) fn forget_endpoint(
        &mut self,
        endpoint: &E,
        last: u64,
    ) -> (ForgottenRecords<O>, u64) {
        let records = self.endpoints.remove(endpoint);
        if let Some(EndpointRecords { owner, keys, .. }) = &records {
            if let Some((seq, _)) = keys.front() {
                self.oldest.remove(&(*seq, endpoint.clone()));
            }
            self.recount(owner, endpoint, keys.len(), 0);
        }
        (ForgottenRecords(records), self.no_record_up_to(last))
    }

    /// The number up to which no records are left; `last` is the highest existing number.
    pub(crate) fn no_record_up_to(&self, last: u64) -> u64 {
        self.oldest.first().map_or(last, |(seq, _)| seq - 1)
    }

    /// How many records the owner has.
    #[cfg(test)]
    pub(crate) fn len_of(&self, owner: &O) -> usize {
        self.owners.get(owner).map_or(0, |of_owner| of_owner.len)
    }

    /// Forgets the oldest of an endpoint, and returns its number.
    fn forget_oldest_of(&mut self, endpoint: &E) -> Option<u64> {
        let records = self.endpoints.get_mut(endpoint)?;
        let (seq, key) = records.keys.pop_front()?;
        records.by_key.remove(&key);
        let (owner, left) = (records.owner.clone(), records.keys.len());
        self.oldest.remove(&(seq, endpoint.clone()));
        match records.keys.front() {
            Some((next, _)) => drop(self.oldest.insert((*next, endpoint.clone()))),
            None => drop(self.endpoints.remove(endpoint)),
        }
        self.recount(&owner, endpoint, left + 1, left);
        Some(seq)
    }

    /// Notes that the endpoint has `after` records instead of `before`.
    fn recount(&mut self, owner: &O, endpoint: &E, before: usize, after: usize) {
        let of_owner = self
            .owners
            .entry(owner.clone())
            .or_insert_with(|| OwnerRecords { len: 0, counts: BTreeSet::new() });
        recount(&mut of_owner.counts, endpoint, before, after);
        let of_owner_before = of_owner.len;
        of_owner.len = of_owner_before + after - before;
        let of_owner_after = of_owner.len;
        if of_owner_after == 0 {
            self.owners.remove(owner);
        }
        recount(&mut self.counts, owner, of_owner_before, of_owner_after);
        self.len = self.len + after - before;
    }
}

/// Replaces a count in an ordered set, which has none of 0.
fn recount<T: Clone + Ord>(counts: &mut BTreeSet<(usize, T)>, of: &T, before: usize, after: usize) {
    counts.remove(&(before, of.clone()));
    if after > 0 {
        counts.insert((after, of.clone()));
    }
}

#[cfg(test)]
#[path = "idempotency_tests.rs"]
mod tests;
