//! The body of a request on its way to a handler: a stream with a bound, and with a pace.
//!
//! Only the time in which the handler waits for the client counts for the pace: a handler that does
//! not read makes its client wait, and not the reverse.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::http_call::HttpBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::request::body::{Pace, ReadBody};

/// A body of known length that is no longer than this is read before a handler begins, so that a
/// slow client holds no sandbox.
pub(super) const READ_AHEAD_BYTES: usize = 64 << 10;

/// Most bytes of a request of this endpoint.
pub(super) fn bytes_max(endpoint: &Endpoint) -> usize {
    let mib = u64::from(endpoint.settings.http.max_request_mib);
    usize::try_from(mib << 20).unwrap_or(usize::MAX)
}

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
    let paced = Paced {
        body,
        bytes_max,
        bytes: 0,
        pace: Pace::start(),
        last_wait_ended: Instant::now(),
        wait: None,
        is_over: false,
    };
    paced.boxed_unsync()
}

struct Paced {
    body: Body,
    bytes_max: usize,
    /// Bytes that have come.
    bytes: usize,
    pace: Pace,
    /// The handler has not waited for the client since then, except in the present wait.
    last_wait_ended: Instant,
    /// The deadline of the present wait.
    wait: Option<Pin<Box<Sleep>>>,
    is_over: bool,
}

impl Paced {
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
            let Self { pace, bytes, last_wait_ended, wait, .. } = &mut *self;
            let deadline = wait.get_or_insert_with(|| {
                pace.pause(last_wait_ended.elapsed());
                Box::pin(sleep_until(pace.deadline(*bytes)))
            });
            ready!(deadline.as_mut().poll(context));
            return self.fail(io::ErrorKind::TimedOut, "the body came too slowly");
        };
        if self.wait.take().is_some() {
            self.last_wait_ended = Instant::now();
        }
        match frame {
            None => {
                self.is_over = true;
                Poll::Ready(None)
            }
            Some(Err(error)) => self.fail(io::ErrorKind::ConnectionReset, &error.to_string()),
            Some(Ok(frame)) => {
                self.bytes += frame.data_ref().map_or(0, Bytes::len);
                if self.bytes > self.bytes_max {
                    return self.fail(io::ErrorKind::FileTooLarge, "the body is too large");
                }
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
    use std::time::Duration;

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
