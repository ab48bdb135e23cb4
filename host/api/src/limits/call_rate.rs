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
#[path = "call_rate_tests.rs"]
mod tests;
