//! The threads that run handlers (guests). They are separate from the threads that serve HTTP, and
//! have a lower priority, so that an answer never waits for a guest, only for the operating
//! system's scheduler.

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// The lower priority of guests, as a nice value relative to the API. A handler that computes on
/// every core is then preempted as soon as an answer is ready.
const NICE: i32 = 5;

/// The same for handlers that have computed for long: they get a tenth of the time that brief ones
/// need, and all idle time.
const NICE_LOW_PRIORITY: i32 = 15;

/// Two runtimes with one thread for each core.
pub(crate) struct GuestRuntimes {
    /// For the beginning of all attempts, and most of their ends.
    pub(crate) normal: Runtime,
    /// For attempts that compute for long.
    pub(crate) low_priority: Runtime,
}

impl GuestRuntimes {
    /// # Errors
    /// When the threads cannot be started.
    pub(crate) fn start() -> anyhow::Result<Self> {
        Ok(Self {
            normal: runtime("guest", NICE)?,
            low_priority: runtime("low-priority", NICE_LOW_PRIORITY)?,
        })
    }

    /// Abandons attempts that still run: their jobs were released, or they hang in a host call.
    pub(crate) fn shutdown(self) {
        self.normal.shutdown_background();
        self.low_priority.shutdown_background();
    }
}

fn runtime(name: &'static str, nice: i32) -> anyhow::Result<Runtime> {
    Builder::new_multi_thread()
        .thread_name(name)
        .on_thread_start(move || {
            // If this fails, guests run at the usual priority, and answers are slower.
            let _ = rustix::process::nice(nice);
        })
        .enable_all()
        .build()
        .context("cannot start the threads that run guests")
}
