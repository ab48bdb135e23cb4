//! The bytes of a connection, on their way to HTTP.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::activity::Activity;
use super::addresses::Account;
use super::half_close::ClientSide;
use super::linger::Linger;

/// A stream that records the arrival of bytes, and lingers at its end if the client may still be
/// sending.
pub(super) struct Watched<IO> {
    stream: IO,
    activity: Arc<Mutex<Activity>>,
    client: Arc<ClientSide>,
    account: Option<Arc<Account>>,
    /// A read has found the end of the client's data.
    has_ended: bool,
    linger: Option<Linger>,
}

impl<IO> Watched<IO> {
    pub(super) fn new(
        stream: IO,
        activity: Arc<Mutex<Activity>>,
        account: Option<Arc<Account>>,
    ) -> Self {
        let client = activity.lock().client.clone();
        Self { stream, activity, client, account, has_ended: false, linger: None }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Watched<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = match self.has_ended {
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut self.stream).poll_read(context, into),
        };
        match read {
            Poll::Ready(Ok(())) if into.filled().len() > before => {
                self.activity.lock().came(into.filled().get(before..).unwrap_or_default());
                self.client.bytes_came();
            }
            Poll::Ready(Ok(())) if into.remaining() > 0 => {
                self.has_ended = true;
                if self.client.keeps_end_back(context.waker()) {
                    return Poll::Pending;
                }
            }
            Poll::Pending => {
                self.client.is_silent();
            }
            Poll::Ready(_) => {}
        }
        read
    }
}

impl<IO: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if let (Poll::Ready(Ok(())), Some(account)) = (&flushed, &self.account) {
            account.flushed();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { stream, activity, linger, .. } = &mut *self;
        if linger.is_none() {
            *linger = activity.lock().linger();
        }
        match linger {
            Some(linger) => linger.poll(stream, context),
            None => Pin::new(stream).poll_shutdown(context),
        }
    }
}
