//! Ends a connection whose client may still be sending, in the stages of RFC 9112, 9.6: arriving
//! bytes are discarded, then the writing side is closed, then the rest is discarded until the
//! client closes its side too. A plain close would reset the connection while bytes arrive, and a
//! reset can make the client lose the last answer.
//!
//! When the answer announced the close, the writing side stays open until the client pauses: some
//! clients stop sending, and then fail, when they see the end of their input. Otherwise it is
//! closed first, so that no client sends its next call on this connection.
//!
//! **Bounds.** [`LINGER_BYTES_MAX`] and [`LINGER_MAX`] for one connection, and [`PAUSE_MAX`]
//! without a byte. The connection keeps its slot meanwhile. **Cost.** A timer, and a buffer on the
//! stack.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Most bytes that are discarded: no route accepts a larger body.
const LINGER_BYTES_MAX: usize = 64 << 20;

/// Most time for all stages.
const LINGER_MAX: Duration = Duration::from_secs(20);

/// A client that sends nothing for this long has nothing more to send.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Bytes that are discarded in one step.
const PIECE_BYTES: usize = 16 << 10;

/// The stage of a connection's end.
#[derive(Debug)]
pub(super) struct Linger {
    stage: Stage,
    bytes_left: usize,
    until: Instant,
    /// Fires when the client's pause is too long.
    pause: Pin<Box<Sleep>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Both sides are open, until the client pauses.
    Open,
    /// The writing side is being closed; then, unless this is the last stage, more bytes are
    /// discarded.
    Closing { is_last: bool },
    /// Only the client may still send.
    HalfClosed,
}

impl Linger {
    /// Begins the end of a connection. `is_announced`: the client knows that the connection ends.
    pub(super) fn begin(is_announced: bool) -> Self {
        let stage = if is_announced { Stage::Open } else { Stage::Closing { is_last: false } };
        let now = Instant::now();
        let pause = Box::pin(sleep_until(now + PAUSE_MAX));
        Self { stage, bytes_left: LINGER_BYTES_MAX, until: now + LINGER_MAX, pause }
    }

    /// Runs the stages; ready when the connection can be dropped.
    pub(super) fn poll<IO: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut IO,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.stage {
                Stage::Open => {
                    let is_last = ready!(self.poll_discard(stream, context)) == Discarded::All;
                    self.stage = Stage::Closing { is_last };
                }
                Stage::Closing { is_last } => {
                    ready!(Pin::new(&mut *stream).poll_shutdown(context))?;
                    if is_last {
                        return Poll::Ready(Ok(()));
                    }
                    self.stage = Stage::HalfClosed;
                    self.wait_again();
                }
                Stage::HalfClosed => {
                    return self.poll_discard(stream, context).map(|_| Ok(()));
                }
            }
        }
    }

    /// Discards arriving bytes.
    fn poll_discard<IO: AsyncRead + Unpin>(
        &mut self,
        stream: &mut IO,
        context: &mut Context<'_>,
    ) -> Poll<Discarded> {
        let mut piece = [MaybeUninit::uninit(); PIECE_BYTES];
        loop {
            let mut piece = ReadBuf::uninit(&mut piece);
            match Pin::new(&mut *stream).poll_read(context, &mut piece) {
                Poll::Ready(Ok(())) if !piece.filled().is_empty() => {
                    self.bytes_left = self.bytes_left.saturating_sub(piece.filled().len());
                    if self.bytes_left == 0 || self.until <= Instant::now() {
                        return Poll::Ready(Discarded::All);
                    }
                    self.wait_again();
                }
                Poll::Ready(Ok(()) | Err(_)) => return Poll::Ready(Discarded::All),
                Poll::Pending => {
                    return self.pause.as_mut().poll(context).map(|()| Discarded::UntilPause);
                }
            }
        }
    }

    fn wait_again(&mut self) {
        let pause_ends = (Instant::now() + PAUSE_MAX).min(self.until);
        self.pause.as_mut().reset(pause_ends);
    }
}

/// The progress of discarding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Discarded {
    /// The client pauses.
    UntilPause,
    /// All bytes, or the most that are accepted.
    All,
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::task::JoinHandle;
    use tokio::time::{sleep, timeout};

    use super::*;

    /// A connection that lingers, and its client.
    fn lingering(is_announced: bool) -> (DuplexStream, JoinHandle<()>) {
        let (client, mut server) = duplex(64 << 10);
        let ended = tokio::spawn(async move {
            let mut linger = Linger::begin(is_announced);
            poll_fn(|context| linger.poll(&mut server, context)).await.unwrap();
        });
        (client, ended)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_closes_ends_it_at_once() {
        for is_announced in [false, true] {
            let (client, ended) = lingering(is_announced);
            drop(client);
            let begun = Instant::now();
            ended.await.unwrap();
            assert_eq!(begun.elapsed(), Duration::ZERO);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_client_sees_the_end_once_it_pauses_or_at_once_when_it_was_not_announced() {
        for (is_announced, seen_after) in [(true, PAUSE_MAX), (false, Duration::ZERO)] {
            let (mut client, ended) = lingering(is_announced);
            let begun = Instant::now();
            assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
            assert_eq!(begun.elapsed().as_secs(), seen_after.as_secs());
            // Bytes that are sent after that are still accepted.
            client.write_all(&[0; 100_000]).await.unwrap();
            ended.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_keeps_sending_is_cut_off_by_time_and_by_bytes() {
        let begun = Instant::now();
        let (mut slow, ended) = lingering(true);
        while slow.write_all(b"x").await.is_ok() {
            sleep(PAUSE_MAX / 2).await;
        }
        ended.await.unwrap();
        let took = begun.elapsed();
        assert!(took >= LINGER_MAX && took <= LINGER_MAX + 2 * PAUSE_MAX, "{took:?}");

        let (mut fast, ended) = lingering(true);
        let mut sent = 0;
        while fast.write_all(&[0; PIECE_BYTES]).await.is_ok() {
            sent += PIECE_BYTES;
        }
        timeout(PAUSE_MAX, ended).await.unwrap().unwrap();
        assert!((LINGER_BYTES_MAX..LINGER_BYTES_MAX + (1 << 20)).contains(&sent), "{sent}");
    }
}
