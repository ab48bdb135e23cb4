//! Records at their bounds and lifetimes: who loses which, by cases and for any submissions.

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
