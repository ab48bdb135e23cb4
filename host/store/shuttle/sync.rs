//! The locks and threads of `src/sync.rs`, on the scheduler of `shuttle`: the part of their
//! interface that the store uses.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use shuttle::sync;
pub(crate) use shuttle::thread;

/// The scheduler has no time, so nothing happens at intervals.
pub(crate) const HAS_TIME: bool = false;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

#[derive(Debug)]
pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a sync::Mutex<T>,
    /// `None` only while its thread waits.
    guard: Option<sync::MutexGuard<'a, T>>,
}

#[derive(Debug)]
pub(crate) struct Condvar(sync::Condvar);

pub(crate) struct WaitTimeoutResult;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: &self.0, guard: self.0.lock().ok() }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.guard.as_deref().expect("no thread has panicked with the lock")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_deref_mut().expect("no thread has panicked with the lock")
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(sync::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        guard.guard = guard.guard.take().and_then(|inner| self.0.wait(inner).ok());
    }

    /// There is no time in `shuttle`: a wait with a time limit ends at once. A thread that
    /// relies on its time limit continues, and a thread that relies on a wake-up uses
    /// [`Condvar::wait`].
    pub(crate) fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        _: Duration,
    ) -> WaitTimeoutResult {
        drop(guard.guard.take());
        thread::yield_now();
        guard.guard = guard.mutex.lock().ok();
        WaitTimeoutResult
    }
}

impl WaitTimeoutResult {
    #[expect(clippy::unused_self, reason = "as its model has it")]
    pub(crate) fn timed_out(&self) -> bool {
        true
    }
}
