//! The threads of the connections to HTTP endpoints by their own names.
//!
//! **Promise.** A flood of visitors takes turns with other programs of this machine, and not a
//! place in the queue of the threads that serve the API. **Cost.** A thread for each core, which
//! sleeps without visitors; none on a host without `--http-listen`.

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// Starts them.
///
/// # Errors
/// When the threads cannot be started.
pub(crate) fn start() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread()
        .thread_name("pages")
        .enable_all()
        .build()
        .context("cannot start the threads for HTTP endpoints")
}
