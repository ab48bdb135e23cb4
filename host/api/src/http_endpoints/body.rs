//! The body of a request on its way to a handler: a stream with a bound, and with a pace.
//!
//! Only the time in which the handler waits for the client counts for the pace: a handler that does
//! not read makes its client wait, and not the reverse.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use gristmill_core::http_call::HttpBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::request::body::{BYTES_PER_SECOND_MIN, IDLE_WAIT, ReadBody};

/// A body of known length that is no longer than this is read before a handler begins, so that a
/// slow client holds no sandbox.
pub(super) const READ_AHEAD_BYTES: usize = 64 << 10;

/// A body that was read already. It keeps its share of the memory of bodies until the handler has
/// taken it.
pub(super) fn whole(read: ReadBody) -> HttpBody {
    let bytes = Full::new(read.bytes.clone()).map_err(|never| match never {});
    bytes
        .map_frame(move |frame| {
            let _held = &read;
            frame
        })
        .boxed_unsync()
}

/// The stream of a body of at most so many bytes.
pub(super) fn stream(body: Body, bytes_max: usize) -> HttpBody {
    let received = Duration::ZERO;
    let paced = Paced {
        body,
        left: bytes_max as u64,
        bytes: 0,
        waited: received,
        wait: None,
        is_over: false,
    };
    paced.boxed_unsync()
}

struct Paced {
    body: Body,
    /// Bytes that may still come.
    left: u64,
    /// Bytes that have come.
    bytes: u64,
    /// The time in which the handler has waited for them.
    waited: Duration,
    /// The present wait: its beginning, and its longest end.
    wait: Option<(Instant, Pin<Box<Sleep>>)>,
    is_over: bool,
}

impl Paced {
    /// How long the next wait may be: not longer than a pause, and so long that the body is not
    /// slower than [`BYTES_PER_SECOND_MIN`] together.
    fn wait_max(&self) -> Duration {
        let at_pace = Duration::from_secs(self.bytes / BYTES_PER_SECOND_MIN as u64);
        (IDLE_WAIT + at_pace).saturating_sub(self.waited).min(IDLE_WAIT)
    }

    fn fail(&mut self, kind: io::ErrorKind, why: &str) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.is_over = true;
        Poll::Ready(Some(Err(io::Error::new(kind, why.to_owned()))))
    }
}

impl hyper::body::Body for Paced {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else {
            let wait_max = self.wait_max();
            let (_, longest) = self.wait.get_or_insert_with(|| {
                let now = Instant::now();
                (now, Box::pin(sleep_until(now + wait_max)))
            });
            ready!(longest.as_mut().poll(context));
            return self.fail(io::ErrorKind::TimedOut, "the body came too slowly");
        };
        if let Some((began, _)) = self.wait.take() {
            self.waited += began.elapsed();
        }
        match frame {
            None => {
                self.is_over = true;
                Poll::Ready(None)
            }
            Some(Err(error)) => self.fail(io::ErrorKind::ConnectionReset, &error.to_string()),
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                if bytes > self.left {
                    return self.fail(io::ErrorKind::FileTooLarge, "the body is too large");
                }
                self.left -= bytes;
                self.bytes += bytes;
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use futures::stream;

    use super::*;

    fn pieces(pieces: &[&'static str], pause: Duration) -> Body {
        let pieces = stream::iter(pieces.to_vec()).then(move |piece| async move {
            tokio::time::sleep(pause).await;
            io::Result::Ok(Bytes::from(piece))
        });
        Body::from_stream(pieces)
    }

    async fn end_of(body: HttpBody) -> Result<usize, io::ErrorKind> {
        body.collect().await.map(|all| all.to_bytes().len()).map_err(|error| error.kind())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_bounded_in_bytes_and_in_time() {
        let three = || pieces(&["abc", "def", "ghi"], Duration::from_secs(1));
        assert_eq!(end_of(stream(three(), 9)).await, Ok(9));
        assert_eq!(end_of(stream(three(), 8)).await, Err(io::ErrorKind::FileTooLarge));
        let pauses = pieces(&["abc"], Duration::from_secs(31));
        assert_eq!(end_of(stream(pauses, 9)).await, Err(io::ErrorKind::TimedOut));
        let slow = pieces(&["abc"; 10], Duration::from_secs(5));
        assert_eq!(end_of(stream(slow, 99)).await, Err(io::ErrorKind::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_that_does_not_read_does_not_slow_the_client_down() {
        let mut body = stream(pieces(&["abc"; 10], Duration::from_secs(1)), 99);
        for _ in 0..10 {
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert!(body.frame().await.unwrap().is_ok());
        }
    }
}
