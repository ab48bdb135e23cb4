//! The rate by cases, and by properties for any pattern of calls and any change of the limit.

use proptest::prelude::*;

use super::*;

const START: Duration = Duration::from_secs(1_000);

fn admits(rate: &mut CallRate, now: Duration, limit: u32) -> bool {
    rate.admit(now, limit, 0).is_ok()
}

#[test]
fn from_cold_exactly_the_limit_is_admitted() {
    let mut rate = CallRate::default();
    let count = (0..2_001).filter(|_| admits(&mut rate, START, 2_000)).count();
    assert_eq!(count, 2_000);
}

#[test]
fn the_documented_pace_is_never_refused() {
    for limit in [1, 2, 3, 7, 10, 100, 2_000] {
        let mut rate = CallRate::default();
        for call in 0..5 * limit {
            let now = START + RateLimit::WINDOW * call / limit;
            // A client's clock has microseconds, and rounds up.
            let now = Duration::from_micros(u64::try_from(now.as_nanos().div_ceil(1_000)).unwrap());
            assert!(admits(&mut rate, now, limit), "{call} of {limit} in ten seconds");
        }
    }
}

#[test]
fn a_higher_limit_counts_at_once_and_a_lower_one_too() {
    let mut rate = CallRate::default();
    assert!(admits(&mut rate, START, 2));
    assert!(admits(&mut rate, START, 2));
    assert!(!admits(&mut rate, START, 2));
    assert!(admits(&mut rate, START, 3), "the third of three");
    assert!(!admits(&mut rate, START, 3));
    assert!(!admits(&mut rate, START, 2));
    assert!(admits(&mut rate, START, 1_000));
    assert!(!admits(&mut rate, START, 4), "four calls count");
    assert!(admits(&mut rate, START, 6));
}

#[test]
fn calls_that_are_kept_for_others_are_not_admitted() {
    let mut rate = CallRate::default();
    let count = (0..100).filter(|_| rate.admit(START, 10, 4).is_ok()).count();
    assert_eq!(count, 6);
    let count = (0..100).filter(|_| rate.admit(START, 10, 0).is_ok()).count();
    assert_eq!(count, 4);
    assert_eq!(rate.admit(START, 10, 10), Err(RetryAfter(RateLimit::WINDOW)));
    assert_eq!(rate.admit(START, 0, 0), Err(RetryAfter(RateLimit::WINDOW)));
}

#[test]
fn a_rate_is_idle_when_nothing_counts() {
    let mut rate = CallRate::default();
    assert!(rate.is_idle(START));
    assert!(admits(&mut rate, START, 1));
    assert!(!rate.is_idle(START + RateLimit::WINDOW - Duration::from_nanos(1)));
    assert!(rate.is_idle(START + RateLimit::WINDOW));
    assert!(admits(&mut rate, START + RateLimit::WINDOW, u32::MAX), "the greatest limit");
}

proptest! {
    /// For any pattern of calls: the limit at once and its pace are never exceeded, and a
    /// caller that waits for `RetryAfter` is admitted.
    #[test]
    fn never_too_many_and_the_wait_is_true(
        gaps in prop::collection::vec(0_u64..1_500, 1..300),
        limit in 1_u32..40,
    ) {
        let mut rate = CallRate::default();
        let mut now = START;
        let mut times = vec![];
        for gap in gaps {
            now += Duration::from_millis(gap);
            match rate.admit(now, limit, 0) {
                Ok(()) => times.push(now),
                Err(RetryAfter(wait)) => {
                    prop_assert!(wait <= RateLimit::WINDOW);
                    let early = wait.checked_sub(Duration::from_nanos(1)).unwrap();
                    prop_assert!(rate.admit(now + early, limit, 0).is_err());
                    let state = rate.counts_until.get();
                    prop_assert!(rate.admit(now + wait, limit, 0).is_ok());
                    rate.counts_until.set(state);
                }
            }
        }
        for (i, start) in times.iter().enumerate() {
            for (more, end) in times[i..].iter().enumerate() {
                let paced = (*end - *start).as_nanos() * u128::from(limit) / RateLimit::WINDOW.as_nanos();
                prop_assert!(more as u128 <= u128::from(limit) + paced);
            }
        }
    }

    /// Limits that change back and forth lose no call that counts.
    #[test]
    fn a_limit_that_changes_forgets_nothing(limits in prop::collection::vec(1_u32..5_000, 1..50)) {
        let mut rate = CallRate::default();
        let calls = 100;
        for _ in 0..calls {
            prop_assert!(admits(&mut rate, START, 200));
        }
        for limit in limits {
            rate.count_for(RateLimit::WINDOW / limit, START);
        }
        let left = (0..1_000).filter(|_| admits(&mut rate, START, 200)).count();
        prop_assert_eq!(left, 100);
    }
}
