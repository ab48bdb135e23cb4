//! The deadline and the stop of an attempt, enforced in two ways: the epoch callback stops a
//! handler that computes, and [`Watch::ended`], awaited beside the call, stops a handler that waits
//! in a host function.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gristmill_core::limits::CANCEL_GRACE_MS;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use wasmtime::{Result, Store, StoreContextMut, UpdateDeadline};

/// Why an attempt is ended from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Its deadline passed.
    Deadline,
    /// It was asked to stop, and its grace period is over.
    Stopped,
}

/// Watches the deadline, the stop signal and the processor time of one attempt.
#[derive(Debug)]
pub(crate) struct Watch {
    deadline: Instant,
    stop: CancellationToken,
    /// The end of the grace period; set by the first check that sees the stop signal.
    grace_ends: Mutex<Option<Instant>>,
    computed_ns: AtomicU64,
}

impl Watch {
    pub(crate) fn new(deadline: Instant, stop: CancellationToken) -> Self {
        let (grace_ends, computed_ns) = (Mutex::new(None), AtomicU64::new(0));
        Self { deadline, stop, grace_ends, computed_ns }
    }

    /// The latest time at which the attempt is stopped.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether the handler was asked to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// The processor time of the handler and of the host functions that it calls.
    pub(crate) fn computed(&self) -> Duration {
        Duration::from_nanos(self.computed_ns.load(Ordering::Relaxed))
    }

    /// Adds to its processor time.
    pub(crate) fn add_computed(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.computed_ns.fetch_add(nanos, Ordering::Relaxed);
    }

    /// Why the attempt must end now; `None` while it may continue.
    pub(crate) fn halt(&self) -> Option<Halt> {
        let now = Instant::now();
        if now >= self.deadline {
            return Some(Halt::Deadline);
        }
        (self.stop.is_cancelled() && now >= self.grace_ends(now)).then_some(Halt::Stopped)
    }

    /// Waits until the attempt must end.
    pub(crate) async fn ended(&self) -> Halt {
        let deadline = self.deadline.into();
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => return Halt::Deadline,
            () = self.stop.cancelled() => {}
        }
        let grace_ends = self.grace_ends(Instant::now());
        if grace_ends >= self.deadline {
            tokio::time::sleep_until(deadline).await;
            return Halt::Deadline;
        }
        tokio::time::sleep_until(grace_ends.into()).await;
        Halt::Stopped
    }

    fn grace_ends(&self, now: Instant) -> Instant {
        let grace = Duration::from_millis(CANCEL_GRACE_MS);
        *self.grace_ends.lock().get_or_insert_with(|| now + grace)
    }
}

/// The state of a store whose attempt is watched.
pub(crate) trait Watched: 'static {
    /// The watch of the present attempt.
    fn watch(&self) -> &Watch;
}

/// Makes the store check its watch on every epoch tick, and let other attempts have a turn.
pub(crate) fn watch_epochs<T: Watched>(store: &mut Store<T>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context: StoreContextMut<'_, T>| -> Result<_> {
        if context.data().watch().halt().is_some() {
            return Ok(UpdateDeadline::Interrupt);
        }
        Ok(UpdateDeadline::Yield(1))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ms: u64) -> Instant {
        Instant::now() + Duration::from_millis(ms)
    }

    #[tokio::test]
    async fn the_deadline_ends_it() {
        let watch = Watch::new(after(20), CancellationToken::new());
        assert_eq!(watch.halt(), None);
        assert_eq!(watch.ended().await, Halt::Deadline);
        assert_eq!(watch.halt(), Some(Halt::Deadline));
    }

    #[tokio::test]
    async fn a_stop_ends_it_after_the_grace() {
        let stop = CancellationToken::new();
        let watch = Watch::new(after(60_000), stop.clone());
        stop.cancel();
        assert!(watch.is_stopping());
        assert_eq!(watch.halt(), None, "the grace has begun");
        assert_eq!(watch.ended().await, Halt::Stopped);
        assert_eq!(watch.halt(), Some(Halt::Stopped));
    }

    #[tokio::test]
    async fn the_grace_does_not_outlast_the_deadline() {
        let stop = CancellationToken::new();
        stop.cancel();
        let watch = Watch::new(after(5), stop);
        assert_eq!(watch.ended().await, Halt::Deadline);
    }
}
