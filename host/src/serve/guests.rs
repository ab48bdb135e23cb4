//! The threads that guests run on: apart from those that serve HTTP, and of a lower priority, so that
//! however busy the guests are, an answer waits for the scheduler of the operating system at most.

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// How much lower the priority of guests is than that of the API. A handler that computes on every
/// core then yields to an answer as soon as there is one to give.
const NICE: i32 = 5;

/// The same for handlers that have computed for long: they get a tenth of the time that brief ones
/// want, and all that is left.
const NICE_LENGTHY: i32 = 15;

/// Two runtimes with one thread for each core.
pub(crate) struct Guests {
    /// Where attempts begin, and most of them end.
    pub(crate) brief: Runtime,
    /// Where those go on that compute for long.
    pub(crate) lengthy: Runtime,
}

impl Guests {
    /// # Errors
    /// When the threads cannot be started.
    pub(crate) fn start() -> anyhow::Result<Self> {
        Ok(Self { brief: runtime("guest", NICE)?, lengthy: runtime("lengthy", NICE_LENGTHY)? })
    }

    /// Leaves behind what still runs: it has been handed back to the queue, or hangs in a host call.
    pub(crate) fn shutdown(self) {
        self.brief.shutdown_background();
        self.lengthy.shutdown_background();
    }
}

fn runtime(name: &'static str, nice: i32) -> anyhow::Result<Runtime> {
    Builder::new_multi_thread()
        .thread_name(name)
        .on_thread_start(move || {
            // Without it guests run at the usual priority: slower answers, nothing else.
            let _ = rustix::process::nice(nice);
        })
        .enable_all()
        .build()
        .context("cannot start the threads that run guests")
}
