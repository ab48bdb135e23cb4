//! The settings of HTTP/2 between the active host and a runner.
//!
//! Each side sends a ping every [`PING_INTERVAL`] and ends a connection that does not answer for
//! [`PING_TIME_MAX`]: a runner that is paused or cut off is lost after about five seconds.

use std::time::Duration;

use hyper::rt::Executor;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::runtime::Handle;

/// Bytes of one attempt that may be on their way.
pub(crate) const STREAM_WINDOW: u32 = 256 << 10;

/// Bytes of all attempts of a connection that may be on their way, so that a few attempts whose
/// data is not read yet do not stop the others.
const CONNECTION_WINDOW: u32 = 64 << 20;

const PING_INTERVAL: Duration = Duration::from_secs(1);
const PING_TIME_MAX: Duration = Duration::from_secs(4);

/// Longest time between the end of an attempt's request and that of its connection, if both have
/// the same cause. The connection is lost some seconds after its last packet.
pub(crate) const NOTICED_WITHIN: Duration = Duration::from_secs(1);

/// Most attempts of one connection.
pub(crate) const ATTEMPTS_MAX: u32 = 1 << 16;

/// The side of the active host.
pub(crate) fn client() -> hyper::client::conn::http2::Builder<TokioExecutor> {
    let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIME_MAX)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .initial_max_send_streams(Some(ATTEMPTS_MAX as usize))
        .max_frame_size(64 << 10);
    builder
}

/// Spawns the requests of a connection on the threads of this runtime, so that those of the
/// connection are left to its pings and frames.
#[derive(Debug, Clone)]
pub(crate) struct OnThreads(Handle);

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for OnThreads {
    fn execute(&self, request: F) {
        drop(self.0.spawn(request));
    }
}

/// The side of a runner, whose requests run on these threads.
pub(crate) fn server(threads: Handle) -> hyper::server::conn::http2::Builder<OnThreads> {
    let mut builder = hyper::server::conn::http2::Builder::new(OnThreads(threads));
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIME_MAX)
        .max_concurrent_streams(ATTEMPTS_MAX)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(64 << 10);
    builder
}
