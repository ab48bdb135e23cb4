//! The settings of a TCP connection between two hosts.
//!
//! A host whose machine has vanished, or whose packets are lost, closes no connection. A connection
//! therefore ends when the other side has not confirmed data or probes for [`LOSS_MAX`], so that a
//! forwarded call is answered and not left waiting for TCP's own limit of some 15 minutes.
//!
//! The kernel also ends a connection whose other side confirms everything and has room for nothing
//! for as long (Linux 5.11 and later). Both sides always read: a body that nobody takes stops its
//! stream alone.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use rustix::net::sockopt;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

/// For how long the other side may confirm nothing: as long as it may be silent.
const LOSS_MAX: Duration = Duration::from_secs(5);

const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes that are read before the other tasks of a thread have a turn: the heads of some 300 calls,
/// 1 ms.
const TURN_BYTES: usize = 16 << 10;

/// A connection between two hosts, which can move to the threads of another runtime.
pub(crate) struct HostStream {
    stream: Option<TcpStream>,
    /// Bytes that were read in this turn.
    read: usize,
    /// When it resolves, the connection ends.
    ends: BoxFuture<'static, ()>,
}

impl std::fmt::Debug for HostStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HostStream").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl HostStream {
    /// Makes the connection end soon after its other side is lost, and send small packets at once.
    ///
    /// # Errors
    /// When the connection has been closed.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&stream, true)?;
        sockopt::set_tcp_keepidle(&stream, PROBE_INTERVAL)?;
        sockopt::set_tcp_keepintvl(&stream, PROBE_INTERVAL)?;
        // It also bounds the time in which probes are not answered.
        let loss_max = u32::try_from(LOSS_MAX.as_millis()).unwrap_or(u32::MAX);
        sockopt::set_tcp_user_timeout(&stream, loss_max)?;
        Ok(Self { stream: Some(stream), read: 0, ends: std::future::pending().boxed() })
    }

    /// The connection ends with an error when the token fires.
    pub(crate) fn end_at(&mut self, closed: CancellationToken) {
        self.ends = closed.cancelled_owned().boxed();
    }

    /// The runtime that runs this receives the events of the connection from now on.
    ///
    /// # Errors
    /// When the runtime cannot. The connection is closed then.
    pub(crate) fn move_here(&mut self) -> io::Result<()> {
        let stream = self.stream.take().ok_or(io::ErrorKind::NotConnected)?;
        self.stream = Some(TcpStream::from_std(stream.into_std()?)?);
        Ok(())
    }

    fn open(self: Pin<&mut Self>) -> io::Result<Pin<&mut TcpStream>> {
        let stream = self.get_mut().stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
        Ok(Pin::new(stream))
    }
}

impl AsyncRead for HostStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read >= TURN_BYTES {
            self.read = 0;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let outcome = self.as_mut().open()?.poll_read(context, buffer);
        self.read += buffer.filled().len() - before;
        if outcome.is_pending() {
            self.read = 0;
            ready!(self.ends.poll_unpin(context));
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        outcome
    }
}

impl AsyncWrite for HostStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.open()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.open()?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open()?.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.open()?.poll_shutdown(context)
    }
}
