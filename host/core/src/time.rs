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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
}

/// The machine's wall clock.
#[derive(Debug, Default, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
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
        // A day at most, so that a far deadline cannot overflow the timer; callers loop.
        let ms = at.millis_since(self.now()).min(86_400_000);
        Box::pin(tokio::time::sleep(Duration::from_millis(ms)))
    }
}

/// A clock that only a test moves.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<ManualState>,
}

#[derive(Debug)]
struct ManualState {
    now: Timestamp,
    sleepers: BTreeMap<(Timestamp, u64), oneshot::Sender<()>>,
    sleepers_made: u64,
}

impl ManualClock {
    /// A clock that shows `now`.
    pub fn new(now: Timestamp) -> Self {
        Self { state: Mutex::new(ManualState { now, sleepers: BTreeMap::new(), sleepers_made: 0 }) }
    }

    /// Moves the clock by `ms` milliseconds and wakes the sleepers whose time has come.
    pub fn advance(&self, ms: u64) {
        let mut state = self.state.lock();
        state.now = state.now.plus_millis(ms);
        let after_now = (state.now.plus_millis(1), 0);
        let later = state.sleepers.split_off(&after_now);
        for (_, sleeper) in std::mem::replace(&mut state.sleepers, later) {
            // A sleeper that was dropped needs no wake-up.
            let _ = sleeper.send(());
        }
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.state.lock().now
    }

    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.now().as_millis())
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let mut state = self.state.lock();
        if at <= state.now {
            return Box::pin(std::future::ready(()));
        }
        let (wake, woken) = oneshot::channel();
        state.sleepers_made += 1;
        let key = (at, state.sleepers_made);
        state.sleepers.insert(key, wake);
        Box::pin(async move {
            let _ = woken.await;
        })
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
}
