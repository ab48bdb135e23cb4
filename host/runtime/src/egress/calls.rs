//! The outgoing calls of one job, which end with it. On an endpoint that reuses instances the
//! handler's handles outlive the job, and no task polls them while the instance is idle.
//!
//! **Promise.** After [`Calls::end`] no request of the job is sent, no body is read or written, and
//! their sockets, buffers and slots are returned, whatever the receivers do. A handler that uses
//! such a handle in its next job gets an error. Each request is counted once, also if the handler
//! or the end of the attempt ends it before its answer. **Bounds.** [`UNANSWERED_MAX`] such ends
//! wait for their report; further ones are not counted. **Cost.** An uncontended lock for each
//! piece of a body, and four for each request.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use gristmill_core::metrics::endpoint::RequestEnd;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use parking_lot::Mutex;
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;
use wasmtime_wasi_http::Error;

use super::client::Slot;
use super::error::{HTTP_BODY_BYTES_MAX, REQUESTS_PER_JOB_MAX};

/// A body as `wasi:http` has it.
pub(super) type WasiBody = UnsyncBoxBody<Bytes, Error>;

/// The bytes of the bodies that a job has sent and received.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Traffic {
    /// Counts bytes of a request.
    pub(super) fn sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes of an answer.
    pub(super) fn received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Those of requests, and those of answers.
    pub(super) fn totals(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }
}

/// Most requests that have ended without an answer, and are not yet reported. The next request
/// reports them, so that a handler has more only if it abandons requests while the report waits for
/// another host.
const UNANSWERED_MAX: usize = 1_024;

/// The requests of a job that have no answer.
#[derive(Debug, Default)]
struct Unanswered {
    /// The number of the next request.
    next: u64,
    /// When each request that waits for its answer began, by its number.
    waiting: HashMap<u64, Instant>,
    /// Those that have ended, with the microseconds that they took.
    ended: Vec<(RequestEnd, u64)>,
}

impl Unanswered {
    fn abandoned(&mut self, began: Instant, deadline: Instant) {
        let now = Instant::now();
        let end = if now >= deadline { RequestEnd::TimedOut } else { RequestEnd::Abandoned };
        if self.ended.len() < UNANSWERED_MAX {
            self.ended.push((end, micros(now - began)));
        }
    }
}

/// A request that waits for its answer. Dropped before [`end`](Self::end), it counts as abandoned,
/// or as timed out if the attempt's deadline has passed.
#[derive(Debug)]
pub(super) struct Waiting {
    number: u64,
    deadline: Instant,
    calls: Arc<Calls>,
}

impl Waiting {
    /// The microseconds that the request took; `None` if its end is counted already.
    pub(super) fn end(self) -> Option<u64> {
        let began = self.calls.unanswered.lock().waiting.remove(&self.number)?;
        Some(micros(began.elapsed()))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut unanswered = self.calls.unanswered.lock();
        if let Some(began) = unanswered.waiting.remove(&self.number) {
            unanswered.abandoned(began, self.deadline);
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// The calls of one job.
#[derive(Debug, Default)]
pub(super) struct Calls {
    pub(super) traffic: Arc<Traffic>,
    unanswered: Mutex<Unanswered>,
    ended: CancellationToken,
    /// The bodies that still exist.
    open: Mutex<Vec<Weak<Mutex<Open>>>>,
}

/// An open body.
struct Open {
    /// `None`: the job has ended.
    body: Option<WasiBody>,
    /// Held by the body of a response until the handler is done with it.
    slot: Option<Slot>,
    /// The task that waits for the next piece.
    waker: Option<Waker>,
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl Calls {
    /// Completes when the job has ended.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Ends all calls.
    pub(super) fn end(&self) {
        self.ended.cancel();
        for open in std::mem::take(&mut *self.open.lock()) {
            let Some(open) = open.upgrade() else { continue };
            let mut open = open.lock();
            let (body, slot, waker) = (open.body.take(), open.slot.take(), open.waker.take());
            drop(open);
            drop((body, slot));
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Begins a request of an attempt that has this deadline.
    pub(super) fn begin(self: &Arc<Self>, deadline: Instant) -> Waiting {
        let mut unanswered = self.unanswered.lock();
        let number = unanswered.next;
        unanswered.next += 1;
        unanswered.waiting.insert(number, Instant::now());
        Waiting { number, deadline, calls: self.clone() }
    }

    /// Counts all requests that wait for their answers as ended.
    pub(super) fn abandon_all(&self, deadline: Instant) {
        let mut unanswered = self.unanswered.lock();
        for (_, began) in std::mem::take(&mut unanswered.waiting) {
            unanswered.abandoned(began, deadline);
        }
    }

    /// Takes a request that has ended without an answer, with the microseconds that it took.
    pub(super) fn next_unanswered(&self) -> Option<(RequestEnd, u64)> {
        self.unanswered.lock().ended.pop()
    }

    /// A body that fails beyond [`HTTP_BODY_BYTES_MAX`], after a long pause, or when the job has
    /// ended.
    pub(super) fn capped(
        &self,
        body: WasiBody,
        pause_max: Duration,
        slot: Option<Slot>,
    ) -> WasiBody {
        self.cap(body, pause_max, slot).boxed_unsync()
    }

    /// The same, without a box.
    pub(super) fn cap(&self, body: WasiBody, pause_max: Duration, slot: Option<Slot>) -> Capped {
        let is_response = slot.is_some();
        let open = Arc::new(Mutex::new(Open { body: Some(body), slot, waker: None }));
        {
            let mut all = self.open.lock();
            // At most two bodies of each open request are alive.
            if all.len() >= 4 * REQUESTS_PER_JOB_MAX {
                all.retain(|open| open.strong_count() > 0);
            }
            all.push(Arc::downgrade(&open));
        }
        if self.ended.is_cancelled() {
            self.end();
        }
        let pause = Box::pin(tokio::time::sleep(pause_max));
        let room = HTTP_BODY_BYTES_MAX;
        let traffic = self.traffic.clone();
        Capped { open, traffic, is_response, room, pause_max, pause }
    }
}

/// A body of a call, see [`Calls::capped`].
pub(super) struct Capped {
    open: Arc<Mutex<Open>>,
    traffic: Arc<Traffic>,
    is_response: bool,
    room: usize,
    pause_max: Duration,
    pause: Pin<Box<Sleep>>,
}

impl Body for Capped {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let polled = {
            let mut open = self.open.lock();
            let Some(body) = &mut open.body else {
                return Poll::Ready(Some(Err(Error::ConnectionTerminated)));
            };
            let polled = Pin::new(body).poll_frame(context);
            open.waker = polled.is_pending().then(|| context.waker().clone());
            polled
        };
        let Poll::Ready(frame) = polled else {
            let is_over = self.pause.as_mut().poll(context).is_ready();
            let timeout = || Poll::Ready(Some(Err(Error::ConnectionReadTimeout)));
            return if is_over { timeout() } else { Poll::Pending };
        };
        let Some(Ok(frame)) = frame else { return Poll::Ready(frame) };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        let Some(room) = self.room.checked_sub(bytes) else {
            let max = Some(HTTP_BODY_BYTES_MAX as u64);
            return Poll::Ready(Some(Err(match self.is_response {
                false => Error::HttpRequestBodySize(max),
                true => Error::HttpResponseBodySize(max),
            })));
        };
        self.room = room;
        match self.is_response {
            false => self.traffic.sent(bytes),
            true => self.traffic.received(bytes),
        }
        let next = tokio::time::Instant::now() + self.pause_max;
        self.pause.as_mut().reset(next);
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.open.lock().body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.open.lock().body.as_ref().map(Body::size_hint).unwrap_or_default()
    }
}
