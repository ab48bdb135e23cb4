//! The threads for the connections between hosts.
//!
//! **Promise.** No load of callers and no handler delays what keeps two hosts together: the accept
//! loop, handshakes, pings and frames of their connections. Calls and attempts run elsewhere, and
//! these threads only carry their bytes. **Cost.** [`THREADS`] threads, which sleep on a host
//! without others.

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// One would do for the bytes of some thousand calls a second; a second one carries pings while it
/// encrypts a large body.
const THREADS: usize = 2;

/// Starts them.
///
/// # Errors
/// When the threads cannot be started.
pub(crate) fn start() -> anyhow::Result<Runtime> {
    Builder::new_multi_thread()
        .thread_name("hosts")
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .context("cannot start the threads for other hosts")
}
