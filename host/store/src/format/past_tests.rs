//! Past attempts by properties: bounds, sums, any bytes; and the bytes of one attempt on disk.

use proptest::prelude::*;

use super::*;

fn any_attempt() -> impl Strategy<Value = PastAttempt> {
    // Times up to the year 10889, beyond which a sum could overflow.
    let ms = || 0..1_u64 << 47;
    (ms(), ms(), ms(), 0..RequeueCause::ALL.len(), prop::option::of(".{0,9}")).prop_map(
        |(queued_at, waited_ms, ran_ms, end, error)| {
            let end = end_code(RequeueCause::ALL[end]);
            PastImage { queued_at, waited_ms, ran_ms, end, error }.attempt().unwrap()
        },
    )
}

fn any_retry() -> impl Strategy<Value = JobRetry> {
    any::<(Option<RuleImage>, u32, bool)>().prop_map(|(rule, failures, is_exhausted)| JobRetry {
        rule: rule.map(rule_of),
        failures,
        is_exhausted,
    })
}

fn any_usage() -> impl Strategy<Value = JobUsage> {
    any::<([u64; 9], u64)>().prop_map(|(billed, egress_bytes)| used(billed, egress_bytes))
}

fn used(billed: [u64; 9], egress_bytes: u64) -> JobUsage {
    UsedImage { billed, egress_bytes }.usage()
}

proptest! {
    #[test]
    fn the_newest_attempts_are_kept_and_all_usage(
        attempts in prop::collection::vec((any_attempt(), any_usage()), 0..2 * PAST_ATTEMPTS_MAX),
    ) {
        let (mut list, mut sum) = (PastAttempts::default(), JobUsage::default());
        for (attempt, used) in &attempts {
            list = list.with_usage(used).with(attempt.clone());
            sum.add(used);
        }
        let newest = &attempts[attempts.len().saturating_sub(PAST_ATTEMPTS_MAX)..];
        let newest: Vec<_> = newest.iter().map(|(attempt, _)| attempt.clone()).collect();
        prop_assert!(!list.has_shortened_ttl());
        prop_assert_eq!(list.read(), (newest, sum));
        prop_assert_eq!(&PastAttempts::of(list.bytes()).unwrap(), &list);
        let shortened = list.with_shortened_ttl();
        prop_assert_eq!(shortened.read(), list.read());
        prop_assert!(PastAttempts::of(shortened.bytes()).unwrap().has_shortened_ttl());
    }

    #[test]
    fn notes_stay(ended in any_attempt(), used in any_usage(), retry in any_retry()) {
        let list = PastAttempts::default().with_shortened_ttl().with_retry(retry);
        let list = list.with(ended).with_usage(&used);
        prop_assert!(list.has_shortened_ttl());
        prop_assert_eq!(PastAttempts::of(list.bytes()).unwrap().retry(), retry);
    }

    #[test]
    fn other_bytes_are_refused_or_a_list(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Ok(list) = PastAttempts::of(Some(&bytes)) {
            prop_assert_eq!(decode(&bytes).unwrap(), list.content());
        }
    }
}

/// The same bytes must be read by all later versions.
#[test]
fn an_attempt_has_the_bytes_that_are_on_disk() {
    let at = Timestamp::from_millis;
    let attempt = PastAttempt {
        queued_at: at(1_000),
        started_at: at(1_300),
        ended_at: at(1_301),
        end: RequeueCause::HostLost,
        error: None,
    };
    let list = PastAttempts::default().with(attempt);
    let bytes = [0x81, 0x81, 0x84, 0x19, 3, 0xe8, 0x19, 1, 0x2c, 1, 3];
    assert_eq!(list.bytes().unwrap(), bytes);
    let unknown = [&bytes[..10], &[u8::try_from(RequeueCause::ALL.len()).unwrap()]].concat();
    assert!(PastAttempts::of(Some(&unknown)).is_err(), "an unknown end");
    let used = used([1, 2, 3, 4, 5, 6, 7, 8, 9], 10);
    let first = PastAttempts::default().with_usage(&used);
    let sum = [0x82, 0x89, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    assert_eq!(first.bytes().unwrap(), [&[0x82, 0x80][..], &sum].concat());
    let all = list.with_usage(&used).with_shortened_ttl();
    assert_eq!(all.bytes().unwrap(), [&[0x83][..], &bytes[1..], &sum, &[0xf5]].concat());
    let noted = PastAttempts::default().with_shortened_ttl();
    assert_eq!(noted.bytes().unwrap(), [0x83, 0x80, 0xf6, 0xf5]);
    let rule = Retry { max_attempts: 3, timeouts: true, ..Retry::default() };
    let retry = JobRetry { rule: Some(rule), failures: 1, is_exhausted: true };
    let rule = [0x87, 3, 0x19, 3, 0xe8, 0x1a, 0, 4, 0x93, 0xe0, 2, 20, 0xf5, 0xf4];
    let expected = [&[0x86, 0x80, 0xf6, 0xf4][..], &rule, &[1, 0xf5]].concat();
    assert_eq!(PastAttempts::default().with_retry(retry).bytes().unwrap(), expected);
    assert!(
        PastAttempts::of(Some(&[0x82, 0x80, 0x81, 0x88, 1, 2, 3, 4, 5, 6, 7, 8])).is_err(),
        "too few"
    );
}
