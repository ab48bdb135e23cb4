//! One connection, from its first byte to its end.
//!
//! * Without a call, its time is bounded: a client that sends nothing, sends a head a byte at a
//!   time, or pauses between two calls keeps its place for a limited time
//!   ([`activity`](super::activity)).
//! * An unread answer holds memory, so the time for reading it is bounded, and all large answers
//!   together have [a bound](super::response_budget).
//! * All that callers without a valid key make the host keep [counts](super::unauthenticated) for
//!   their address.
//! * A body that was [not read](super::unread) when its answer is ready is read, or ends its stream
//!   on HTTP/2, and on HTTP/1 the connection, which then [lingers](super::linger).
//! * A client that ends its side right after a request [gets its answer](super::half_close); the
//!   call of a client that ends it later is dropped.

use std::convert::Infallible;
use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt as _;
use hyper::body::Body as _;
use hyper::header::{self, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::activity::{Activity, AfterRefusal, Call, quiet_for_too_long};
use crate::addresses::{Account, NoRoom};
use crate::answer_body::{CountedBody, Holding};
use crate::answerer::Answerer;
use crate::call_origin::{CallOrigin, PeerAddress};
use crate::connection_shares::ConnectionAuth;
use crate::interrupts::Rarely;
use crate::protocol::{CallExecutor, FIELDS_MAX, http};
use crate::read_turns::ReadTurn;
use crate::response_budget::{AnswerOwner, OverBudget, ResponseBudget, is_large};
use crate::thread_time::Measured;
use crate::unauthenticated::{Buffers, counted, head_bytes};
use crate::unread::{RequestBody, Unread};
use crate::watched::Watched;

/// The shared state of all connections of a listener.
#[derive(Debug)]
pub struct Server<A> {
    answerer: A,
    /// How long a connection may be without a call.
    idle_wait: Duration,
    response_budget: Arc<ResponseBudget>,
    /// Fires when connections must end.
    pub(crate) end: CancellationToken,
}

impl<A: Answerer> Server<A> {
    /// The state of connections that end when `end` fires, or after `idle_wait` without a call.
    pub fn new(
        answerer: A,
        idle_wait: Duration,
        response_budget: Arc<ResponseBudget>,
        end: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self { answerer, idle_wait, response_budget, end })
    }

    /// Serves the calls of a connection until the client closes it, it is quiet for too long, or
    /// `end` fires; then the running calls are completed. The connection is closed at once when its
    /// account requires it, unless one of its calls has shown a valid key by then.
    pub async fn serve<IO>(
        &self,
        stream: IO,
        peer: PeerAddress,
        connection_auth: Arc<ConnectionAuth>,
        account: Arc<Account>,
    ) where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Arc::new(Mutex::new(Activity::new()));
        // Fires when other clients need the memory of its answers, or its calls are refused.
        let given_up = &CancellationToken::new();
        let unread = Arc::new(Unread::default());
        let client = activity.lock().client.clone();
        let service = service_fn(|mut request: Request<_>| {
            let mut call = Call::begin(&activity, request.version());
            let client_address = self.answerer.client(peer, request.headers_mut());
            let uri = request.uri().clone();
            let head_bytes = if account.has_key() { 0 } else { head_bytes(request.headers()) };
            let has_too_many_fields = request.headers().len() > FIELDS_MAX;
            let (request, unread) = RequestBody::watch(request, &unread, &client);
            let is_multiplexed = request.version() == Version::HTTP_2;
            let connection_auth = connection_auth.clone();
            let origin = Arc::new(CallOrigin::new(client_address, connection_auth.clone()));
            // Boxed: hyper copies the future of a call five times, and it has 2.7 KB.
            let answering = match has_too_many_fields {
                // The request is dropped here, before the call waits for anything.
                true => ready(empty(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)).boxed(),
                false => self.answerer.clone().answer(request, origin.clone()),
            };
            let (response_budget, given_up) = (self.response_budget.clone(), given_up.clone());
            let account = account.clone();
            async move {
                let mut has_room = true;
                let mut answer = match counted(answering, &account, &origin, head_bytes).await {
                    Ok((answer, charge)) => {
                        call.charge = charge;
                        answer
                    }
                    Err(NoRoom) => {
                        // Calls with a key may share the connection of one that shows none.
                        if !account.has_key() {
                            connection_auth.end();
                        }
                        has_room = false;
                        empty(StatusCode::SERVICE_UNAVAILABLE)
                    }
                };
                let owner = answer.extensions().get::<AnswerOwner>();
                let owner = owner.map(|AnswerOwner(owner)| owner.clone());
                let whole = answer.body().size_hint().exact();
                let is_charged = call.charge.is_some();
                call.has_key = origin.has_key();
                // Also an answered call, if the client was asked to end the connection before it.
                if !call.has_key
                    && (answer.status() == StatusCode::TOO_MANY_REQUESTS
                        || connection_auth.is_ending())
                {
                    match call.count_refusal() {
                        AfterRefusal::GoesOn => {}
                        AfterRefusal::Ends => connection_auth.end(),
                        AfterRefusal::IsCutOff => given_up.cancel(),
                    }
                }
                let is_one = |bytes: &u64| !is_multiplexed || is_large(*bytes) || is_charged;
                let mut holding = match whole.filter(is_one) {
                    // A small answer on HTTP/2 is one of up to 256, and is counted when it is
                    // passed on.
                    None => Holding::Pieces { response_budget, owner, given_up, held: None },
                    Some(bytes) => {
                        let reserved =
                            response_budget.reserve_whole(bytes, owner.as_ref(), &given_up);
                        match reserved {
                            Ok(held) => Holding::Whole(held),
                            Err(OverBudget) => {
                                answer = A::over_budget(uri.path(), answer).await;
                                Holding::Whole(None)
                            }
                        }
                    }
                };
                // After the answer is counted, since it is in memory meanwhile: a small one as its
                // first piece.
                let is_unread = match unread {
                    // A connection that is not counted waits for nothing.
                    Some(unread) if has_room && call.begin_rest() => {
                        let bytes = whole.and_then(|bytes| usize::try_from(bytes).ok());
                        holding.begin_piece(bytes.unwrap_or_default(), &mut call);
                        let is_unread = !unread.reaches_end().await;
                        call.end_rest();
                        is_unread
                    }
                    Some(_) => true,
                    None => false,
                };
                // HTTP/2 has frames for that. Without the header, the client's next call would meet
                // the end of the connection.
                if !is_multiplexed && (is_unread || connection_auth.is_ending()) {
                    let close = HeaderValue::from_static("close");
                    answer.headers_mut().insert(header::CONNECTION, close);
                    call.announced_close();
                }
                Ok::<_, Infallible>(answer.map(|body| CountedBody::new(body, call, holding)))
            }
        });
        let watched = Watched::new(stream, activity.clone(), account.clone());
        let stream = TokioIo::new(watched);
        let http = http(CallExecutor::new(connection_auth.clone(), account.clone()));
        let mut connection = pin!(http.serve_connection(stream, service));
        let mut buffers = Buffers::of(&account);
        let mut is_ending = false;
        loop {
            // Awaited with the same deadline for the client's end once the connection is ending.
            let room =
                Room { given_up, replaced: &account.closing, connection_auth: &connection_auth };
            let interrupt = self.interrupt(&activity, room, is_ending).boxed();
            let interrupt = tokio::select! {
                biased;
                outcome = poll_fn(|context| {
                    let measured = account.begin_poll();
                    let turn = account.turn();
                    let in_turns = || Some(turn).filter(|turn| turn.is_needed());
                    let before = in_turns().inspect(|turn| turn.end());
                    let outcome = connection.as_mut().poll(context);
                    let time = measured.map(Measured::end);
                    match in_turns() {
                        Some(turn) => {
                            if let Some(time) = time {
                                turn.took(time, activity.lock().calls_begun());
                            }
                            turn.ends_later(context);
                        }
                        // A call on another thread may have shown a key while the connection asked.
                        None => before.into_iter().for_each(ReadTurn::leave),
                    }
                    if outcome.is_ready() || account.has_key() {
                        return outcome;
                    }
                    match buffers.count(&activity) {
                        Ok(()) => Poll::Pending,
                        Err(NoRoom) => Poll::Ready(Err("no room for a head, or for streams".into())),
                    }
                }) => {
                    if let Err(error) = outcome {
                        debug!(%error, "a connection ended early: {error}");
                    }
                    return;
                }
                interrupt = Rarely::new(interrupt) => interrupt,
            };
            match interrupt {
                Interrupt::GivenUp => {
                    debug!(
                        "a connection was closed: others needed its room, or it went on too long"
                    );
                    return;
                }
                Interrupt::Quiet if is_ending => {
                    debug!("a connection was closed: the client did not end it");
                    return;
                }
                Interrupt::Quiet | Interrupt::End => {
                    is_ending = true;
                    activity.lock().ends_since.get_or_insert_with(Instant::now);
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }

    /// Returns when the connection must be interrupted. A connection that `is_ending` is not asked
    /// to end again.
    async fn interrupt(
        &self,
        activity: &Mutex<Activity>,
        room: Room<'_>,
        is_ending: bool,
    ) -> Interrupt {
        tokio::select! {
            () = room.needed() => Interrupt::GivenUp,
            () = self.end.cancelled(), if !is_ending => Interrupt::End,
            () = room.connection_auth.ends(), if !is_ending => Interrupt::End,
            () = quiet_for_too_long(activity, self.idle_wait) => Interrupt::Quiet,
        }
    }
}

fn empty<B: Default>(status: StatusCode) -> Response<B> {
    let mut answer = Response::new(B::default());
    *answer.status_mut() = status;
    answer
}

/// The events by which a connection loses its room to other clients.
#[derive(Clone, Copy)]
struct Room<'a> {
    given_up: &'a CancellationToken,
    replaced: &'a CancellationToken,
    connection_auth: &'a ConnectionAuth,
}

impl Room<'_> {
    /// Resolves when the connection must be closed at once. A connection that is replaced keeps its
    /// room if a call has shown a valid key meanwhile: that call may have taken effect already.
    async fn needed(self) {
        let replaced = async {
            self.replaced.cancelled().await;
            if self.connection_auth.has_key() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = self.given_up.cancelled() => {}
            () = replaced => {}
        }
    }
}

/// Why a connection is interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interrupt {
    /// Its answers or its place are needed for other clients, or it goes on after refusals.
    GivenUp,
    /// All connections must end, or this one has no valid key any more.
    End,
    /// Its client has done nothing for too long.
    Quiet,
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
