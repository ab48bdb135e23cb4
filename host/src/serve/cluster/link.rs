//! The settings of a TCP connection between two hosts.
//!
//! A host whose machine has vanished, or whose packets are lost, closes no connection. A connection therefore ends when
//! the other side has not confirmed data or probes for [`LOSS_MS_MAX`], so that a forwarded call is
//! answered and not left waiting for TCP's own limit of some 15 minutes.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// As long as a runner may be silent, in milliseconds.
const LOSS_MS_MAX: u32 = 5_000;

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
    sockopt::set_tcp_user_timeout(stream, LOSS_MS_MAX)?;
    Ok(())
}
