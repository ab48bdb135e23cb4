//! Whether this host is still the active one, for answers that come from memory.
//!
//! Writes need no such check: the database refuses those of a host that was replaced. A host that
//! was paused or cut off still has its memory, and must not answer from it once another host may
//! have changed the jobs. It knows that by its own signs of life: no host takes a database over
//! while there was a sign of life within [`SILENCE_MIN`](super::observation::SILENCE_MIN), unless
//! the process has ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// For how long a confirmed sign of life counts. Shorter than the time after which another host
/// takes over, by more than the difference of two machines' clock rates.
pub(super) const CONFIRMED_FOR: Duration = Duration::from_secs(2);

/// The time of the newest confirmed sign of life, and whether the database accepts commits. Clones
/// show the same.
#[derive(Debug, Clone)]
pub struct ActiveState(Arc<Signs>);

#[derive(Debug, Default)]
struct Signs {
    confirmed_at: AtomicU64,
    /// A sign of life needs no space: it may succeed while no job can be written.
    refuses_commits: AtomicBool,
    /// The session ends in order, so another host may be active at any moment.
    is_over: AtomicBool,
}

impl ActiveState {
    /// The state of a host whose last confirmed sign of life is of this time.
    pub(crate) fn since(confirmed_at: BootTime) -> Self {
        let signs = Signs { confirmed_at: AtomicU64::new(confirmed_at.0), ..Signs::default() };
        Self(Arc::new(signs))
    }

    /// Records a confirmation that was requested at this time.
    pub(crate) fn confirm(&self, requested_at: BootTime) {
        self.0.confirmed_at.fetch_max(requested_at.0, Ordering::Relaxed);
    }

    /// The time since the newest confirmation.
    pub fn age(&self) -> Duration {
        let confirmed_at = self.0.confirmed_at.load(Ordering::Relaxed);
        Duration::from_millis(BootTime::now().0.saturating_sub(confirmed_at))
    }

    /// Whether the last commit was refused, as by a full disk: calls that wait for it may wait for
    /// long.
    pub fn refuses_commits(&self) -> bool {
        self.0.refuses_commits.load(Ordering::Relaxed)
    }

    pub(crate) fn set_refuses_commits(&self, refuses: bool) {
        self.0.refuses_commits.store(refuses, Ordering::Relaxed);
    }

    /// Records that the session is about to end. Signs of life count no more.
    pub(crate) fn end(&self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }

    /// Whether no other host can be active.
    pub fn is_confirmed(&self) -> bool {
        self.age() < CONFIRMED_FOR && !self.0.is_over.load(Ordering::Relaxed)
    }
}

/// Milliseconds of a clock that also runs while the machine is suspended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootTime(u64);

impl BootTime {
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
        Self(seconds * 1_000 + nanos / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confirmation_counts_from_its_request() {
        let now = BootTime::now();
        let before = BootTime(now.0 - 1_900);
        let active_state = ActiveState::since(BootTime(now.0 - 5_000));
        assert!(!active_state.is_confirmed());
        active_state.confirm(before);
        assert!(active_state.age() >= Duration::from_millis(1_900));
        active_state.confirm(now);
        assert!(active_state.is_confirmed());
        active_state.confirm(before);
        assert!(active_state.age() < Duration::from_millis(1_900), "the newest one counts");
    }

    #[test]
    fn a_host_whose_session_ends_is_confirmed_no_more() {
        let active_state = ActiveState::since(BootTime::now());
        assert!(active_state.is_confirmed());
        active_state.end();
        active_state.confirm(BootTime::now());
        assert!(!active_state.is_confirmed());
    }
}
