//! The calls of one subject in time, by the algorithm of [`governor`]: *N* calls at once, and then
//! *N* in ten seconds, evenly. A caller that keeps the documented pace is never refused; the calls
//! of ten seconds are at most 2*N* − 1.
//!
//! `governor` decides, and this module keeps its state: one number. The limit may change with each
//! call, because it grows with the running workers; the calls that count then count by the new one.
//!
//! **Cost.** 32 bytes for each subject; a few divisions for a call.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{NotKeyed, StateStore};
use governor::{Quota, RateLimiter};
use gristmill_wire::management::RateLimit;

/// The calls that count.
#[derive(Debug, Default)]
pub(super) struct CallRate {
    /// When no call counts any more, since the host's start. `None`: there was no call.
    counts_until: Cell<Option<Nanos>>,
    /// The time for which each of them counts.
    each: Duration,
}

/// The call is refused and does not count. After this time a call is admitted, if no other one
/// comes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RetryAfter(pub(super) Duration);

impl CallRate {
    /// Counts a call at `now`, since the host's start, unless fewer than `kept` + 1 of `limit`
    /// calls are left.
    ///
    /// # Errors
    /// [`RetryAfter`]; the whole ten seconds if the limit admits no call at all.
    pub(super) fn admit(&mut self, now: Duration, limit: u32, kept: u32) -> Result<(), RetryAfter> {
        let (Some(calls), Some(burst)) =
            (NonZeroU32::new(limit), NonZeroU32::new(limit.saturating_sub(kept)))
        else {
            return Err(RetryAfter(RateLimit::WINDOW));
        };
        let each = RateLimit::WINDOW / calls.get();
        self.count_for(each, now);
        let quota = Quota::with_period(each)
            .expect("ten seconds over 2^32 is more than a nanosecond")
            .allow_burst(burst);
        let state = State(&self.counts_until);
        let limiter = RateLimiter::<_, _, _, NoOpMiddleware<_>>::new(quota, state, Time::default());
        limiter.clock().0.set(now);
        limiter.check().map_err(|until| RetryAfter(until.wait_time_from(now)))
    }

    /// Whether no call counts any more.
    pub(super) fn is_idle(&self, now: Duration) -> bool {
        self.counts_until.get().is_none_or(|until| until <= Nanos::from(now))
    }

    /// Counts each call for another time from now on. The number of calls that count stays the
    /// same, but for the rounding by less than a nanosecond.
    fn count_for(&mut self, each: Duration, now: Duration) {
        let before = std::mem::replace(&mut self.each, each);
        if before == each {
            return;
        }
        if let Some(until) = self.counts_until.get() {
            let now = Nanos::from(now).as_u64();
            let left = u128::from(until.as_u64().saturating_sub(now));
            let left = left * each.as_nanos() / before.as_nanos().max(1);
            let until = now.saturating_add(u64::try_from(left).unwrap_or(u64::MAX));
            self.counts_until.set(Some(until.into()));
        }
    }
}

/// The state of `governor`.
struct State<'a>(&'a Cell<Option<Nanos>>);

impl StateStore for State<'_> {
    type Key = NotKeyed;

    fn measure_and_replace<T, F, E>(&self, _: &NotKeyed, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let (admitted, next) = decide(self.0.get())?;
        self.0.set(Some(next));
        Ok(admitted)
    }
}

/// The time of a call. `governor` counts from the time at which a limiter is made, so it is made at
/// zero.
#[derive(Debug, Default)]
struct Time(Cell<Duration>);

impl Clock for Time {
    type Instant = Duration;

    fn now(&self) -> Duration {
        self.0.get()
    }
}

#[cfg(test)]
mod tests {
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
                let now =
                    Duration::from_micros(u64::try_from(now.as_nanos().div_ceil(1_000)).unwrap());
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
}
