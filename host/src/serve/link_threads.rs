//! The threads for what keeps two hosts together.
//!
//! **Promise.** No load of callers and no handler delays the accept loop and the handshakes of
//! hosts, and the frames and pings of the connections over which they run attempts. The attempts
//! themselves run elsewhere. Connections for forwarded calls are with the threads that serve calls:
//! if one is lost, only its calls are. **Cost.** [`THREADS`] threads, which sleep on a host without
//! others.

use anyhow::Context as _;
use tokio::runtime::{Builder, Runtime};

/// One would do for the frames of some thousand attempts a second; a second one carries pings while
/// it encrypts a large input.
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
