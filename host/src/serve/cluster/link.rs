//! The settings of a TCP connection between two hosts.
//!
//! A host whose machine has vanished, or whose packets are lost, closes no connection. A connection
//! therefore ends when the other side has not confirmed data or probes for [some
//! seconds](Role::loss_max), so that a forwarded call is answered and not left waiting for TCP's
//! own limit of some 15 minutes.
//!
//! The kernel also ends a connection whose other side confirms everything and has room for nothing
//! for as long (Linux 5.11 and later). So the time is longer than each pause that a call may make.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

/// What a side of a connection sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// A greeting, or messages about attempts, which the other side always reads.
    Host,
    /// Forwarded calls. Their bodies may wait for 10 s until the active host has memory for them.
    Caller,
    /// Answers, which their clients may leave unread for 30 s.
    Answering,
}

impl Role {
    /// For how long the other side may confirm nothing, or have room for nothing. As long as a
    /// runner may be silent, unless calls may pause for longer.
    fn loss_max(self) -> Duration {
        Duration::from_secs(match self {
            Self::Host => 5,
            Self::Caller => 12,
            Self::Answering => 40,
        })
    }
}

const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Makes the connection end soon after its other side is lost, and send small packets at once.
///
/// # Errors
/// When the connection has been closed.
pub(crate) fn prepare(stream: &TcpStream, role: Role) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, PROBE_INTERVAL)?;
    sockopt::set_tcp_keepintvl(stream, PROBE_INTERVAL)?;
    // It also bounds the time in which probes are not answered.
    let loss_max = u32::try_from(role.loss_max().as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, loss_max)?;
    Ok(())
}
