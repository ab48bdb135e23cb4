//! The host's clock: the machine's wall clock without its unconfirmed jumps.
//!
//! A job that is deleted because of a wrong clock does not come back when the clock is corrected. A
//! jump by more than a bound, in either direction, is therefore not followed until the kernel
//! reports that its clock is synchronised; meanwhile the host's time continues by the monotonic
//! clock. At a start the newest time in the store is the reference.
//!
//! Cost: a jump shows as a step of the wall clock, so the monotonic clock is read only when the
//! wall clock is more than a second from the last comparison of the two. Other queries cost two
//! loads more than the wall clock itself.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::anyhow;
use futures::future::BoxFuture;
use gristmill_core::time::{Clock, SystemClock, Timestamp};
use gristmill_store::OpenError;
use tracing::{error, warn};

/// Differences that are ignored, in milliseconds: the two clocks are read one after the other.
const JITTER_MS: u64 = 1_000;

/// Interval of the queries whether the machine's clock is synchronised, in milliseconds.
const RECHECK_MS: u64 = 1_000;

/// How long a start waits for the machine's clock to be synchronised: at boot this takes seconds
/// once there is a network.
const SYNC_WAIT: Duration = Duration::from_secs(60);

/// Interval of the checks of the clock meanwhile.
const RECHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The wall clock without its jumps.
#[derive(Debug)]
pub(crate) struct HostClock {
    /// The largest jump that is followed at once, in milliseconds.
    jump_max_ms: u64,
    /// How far the wall clock is ahead of the monotonic clock, in milliseconds.
    ahead_ms: AtomicI64,
    is_held: AtomicBool,
    /// The wall clock when the two clocks were compared last and no jump was found, in
    /// milliseconds.
    compared_at: AtomicU64,
    /// The time of the last query of the kernel, by the monotonic clock.
    asked_at: AtomicU64,
}

impl HostClock {
    /// A clock with the machine's present time. Jumps of up to `jump_max` are followed.
    pub(crate) fn new(jump_max: Duration) -> Self {
        let clock = Self {
            jump_max_ms: millis(jump_max),
            ahead_ms: AtomicI64::new(0),
            is_held: AtomicBool::new(false),
            compared_at: AtomicU64::new(0),
            asked_at: AtomicU64::new(0),
        };
        clock.follow();
        clock
    }

    /// The largest jump that is followed at once, in milliseconds.
    pub(crate) fn jump_max_ms(&self) -> u64 {
        self.jump_max_ms
    }

    /// Accepts the machine's present time.
    pub(crate) fn follow(&self) {
        self.ahead_ms.store(ahead(SystemClock.now(), steady_ms()), Ordering::Relaxed);
        self.is_held.store(false, Ordering::Relaxed);
    }

    /// The time, when the wall clock shows `wall` and the monotonic clock `steady_ms`. The
    /// monotonic clock is read only if the wall clock may have jumped.
    fn time(
        &self,
        wall: Timestamp,
        steady_ms: impl FnOnce() -> u64,
        is_synchronised: impl FnOnce() -> bool,
    ) -> Timestamp {
        let compared_at = self.compared_at.load(Ordering::Relaxed);
        if wall.as_millis().abs_diff(compared_at) <= JITTER_MS {
            return wall;
        }
        let steady_ms = steady_ms();
        let (found, known) = (ahead(wall, steady_ms), self.ahead_ms.load(Ordering::Relaxed));
        let jump = found.abs_diff(known);
        if jump <= self.jump_max_ms {
            if jump > JITTER_MS {
                self.ahead_ms.store(found, Ordering::Relaxed);
            }
            if self.is_held.load(Ordering::Relaxed) && self.is_held.swap(false, Ordering::Relaxed) {
                warn!("the machine's clock is correct again, and is followed");
            }
            self.compared_at.store(wall.as_millis(), Ordering::Relaxed);
            return wall;
        }
        let s = jump / 1_000;
        let way = if found > known { "ahead" } else { "back" };
        if self.may_query_kernel(steady_ms) && is_synchronised() {
            self.ahead_ms.store(found, Ordering::Relaxed);
            self.is_held.store(false, Ordering::Relaxed);
            warn!("the machine's clock jumped {s} s {way}, is synchronised, and is followed");
            return wall;
        }
        self.compared_at.store(0, Ordering::Relaxed);
        if !self.is_held.swap(true, Ordering::Relaxed) {
            error!(
                "the machine's clock jumped {s} s {way}, and is not synchronised: the host's time \
                 continues without the jump, so that no job is deleted before its time; when the \
                 clock is right, restart the host with --accept-clock"
            );
        }
        Timestamp::from_millis(steady_ms.saturating_add_signed(known))
    }

    fn may_query_kernel(&self, steady_ms: u64) -> bool {
        let asked_at = self.asked_at.load(Ordering::Relaxed);
        let is_due = asked_at == 0 || steady_ms.saturating_sub(asked_at) >= RECHECK_MS;
        if is_due {
            self.asked_at.store(steady_ms.max(1), Ordering::Relaxed);
        }
        is_due
    }
}

impl Clock for HostClock {
    fn now(&self) -> Timestamp {
        self.time(SystemClock.now(), steady_ms, is_synchronised)
    }

    fn elapsed(&self) -> Duration {
        SystemClock.elapsed()
    }

    fn sleep_until(&self, at: Timestamp) -> BoxFuture<'static, ()> {
        let ms = at.millis_since(self.now());
        self.sleep_until_elapsed(self.elapsed().saturating_add(Duration::from_millis(ms)))
    }
}

/// Opens a store once the clock can be trusted: calls `open` with the largest accepted difference
/// from the newest time in the store, in milliseconds.
///
/// # Errors
/// When the clock is not synchronised and far from the newest time in the store for [`SYNC_WAIT`];
/// and the errors of opening the store.
pub(crate) async fn open_in_time<T>(
    clock: &HostClock,
    open: impl Fn(Option<u64>) -> Result<T, OpenError>,
) -> anyhow::Result<T> {
    let begun = SystemClock.elapsed();
    let mut is_reported = false;
    loop {
        clock.follow();
        let max_ms = if is_synchronised() { None } else { Some(clock.jump_max_ms) };
        let jumped = match open(max_ms) {
            Err(jumped) => jumped,
            Ok(opened) => return Ok(opened),
        };
        let OpenError::ClockJumped { seen_at, .. } = &jumped else {
            return Err(jumped.into());
        };
        if !is_reported {
            warn_of_wait(&jumped);
            is_reported = true;
        }
        let is_right = || {
            let now = SystemClock.now();
            let away_ms = now.millis_since(*seen_at).max(seen_at.millis_since(now));
            is_synchronised() || away_ms <= clock.jump_max_ms
        };
        wait_until(is_right, begun, &jumped).await?;
    }
}

/// Waits until the machine's clock is synchronised, after it was found to have `jumped`.
///
/// # Errors
/// When it is not synchronised after [`SYNC_WAIT`].
pub(crate) async fn wait_for_synchronisation(jumped: &OpenError) -> anyhow::Result<()> {
    warn_of_wait(jumped);
    wait_until(is_synchronised, SystemClock.elapsed(), jumped).await
}

/// Waits until the clock that has `jumped` is right, [`SYNC_WAIT`] from `begun` at most.
async fn wait_until(
    is_right: impl Fn() -> bool,
    begun: Duration,
    jumped: &OpenError,
) -> anyhow::Result<()> {
    while !is_right() {
        if SystemClock.elapsed().saturating_sub(begun) >= SYNC_WAIT {
            return Err(not_synchronised(jumped));
        }
        tokio::time::sleep(RECHECK_INTERVAL).await;
    }
    Ok(())
}

fn warn_of_wait(jumped: &OpenError) {
    let s = SYNC_WAIT.as_secs();
    warn!("{jumped}; waiting up to {s} s for the clock to be synchronised");
}

/// Why a start with a clock that has jumped ends, and the remedy.
fn not_synchronised(jumped: &OpenError) -> anyhow::Error {
    let jobs = if let OpenError::ClockJumped { jobs, .. } = jumped { *jobs } else { 0 };
    anyhow!(
        "{jumped}; the machine's clock is not synchronised. {jobs} jobs that have not ended \
         would be deleted, because their ttl would be over, or would start before their time. Put \
         the clock right, or, when it is right, start once with --accept-clock (--max-clock-jump \
         moves the bound)"
    )
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn ahead(wall: Timestamp, steady_ms: u64) -> i64 {
    let signed = |ms: u64| i64::try_from(ms).unwrap_or(i64::MAX);
    signed(wall.as_millis()).saturating_sub(signed(steady_ms))
}

/// A monotonic clock that also runs while the machine is suspended.
#[cfg(target_os = "linux")]
fn steady_ms() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let ms = time.tv_sec.saturating_mul(1_000).saturating_add(time.tv_nsec / 1_000_000);
    u64::try_from(ms).unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn steady_ms() -> u64 {
    millis(SystemClock.elapsed())
}

/// Whether the kernel reports that its clock is synchronised. False without an answer, for example
/// where `adjtimex` is forbidden.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no crate here has this call of the C library")]
pub(crate) fn is_synchronised() -> bool {
    // SAFETY: a `timex` has only numbers, and zero is valid for all of them; without a mode the
    // call only writes to this value, which outlives the call.
    let state = unsafe {
        let mut asked: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut asked)
    };
    (0..libc::TIME_ERROR).contains(&state)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn is_synchronised() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    const START_MS: u64 = 1_700_000_000_000;

    fn clock() -> HostClock {
        let clock = HostClock::new(Duration::from_millis(HOUR_MS));
        clock.ahead_ms.store(i64::try_from(START_MS).unwrap(), Ordering::Relaxed);
        clock
    }

    #[test]
    fn a_jump_is_followed_once_it_is_confirmed() {
        let clock = clock();
        let time = |wall_ms, steady_ms, is_synchronised| {
            let wall = Timestamp::from_millis(START_MS.checked_add_signed(wall_ms).unwrap());
            let time = clock.time(wall, || steady_ms, || is_synchronised).as_millis();
            i64::try_from(time).unwrap() - i64::try_from(START_MS).unwrap()
        };
        let hour = i64::try_from(HOUR_MS).unwrap();
        // The wall clock, the monotonic clock, whether the wall clock is synchronised, and the
        // resulting time.
        let table = [
            (0, 0, false, 0),
            (1_000, 1_000, false, 1_000),
            (1_000 + hour, 2_000, false, 1_000 + hour),
            (20 * hour, 3_000, false, 3_000 + hour - 1_000),
            (20 * hour + 10, 3_010, false, 3_010 + hour - 1_000),
            (-20 * hour, 4_000, false, 4_000 + hour - 1_000),
            (hour + 5_000, 5_000, false, hour + 5_000),
            (20 * hour, 7_000, true, 20 * hour),
            (20 * hour + 1_000, 8_000, false, 20 * hour + 1_000),
            (0, 9_000, false, 20 * hour + 2_000),
            (1_000, 10_000, true, 1_000),
        ];
        for (n, (wall, steady, is_synchronised, expected)) in table.into_iter().enumerate() {
            assert_eq!(time(wall, steady, is_synchronised), expected, "row {n}");
        }
    }

    #[test]
    fn the_time_does_not_stand_still() {
        let clock = HostClock::new(Duration::from_secs(3_600));
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(20));
        assert!(clock.now().millis_since(before) >= 19);
    }
}
