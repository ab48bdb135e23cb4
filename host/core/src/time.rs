//! The platform's time: milliseconds since the Unix epoch, read through a [`Clock`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// A point in time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// A time so late that it never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time `ms` milliseconds after the Unix epoch.
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// This time, `ms` milliseconds later.
    #[must_use]
    pub const fn plus_millis(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this time; 0 when `earlier` is later.
    pub const fn millis_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The source of the platform's time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// The time since a moment before the first call, by a monotonic clock that ignores changes of
    /// the wall clock. For intervals of seconds.
    fn elapsed(&self) -> Duration;

    /// Completes when the clock shows `at` or later.
    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()>;

    /// Completes when [`elapsed`](Self::elapsed) is `at` or later, or after a day; callers loop.
    fn sleep_until_elapsed(&self, at: Duration) -> BoxFuture<'static, ()> {
        // A day, so that a far deadline cannot overflow the timer.
        let time = at.saturating_sub(self.elapsed()).min(SLEEP_MAX);
        Box::pin(tokio::time::sleep(time))
    }
}

/// Longest sleep: a day.
const SLEEP_MAX: Duration = Duration::from_secs(86_400);

/// The machine's wall clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the clock that all others stand for")]
    fn now(&self) -> Timestamp {
        let since_epoch =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
    }

    fn elapsed(&self) -> Duration {
        static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
        BEGUN.elapsed()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let ms = at.millis_since(self.now());
        self.sleep_until_elapsed(self.elapsed().saturating_add(Duration::from_millis(ms)))
    }
}

/// A clock that only a test moves.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<ManualState>,
}

#[derive(Debug)]
struct ManualState {
    /// The value of [`Clock::elapsed`] in milliseconds: time that passes without jumps.
    elapsed_ms: u64,
    /// Milliseconds by which the wall clock is ahead of `elapsed_ms`.
    ahead_ms: i64,
    /// The sleepers by the elapsed time at which they wake.
    sleepers: BTreeMap<(u64, u64), oneshot::Sender<()>>,
    sleepers_made: u64,
}

impl ManualState {
    fn now(&self) -> Timestamp {
        Timestamp(self.elapsed_ms.saturating_add_signed(self.ahead_ms))
    }

    fn sleep_until(&mut self, elapsed_ms: u64) -> BoxFuture<'static, ()> {
        if elapsed_ms <= self.elapsed_ms {
            return Box::pin(std::future::ready(()));
        }
        let (wake, woken) = oneshot::channel();
        self.sleepers_made += 1;
        self.sleepers.insert((elapsed_ms, self.sleepers_made), wake);
        Box::pin(async move {
            let _ = woken.await;
        })
    }
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: Mutex::new(ManualState {
                elapsed_ms: now.0,
                ahead_ms: 0,
                sleepers: BTreeMap::new(),
                sleepers_made: 0,
            }),
        }
    }

    /// Lets `ms` milliseconds pass, and wakes the sleepers whose time is over.
    pub fn advance(&self, ms: u64) {
        let mut state = self.state.lock();
        state.elapsed_ms = state.elapsed_ms.saturating_add(ms);
        let after_now = (state.elapsed_ms.saturating_add(1), 0);
        let later = state.sleepers.split_off(&after_now);
        for (_, sleeper) in std::mem::replace(&mut state.sleepers, later) {
            // A sleeper that was dropped needs no wake-up.
            let _ = sleeper.send(());
        }
    }

    /// Sets the wall clock ahead by `ms` milliseconds, or back, while no time passes. Sleepers
    /// sleep on, as they do with the machine's clock.
    pub fn jump(&self, ms: i64) {
        let mut state = self.state.lock();
        state.ahead_ms = state.ahead_ms.saturating_add(ms);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.state.lock().now()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.state.lock().elapsed_ms)
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let mut state = self.state.lock();
        let wakes_at = state.elapsed_ms.saturating_add(at.millis_since(state.now()));
        state.sleep_until(wakes_at)
    }

    fn sleep_until_elapsed(&self, at: Duration) -> BoxFuture<'static, ()> {
        let at = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        self.state.lock().sleep_until(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_manual_clock_wakes_exactly_the_sleepers_that_are_due() {
        let clock = ManualClock::new(Timestamp::from_millis(1_000));
        let due = clock.sleep_until(Timestamp::from_millis(1_500));
        let mut later = clock.sleep_until(Timestamp::from_millis(1_501));
        clock.advance(500);
        due.await;
        assert!(futures::poll!(&mut later).is_pending());
        clock.advance(1);
        later.await;
    }
    #[tokio::test]
    async fn a_jump_of_the_wall_clock_wakes_no_sleeper() {
        let clock = ManualClock::new(Timestamp::from_millis(1_000));
        let mut sleep = clock.sleep_until(Timestamp::from_millis(1_500));
        for (ms, shown) in [(10_000, 11_000), (-10_500, 500)] {
            clock.jump(ms);
            assert_eq!(clock.now(), Timestamp::from_millis(shown));
            assert_eq!(clock.elapsed(), Duration::from_secs(1));
            assert!(futures::poll!(&mut sleep).is_pending());
        }
        clock.advance(500);
        sleep.await;
    }
}
