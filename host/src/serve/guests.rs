//! The tokio runtime that guests run on.

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// How much lower than the API's the priority of guest threads is. A handler that computes on
/// every core then yields to an answer as soon as there is one to give.
const NICE: i32 = 5;

/// A runtime with one thread for each core, apart from the one that serves HTTP: however busy
/// the guests are, an answer waits for the scheduler of the operating system at most.
///
/// # Errors
/// When its threads cannot be started.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread()
        .thread_name("guest")
        .on_thread_start(|| {
            // Without it guests run at the usual priority: slower answers, nothing else.
            let _ = rustix::process::nice(NICE);
        })
        .enable_all()
        .build()
        .context("cannot start the threads that run guests")
}
