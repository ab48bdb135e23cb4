//! The bytes of a connection, on their way to HTTP.
//!
//! HTTP reads until nothing is there, and begins each call that it finds. So that callers without a
//! key take no thread for long, their connections are read in [turns](crate::read_turns), and the
//! other tasks of the thread run before the next turn of a connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::activity::Activity;
use crate::addresses::Account;
use crate::half_close::ClientSide;
use crate::linger::Linger;

/// A stream that records the arrival of bytes, and lingers at its end if the client may still be
/// sending.
pub(super) struct Watched<IO> {
    stream: IO,
    activity: Arc<Mutex<Activity>>,
    client: Arc<ClientSide>,
    account: Arc<Account>,
    /// A read has found the end of the client's data.
    has_ended: bool,
    linger: Option<Linger>,
}

impl<IO> Watched<IO> {
    pub(super) fn new(stream: IO, activity: Arc<Mutex<Activity>>, account: Arc<Account>) -> Self {
        let client = activity.lock().client.clone();
        Self { stream, activity, client, account, has_ended: false, linger: None }
    }
}

impl<IO: AsyncRead + Unpin> Watched<IO> {
    /// Reads what fits, or a turn's bytes.
    fn poll_stream(
        &mut self,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
        turn_bytes: Option<usize>,
    ) -> Poll<io::Result<()>> {
        let Some(turn_bytes) = turn_bytes else {
            return Pin::new(&mut self.stream).poll_read(context, into);
        };
        let bytes = into.remaining().min(turn_bytes);
        let mut part = ReadBuf::new(into.initialize_unfilled_to(bytes));
        let read = Pin::new(&mut self.stream).poll_read(context, &mut part);
        let bytes = part.filled().len();
        into.advance(bytes);
        self.account.turn().read(bytes);
        read
    }
}

impl<IO> Drop for Watched<IO> {
    fn drop(&mut self) {
        self.account.turn().leave();
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Watched<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let turn = self.account.turn();
        let turn_bytes = match turn.is_needed() {
            true => {
                let calls = self.activity.lock().calls_begun();
                Some(ready!(turn.poll_begin(calls, context)))
            }
            false => None,
        };
        let before = into.filled().len();
        let read = match self.has_ended {
            true => Poll::Ready(Ok(())),
            false => self.poll_stream(context, into, turn_bytes),
        };
        match read {
            Poll::Ready(Ok(())) if into.filled().len() > before => {
                let came = into.filled().get(before..).unwrap_or_default();
                let mut activity = self.activity.lock();
                activity.came(came);
                drop(activity);
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
        if let Poll::Ready(Ok(())) = &flushed {
            self.account.flushed();
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::addresses::{AddressBound, Addresses, AllBound};
    use crate::call_origin::PeerAddress;
    use crate::read_turns::{FIRST_BYTES, FIRST_TURN_BYTES, TURN_BYTES};

    const LARGE: usize = 64 << 10;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_connection_gets_few_bytes_in_a_turn_without_a_key_and_while_its_owner_is_greedy() {
        let bound = AddressBound { connections_max: 9, is_for_loopback: true };
        let all = AllBound { connections_max: 16, bytes_max: 1 << 20 };
        let account = Addresses::new(bound, all).admit(PeerAddress([192, 0, 2, 1].into()));
        let sent = vec![b'x'; FIRST_TURN_BYTES + 3 * TURN_BYTES + 2 * LARGE];
        let activity = Arc::new(Mutex::new(Activity::new()));
        let mut stream = Watched::new(&sent[..], activity, account.clone());
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(wakes.clone());
        let mut read = || {
            let mut space = vec![0; LARGE];
            let mut into = ReadBuf::new(&mut space);
            let read = Pin::new(&mut stream).poll_read(&mut Context::from_waker(&waker), &mut into);
            read.map(|read| read.map(|()| into.filled().len()).unwrap())
        };
        for (bytes, turns) in [(FIRST_TURN_BYTES, 1), (TURN_BYTES, 2), (TURN_BYTES, 3)] {
            assert_eq!(read(), Poll::Ready(bytes));
            for reads in 1..3 {
                assert_eq!(read(), Poll::Pending, "turn {turns} was used");
                let asked = 2 * (turns - 1) + reads;
                assert_eq!(wakes.0.load(Ordering::Relaxed), asked, "it asks for the next one");
            }
            account.turn().read(FIRST_BYTES);
            account.turn().end();
        }
        account.show_key(&"owner".parse().unwrap());
        assert_eq!(read(), Poll::Ready(LARGE));
        account.turn().set_needed(true);
        assert_eq!(read(), Poll::Ready(TURN_BYTES));
        assert_eq!(read(), Poll::Pending, "the turn was used");
        account.turn().set_needed(false);
        assert_eq!(read(), Poll::Ready(LARGE));
    }
}
