//! The settings of a TCP connection between two hosts.
//!
//! A host whose machine has vanished, or whose packets are lost, closes no connection. A connection
//! therefore ends when the other side has not confirmed data or probes for [`LOSS_MAX`], so that a
//! forwarded call is answered and not left waiting for TCP's own limit of some 15 minutes.
//!
//! The kernel also ends a connection whose other side confirms everything and has room for nothing
//! for as long (Linux 5.11 and later). Both sides always read: a body that nobody takes stops its
//! stream alone.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// For how long the other side may confirm nothing: as long as it may be silent.
const LOSS_MAX: Duration = Duration::from_secs(5);

const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Makes the connection end soon after its other side is lost, and send small packets at once.
///
/// # Errors
/// When the connection has been closed.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    // It also bounds the time in which probes are not answered.
    let loss_max = u32::try_from(LOSS_MAX.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, loss_max)?;
    Ok(())
}
