//! Waits for the next known time of a task that also listens for earlier ones.

use gristmill_core::time::{Clock, Timestamp};

/// Longest sleep before a known time, in milliseconds: the clock may be set.
pub(crate) const SLEEP_MS_MAX: u64 = 250;

/// Waits until `next`, but no longer than [`SLEEP_MS_MAX`]; for ever if there is no next time.
pub(crate) async fn at(clock: &dyn Clock, next: Timestamp) {
    match next {
        Timestamp::NEVER => std::future::pending().await,
        next => clock.sleep_until(next.min(clock.now().plus_millis(SLEEP_MS_MAX))).await,
    }
}
