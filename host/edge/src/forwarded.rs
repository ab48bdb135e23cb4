//! The calls that another host forwards over a connection of HTTP/2.
//!
//! The other host has taken each call from a client of its own, with all bounds of
//! [a connection](crate::Server), and is trusted with them. So a call here has no deadlines of a
//! client: the other host resets its stream when its client has left, or does not read. What
//! remains is memory: an answer that waits for the other host counts [among all that
//! wait](crate::ResponseBudget), and one that must make room ends with its stream alone.
//!
//! An answer whose length is not known ends with a [trailer](ANSWER_END): HTTP/2 shows a call that
//! was dropped, as at the end of the process, like one whose answer is complete.
//!
//! **Bounds.** Those of [`TRANSPORT`]. **Cost.** A task for each call, on the threads of the
//! connection.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::activity::{Activity, Call};
use crate::answer_body::{CountedBody, Holding};
use crate::answerer::Answerer;
use crate::call_origin::{CallOrigin, PeerAddress};
use crate::response_budget::{AnswerOwner, OverBudget, ResponseBudget};
use crate::unread::RequestBody;

/// The numbers that both sides of a connection use.
#[derive(Debug, Clone, Copy)]
pub struct Transport {
    /// Most calls of one connection.
    pub streams_max: u32,
    /// Bytes of one body that may be on their way.
    pub stream_window: u32,
    /// Bytes of all bodies of a connection that may be on their way: as many as all streams have,
    /// so that bodies without a reader do not stop the others.
    pub connection_window: u32,
    /// Bytes of a body that HTTP keeps until they can be sent.
    pub send_buffer: usize,
    /// Largest head: a client may send 64 KiB in 100 fields on HTTP/1.1.
    pub head_bytes_max: u32,
    /// The interval of pings.
    pub ping_interval: Duration,
    /// The connection is lost without an answer to a ping for this long.
    pub ping_time_max: Duration,
}

/// These numbers.
pub const TRANSPORT: Transport = Transport {
    streams_max: 2_048,
    stream_window: 16 << 10,
    connection_window: 2_048 * (16 << 10),
    send_buffer: 32 << 10,
    head_bytes_max: 80 << 10,
    ping_interval: Duration::from_secs(1),
    ping_time_max: Duration::from_secs(4),
};

/// The trailer of an answer without a length that is complete.
pub const ANSWER_END: HeaderName = HeaderName::from_static("gristmill-end");

/// Answers the calls that another host forwards.
#[derive(Debug, Clone)]
pub struct ForwardedCalls<A> {
    answerer: A,
    response_budget: Arc<ResponseBudget>,
}

impl<A: Answerer> ForwardedCalls<A> {
    /// Answers that wait for the other host count in this budget.
    pub fn new(answerer: A, response_budget: Arc<ResponseBudget>) -> Self {
        Self { answerer, response_budget }
    }

    /// Serves the calls of a connection until it ends.
    ///
    /// # Errors
    /// Why the connection was lost.
    pub async fn serve<IO>(self, io: IO, peer: PeerAddress) -> hyper::Result<()>
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut http = http2::Builder::new(TokioExecutor::new());
        http.timer(TokioTimer::new())
            .keep_alive_interval(TRANSPORT.ping_interval)
            .keep_alive_timeout(TRANSPORT.ping_time_max)
            .max_concurrent_streams(TRANSPORT.streams_max)
            .initial_stream_window_size(TRANSPORT.stream_window)
            .initial_connection_window_size(TRANSPORT.connection_window)
            .max_send_buf_size(TRANSPORT.send_buffer)
            .max_header_list_size(TRANSPORT.head_bytes_max)
            // Clients of the other host may leave at one time.
            .max_pending_accept_reset_streams(TRANSPORT.streams_max as usize)
            .max_local_error_reset_streams(None);
        let service = service_fn(move |request| {
            let calls = self.clone();
            async move { Ok::<_, Infallible>(calls.answer(request, peer).await) }
        });
        http.serve_connection(TokioIo::new(io), service).await
    }

    async fn answer(
        self,
        mut request: Request<Incoming>,
        peer: PeerAddress,
    ) -> Response<ForwardedBody<A::Body>> {
        let Self { answerer, response_budget } = self;
        // The deadlines of a client, which nothing here watches.
        let activity = Arc::new(Mutex::new(Activity::new()));
        let call = Call::begin(&activity, Version::HTTP_2);
        let (client, given_up) = (activity.lock().client.clone(), CancellationToken::new());
        let path = request.uri().path().to_owned();
        // The call as its client has made it: its `Host` names the host.
        let target = request.uri().path_and_query().map(|target| Uri::from(target.clone()));
        *request.uri_mut() = target.unwrap_or_default();
        *request.version_mut() = Version::HTTP_11;
        let (request, _) = RequestBody::watch(request, &Arc::default(), &client);
        let origin = Arc::new(CallOrigin::from(peer));
        let mut answer = answerer.answer(request, origin).await;
        let owner = answer.extensions().get::<AnswerOwner>();
        let owner = owner.map(|AnswerOwner(owner)| owner.clone());
        let holding = match answer.body().size_hint().exact() {
            None => {
                let given_up = given_up.clone();
                Holding::Pieces { response_budget, owner, given_up, held: None }
            }
            Some(bytes) => match response_budget.reserve_whole(bytes, owner.as_ref(), &given_up) {
                Ok(held) => Holding::Whole(held),
                Err(OverBudget) => {
                    answer = A::over_budget(&path, answer).await;
                    Holding::Whole(None)
                }
            },
        };
        let is_counted = !matches!(holding, Holding::Whole(None));
        answer.map(|body| {
            let body = Arc::new(Mutex::new(Some(CountedBody::new(body, call, holding))));
            let ended = CancellationToken::new();
            if is_counted {
                // HTTP asks for nothing while the other host has no room, so that nobody else
                // would notice.
                let (body, ended) = (body.clone(), ended.clone());
                tokio::spawn(async move {
                    tokio::select! {
                        () = given_up.cancelled() => drop(body.lock().take()),
                        () = ended.cancelled() => {}
                    }
                });
            }
            let has_length =
                body.lock().as_ref().is_none_or(|body| body.size_hint().exact().is_some());
            let is_ended = body.lock().as_ref().is_none_or(Body::is_end_stream);
            ForwardedBody { body, has_length, is_ended, _ended: ended.drop_guard() }
        })
    }
}

/// The body of an answer. It is dropped when it must make room for others, and its stream ends with
/// an error then.
struct ForwardedBody<B> {
    body: Arc<Mutex<Option<CountedBody<B>>>>,
    /// The head names its length, so that there is no trailer.
    has_length: bool,
    /// All was sent.
    is_ended: bool,
    _ended: DropGuard,
}

impl<B> Body for ForwardedBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.is_ended {
            return Poll::Ready(None);
        }
        let frame = match self.body.lock().as_mut() {
            Some(body) => ready!(Pin::new(body).poll_frame(context)),
            None => {
                let error = io::Error::other("others need the memory of this answer");
                return Poll::Ready(Some(Err(error.into())));
            }
        };
        let mut trailers = match frame.transpose().map_err(Into::<Self::Error>::into)? {
            Some(frame) => match frame.into_trailers() {
                Ok(trailers) => trailers,
                Err(data) => return Poll::Ready(Some(Ok(data))),
            },
            None if self.has_length => return Poll::Ready(None),
            None => HeaderMap::new(),
        };
        self.is_ended = true;
        if !self.has_length {
            trailers.insert(ANSWER_END, HeaderValue::from_static("1"));
        }
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        let is_sent = || self.body.lock().as_ref().is_some_and(Body::is_end_stream);
        self.is_ended || (self.has_length && is_sent())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.lock().as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
