//! The locks and threads that the store's threads and their callers share.
//!
//! The suite `shuttle` compiles the store with another `sync`, whose scheduler runs one thread at a
//! time and picks the next one at each lock, wait and wake-up, so that tests can try many orders.

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread;

/// Whether waits with a time limit last until the limit.
pub(crate) const HAS_TIME: bool = true;
