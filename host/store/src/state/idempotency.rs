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
mod tests {
    use gristmill_core::id::{ShardId, SubmissionKind};
    use proptest::prelude::*;

    use super::*;

    type Records = IdempotencyIndex<char, char>;

    fn records(keys_max: usize) -> Records {
        IdempotencyIndex { keys_max, ..IdempotencyIndex::default() }
    }

    fn first(seq: u64, at: u64) -> IdempotencyRecord {
        let job = JobId::generate(SubmissionKind::Async, ShardId(1));
        IdempotencyRecord { seq, job, content: [0; 16], at: Timestamp::from_millis(at) }
    }

    fn idempotency(n: u64) -> Idempotency {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&n.to_be_bytes());
        Idempotency { key, content: [0; 16] }
    }

    /// The numbers of the keys that are found.
    fn found(records: &Records, endpoint: char, mut numbers: std::ops::Range<u64>) -> usize {
        let is_found = |n: u64| records.find(&endpoint, idempotency(n)).is_some();
        numbers.by_ref().filter(|n| is_found(*n)).count()
    }

    /// Sends so many keys to an endpoint of an owner, and returns the records that were dropped.
    fn send(records: &mut Records, last: &mut u64, to: (char, char), count: u64) -> Vec<Dropped> {
        let mut dropped = vec![];
        for _ in 0..count {
            *last += 1;
            let (owner, endpoint) = to;
            let record = first(*last, *last);
            dropped.extend(records.insert(&endpoint, || owner, idempotency(*last).key, record));
        }
        dropped
    }

    #[test]
    fn the_oldest_record_is_dropped_at_the_bound_and_after_its_lifetime() {
        let mut records = records(2);
        let idempotency = |n| Idempotency { key: [n; 16], content: [0; 16] };
        assert_eq!(records.next(), Timestamp::NEVER);
        assert_eq!(records.insert(&'e', || 'o', [1; 16], first(1, 0)), None);
        assert_eq!(records.insert(&'e', || 'o', [2; 16], first(2, 5)), None);
        let dropped = records.insert(&'f', || 'o', [2; 16], first(3, 9));
        assert_eq!(dropped, Some(Dropped::UpTo(1)));
        assert_eq!(records.find(&'e', idempotency(1)), None);
        assert!(matches!(records.find(&'e', idempotency(2)), Some(SubmitAnswer::Repeated(_))));
        let other = Idempotency { content: [7; 16], ..idempotency(2) };
        assert_eq!(records.find(&'f', other), Some(SubmitAnswer::KeyReused));
        let expire = |records: &mut Records, late| {
            records.expire(Timestamp::from_millis(KEY_LIFETIME_MS + late), 100)
        };
        assert_eq!(expire(&mut records, 4), None);
        assert_eq!(expire(&mut records, 5), Some(2));
        assert_eq!(records.next(), Timestamp::from_millis(KEY_LIFETIME_MS + 9));
    }

    #[test]
    fn records_of_a_clock_that_was_ahead_end_with_those_that_follow() {
        let mut records = records(100);
        let expire = |records: &mut Records, at| records.expire(Timestamp::from_millis(at), 100);
        let far = 9 * KEY_LIFETIME_MS;
        for (seq, at) in [(1, 3), (2, far), (3, far + 1), (4, 5)] {
            let key = idempotency(seq).key;
            assert_eq!(records.insert(&'e', || 'o', key, first(seq, at)), None);
        }
        assert_eq!(expire(&mut records, 10), None);
        assert_eq!(expire(&mut records, KEY_LIFETIME_MS + 3), Some(1));
        assert_eq!(records.next(), Timestamp::from_millis(2 * KEY_LIFETIME_MS + 3));
        // Records that are made later keep their own time.
        let key = idempotency(5).key;
        let next = first(5, 2 * KEY_LIFETIME_MS);
        assert_eq!(records.insert(&'f', || 'o', key, next), None);
        assert_eq!(expire(&mut records, 2 * KEY_LIFETIME_MS + 2), None);
        assert_eq!(expire(&mut records, 2 * KEY_LIFETIME_MS + 3), Some(4), "all at one time");
        assert_eq!(records.next(), Timestamp::from_millis(3 * KEY_LIFETIME_MS));
        // The clock may be ahead again.
        let key = idempotency(6).key;
        assert_eq!(records.insert(&'f', || 'o', key, first(6, 2 * far)), None);
        assert_eq!(expire(&mut records, 3 * KEY_LIFETIME_MS), Some(5));
        assert_eq!(expire(&mut records, 4 * KEY_LIFETIME_MS), Some(6));
        assert_is_empty(&records);
    }

    #[test]
    fn records_expire_in_bounded_steps() {
        let (mut records, mut last) = (records(100), 0);
        send(&mut records, &mut last, ('o', 'e'), 10);
        let late = Timestamp::from_millis(u64::MAX / 2);
        assert_eq!(records.expire(late, 4), Some(4));
        assert!(records.next() < late, "the caller comes again at once");
        assert_eq!(records.expire(late, 100), Some(10));
        assert_eq!((records.expire(late, 100), records.next()), (None, Timestamp::NEVER));
    }

    #[test]
    fn the_endpoint_with_the_most_records_loses_its_own_first() {
        let (mut records, mut last) = (records(100), 0);
        assert_eq!(send(&mut records, &mut last, ('o', 'a'), 30), []);
        let dropped = send(&mut records, &mut last, ('o', 'b'), 70);
        assert_eq!(dropped, [], "one endpoint may use what others do not");
        let dropped = send(&mut records, &mut last, ('o', 'b'), 1_000);
        assert_eq!(dropped[0], Dropped::Only(31));
        assert_eq!(found(&records, 'a', 1..31), 30);
        assert_eq!(records.len, 100);
        // With as many endpoints as there are, each keeps an equal part.
        for endpoint in ['c', 'd', 'e'] {
            send(&mut records, &mut last, ('o', endpoint), 1_000);
        }
        let counts: Vec<_> = records.owners[&'o'].counts.iter().map(|(count, _)| *count).collect();
        assert_eq!(counts, [20; 5]);
        assert_eq!(found(&records, 'a', 11..31), 20, "its newest");
        // The oldest of all is the oldest of the first endpoint: what is lower is forgotten.
        assert_eq!(records.no_record_up_to(9_999), 10);
        assert_eq!(records.next(), Timestamp::from_millis(KEY_LIFETIME_MS + 11));
        assert!(records.forget_endpoint(&'a', last).1 > 1_000);
        assert_eq!(records.expire(Timestamp::NEVER, usize::MAX), Some(last));
        assert_is_empty(&records);
    }

    #[test]
    fn an_owner_with_many_endpoints_pushes_out_its_own_records() {
        let (mut records, mut last) = (records(1_000), 0);
        assert_eq!(send(&mut records, &mut last, ('m', 'm'), 400), []);
        // 26 endpoints of one owner send ten times as much as there is room for.
        for endpoint in ('A'..='Z').cycle().take(260) {
            let dropped = send(&mut records, &mut last, ('g', endpoint), 40);
            assert!(!dropped.iter().any(|dropped| matches!(dropped, Dropped::UpTo(_))));
        }
        assert_eq!(found(&records, 'm', 1..401), 400, "less than an equal part");
        assert_eq!((records.owners[&'g'].len, records.len), (600, 1_000));
        let counts = &records.owners[&'g'].counts;
        assert!(counts.iter().all(|(count, _)| (23..=24).contains(count)), "{counts:?}");
        // Beyond an equal part of the owners, an owner loses its own oldest.
        send(&mut records, &mut last, ('m', 'm'), 400);
        assert_eq!((records.owners[&'m'].len, found(&records, 'm', 1..301)), (500, 0));
        // The same name can be created again, by another owner.
        let (_forgotten, _) = records.forget_endpoint(&'m', last);
        assert_eq!(found(&records, 'm', 1..last), 0);
        send(&mut records, &mut last, ('g', 'm'), 1);
        assert_eq!((records.owners.len(), records.len), (1, 501));
    }

    fn assert_is_empty(records: &Records) {
        assert!(records.endpoints.is_empty() && records.owners.is_empty());
        assert!(records.oldest.is_empty() && records.counts.is_empty() && records.len == 0);
    }

    proptest! {
        /// For any submissions: the bound holds, all counts are those of the keys, and an owner
        /// that never had more than an equal part of the records has lost none.
        #[test]
        fn an_owner_with_an_equal_part_loses_none(
            sent in prop::collection::vec((0..3_usize, 0..4_usize), 1..300),
            forgotten in prop::option::of(0..12_u32),
        ) {
            const KEYS_MAX: usize = 30;
            let (mut records, mut last) = (records(KEYS_MAX), 0);
            let mut all: Vec<Vec<(char, u64)>> = vec![vec![]; 3];
            for (owner, endpoint) in sent {
                let name = char::from(b'a' + u8::try_from(owner * 4 + endpoint).unwrap());
                send(&mut records, &mut last, (char::from(b'0' + u8::try_from(owner).unwrap()), name), 1);
                all[owner].push((name, last));
                prop_assert!(records.len <= KEYS_MAX);
                for of_owner in all.iter().filter(|of_owner| of_owner.len() <= KEYS_MAX / 3) {
                    let lost = of_owner.iter().filter(|(name, n)| found(&records, *name, *n..n + 1) == 0);
                    prop_assert_eq!(lost.count(), 0);
                }
            }
            if let Some(forgotten) = forgotten {
                let name = char::from(b'a' + u8::try_from(forgotten).unwrap());
                let (_records, _) = records.forget_endpoint(&name, last);
                let sent = all.iter().flatten().filter(|(sent_to, _)| *sent_to == name);
                let left = sent.filter(|(_, n)| found(&records, name, *n..n + 1) > 0);
                prop_assert_eq!(left.count(), 0);
            }
            let keys: usize = records.endpoints.values().map(|of| of.keys.len()).sum();
            let by_owner: usize = records.counts.iter().map(|(count, _)| count).sum();
            prop_assert_eq!((keys, by_owner), (records.len, records.len));
            prop_assert_eq!(records.oldest.len(), records.endpoints.len());
            records.expire(Timestamp::NEVER, usize::MAX);
            assert_is_empty(&records);
        }
    }
}
