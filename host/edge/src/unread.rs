//! Request bodies that are not completely read when the answer is ready, because of a refusal or an
//! operation that ignores its body.
//!
//! On HTTP/1.x the rest of such a body precedes the next request. Closing the connection while its
//! bytes arrive resets the connection, and a reset can make the client lose the answer. A short
//! rest is therefore read and discarded before the answer is sent. With a longer rest the answer
//! announces the close, and the connection [lingers](super::linger).
//!
//! HTTP/2 has a stream for each request, so the rest does not hinder the next one. But the host
//! resets a stream whose answer ends before its body, with `NO_ERROR` (RFC 9113, section 8.1), and
//! some clients lose the answer to that: curl 7.88 reports an error and shows nothing. A short rest
//! is therefore read here too; with a longer one the stream is reset after the answer.
//!
//! **Bounds.** [`REST_BYTES_MAX`] bytes in [`REST_WAIT`] for each request. The answer is in memory
//! meanwhile, and counted. **Cost.** One reference count, or an allocation on HTTP/2, and two locks
//! without contention for a request with a body; nothing for other requests.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::{HeaderMap, Request, Version, header};
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::half_close::ClientSide;

/// Longest rest of a body that is read so that the connection can continue (256 KiB, as in Go's
/// server).
const REST_BYTES_MAX: u64 = 256 << 10;

/// How long an answer waits for that rest.
const REST_WAIT: Duration = Duration::from_secs(1);

/// The unread part of the body of a request. An HTTP/1.x connection has one of these, for its
/// current request; on HTTP/2 each request with a body has its own.
#[derive(Debug, Default)]
pub(super) struct Unread(Mutex<Left>);

#[derive(Debug, Default)]
enum Left {
    /// The route still has the body.
    #[default]
    Unknown,
    /// The body was read to its end.
    Nothing,
    /// This rest was not read.
    Rest(Incoming),
    /// The rest cannot be read: the body is malformed, or its client waits for a `100 Continue`
    /// before it sends the body.
    Unreadable,
}

impl Unread {
    /// Reads the rest of the request's body, within the bounds. Returns whether its end was
    /// reached, so that the next request can follow, or the stream can end without a reset.
    pub(super) async fn reaches_end(&self) -> bool {
        // A separate statement, so that the lock is not held across the wait.
        let left = std::mem::take(&mut *self.0.lock());
        match left {
            Left::Nothing => true,
            Left::Rest(body) => timeout(REST_WAIT, discard(body)).await.unwrap_or(false),
            Left::Unknown | Left::Unreadable => false,
        }
    }
}

/// Reads a body to its end, unless it is too long. Returns whether the end was reached.
async fn discard(mut body: Incoming) -> bool {
    let mut left = REST_BYTES_MAX;
    while body.size_hint().lower() <= left {
        match poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            None => return true,
            Some(Err(_)) => return false,
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                let Some(less) = left.checked_sub(bytes) else { return false };
                left = less;
            }
        }
    }
    false
}

/// The body of a request, which is put back into [`Unread`] if it is dropped before its end.
#[derive(Debug)]
pub struct RequestBody {
    /// `None` once it was dropped.
    body: Option<Incoming>,
    /// The place for the rest; `None` when there can be no rest.
    unread: Option<Arc<Unread>>,
    /// The client's side of an HTTP/1.x connection.
    client: Option<Arc<ClientSide>>,
    progress: Progress,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// The client waits for a `100 Continue`, which reading the body would send.
    Waits,
    Flows,
    Ended,
    Failed,
}

impl RequestBody {
    /// Wraps the body of a request, so that an unread rest is not lost. Returns the place where the
    /// rest will be when the answer is ready; `None` when there can be no rest.
    pub(super) fn watch(
        request: Request<Incoming>,
        of_connection: &Arc<Unread>,
        client: &Arc<ClientSide>,
    ) -> (Request<Self>, Option<Arc<Unread>>) {
        let is_multiplexed = request.version() == Version::HTTP_2;
        let can_be_left = !request.body().is_end_stream();
        let progress = match can_be_left && waits_for_word(request.headers()) {
            true => Progress::Waits,
            false => Progress::Flows,
        };
        let unread = can_be_left.then(|| match is_multiplexed {
            true => Arc::default(),
            false => of_connection.clone(),
        });
        let client = (can_be_left && !is_multiplexed).then(|| client.clone());
        let left = unread.clone();
        let watched = |body| Self { body: Some(body), unread, client, progress };
        (request.map(watched), left)
    }
}

fn waits_for_word(headers: &HeaderMap) -> bool {
    let expected = headers.get(header::EXPECT);
    expected.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self { body: Some(body), progress, client, .. } = &mut *self else {
            return Poll::Ready(None);
        };
        if *progress == Progress::Waits {
            *progress = Progress::Flows;
        }
        let Poll::Ready(frame) = Pin::new(body).poll_frame(context) else {
            if let Some(client) = client {
                client.waits_for_body(context.waker());
            }
            return Poll::Pending;
        };
        match &frame {
            None => *progress = Progress::Ended,
            Some(Err(_)) => *progress = Progress::Failed,
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        let (Some(unread), Some(body)) = (self.unread.take(), self.body.take()) else {
            return;
        };
        let left = match self.progress {
            Progress::Failed => Left::Unreadable,
            Progress::Ended => Left::Nothing,
            _ if body.is_end_stream() => Left::Nothing,
            Progress::Waits => Left::Unreadable,
            Progress::Flows => Left::Rest(body),
        };
        *unread.0.lock() = left;
    }
}
