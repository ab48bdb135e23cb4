//! One connection, from its first byte to its end. While no call is in progress, the connection's
//! time is bounded: a client that sends nothing, sends a head a byte at a time, or pauses between
//! two calls keeps its place only for a limited time. During a call, its body and its wait have
//! separate bounds. The time for reading its answer is bounded here, since an unread answer holds
//! memory. All large answers together have [a bound](super::response_budget), and so has everything that
//! [callers without a valid key](super::addresses) make the host keep. A body that was [not
//! read](super::unread) when its answer is ready is read, or ends its stream on HTTP/2, and on HTTP/1 the
//! connection, which then [lingers](super::linger). A client that ends its side right after a request [gets its
//! answer](super::half_close); the call of a client that ends it later is dropped.

use std::convert::Infallible;
use std::future::{poll_fn, ready};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use gristmill_api::{
    AnswerBody, AnswerOwner, CallOrigin, ConnectionAuth, PeerAddress, RefusalFormat,
    SMALL_ANSWER_BYTES, response_over_budget,
};
use gristmill_core::id::OwnerId;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::addresses::{Account, CONNECTION_BYTES, Charge, NoRoom};
use super::front::Front;
use super::half_close::ClientSide;
use super::interrupts::Rarely;
use super::linger::Linger;
use super::protocol::{CallExecutor, FIELDS_MAX, QUEUED_BYTES_MAX, http};
use super::response_budget::{BudgetPermit, OverBudget, ResponseBudget};
use super::unread::{RequestBody, Unread};

/// A client must send the whole head of a request within this time after its first byte, or is
/// disconnected.
const HEAD_WAIT: Duration = Duration::from_secs(20);

/// Time for a client to close the connection after it was requested to.
const END_WAIT: Duration = Duration::from_secs(5);

/// A client that has read nothing of its answer for this long is disconnected.
const TAKE_WAIT: Duration = Duration::from_secs(30);

/// A client is also disconnected if the host has waited for it longer than [`TAKE_WAIT`] in total
/// and it reads slower than this.
const BYTES_PER_SECOND_MIN: u64 = 16 << 10;

/// The first bytes of an HTTP/2 connection (RFC 9113, section 3.4). They are no head: a client may
/// open a connection ahead of its first call.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An answer is passed on in pieces of this size, which shows whether the client reads it.
const PIECE_BYTES: usize = 256 << 10;

/// The end of a longer answer on HTTP/2 is a piece of its own: until HTTP takes it, the client has no room for
/// the bytes before it, and the answer counts. Clients may end a connection with many shorter pieces.
const END_BYTES: usize = 256;

/// About the memory of a field beside its text.
const FIELD_BYTES: usize = 128;

/// About the memory of a call beside its head and the body of its answer: 2.1 to 2.4 KiB were measured on
/// HTTP/2, where the task and the stream are a part of it.
const CALL_BYTES: usize = 3 << 10;

/// The memory of each stream for which HTTP/2 has made room, until the connection ends: 600 bytes were measured.
const STREAM_BYTES: usize = 640;

/// A byte of an incomplete head counts as so many bytes: on HTTP/1, the buffer may be twice as large.
const HEAD_FACTOR: usize = 2;

/// The same on HTTP/2, where a byte may name a field.
const MULTIPLEXED_HEAD_FACTOR: usize = 32;

/// Most bytes of an incomplete head of HTTP/2, which has a frame of 16 KiB and 496 fields.
const MULTIPLEXED_HEAD_MAX: usize = 64 << 10;

/// The shared state of all connections.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) front: Front,
    /// How long a connection may be without a call.
    pub(crate) idle_wait: Duration,
    pub(crate) response_budget: Arc<ResponseBudget>,
    /// Fires when connections must end.
    pub(crate) end: CancellationToken,
}

impl Server {
    /// Serves the calls of a connection until the client closes it, it is quiet for too long, or
    /// `end` fires; then the running calls are completed. With an account, the connection is closed at
    /// once when the account requires it, unless one of its calls has shown a valid key by then.
    pub(crate) async fn serve<IO>(
        &self,
        stream: IO,
        peer: PeerAddress,
        connection_auth: Arc<ConnectionAuth>,
        account: Option<Arc<Account>>,
    ) where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let activity = Arc::new(Mutex::new(Activity::new()));
        // Fires when other clients need the memory of its answers.
        let given_up = &CancellationToken::new();
        let unread = Arc::new(Unread::default());
        let client = activity.lock().client.clone();
        let service = service_fn(|request: Request<_>| {
            let mut call = Call::begin(&activity, request.version());
            let uri = request.uri().clone();
            let head_bytes = match &account {
                Some(account) if !account.has_key() => head_bytes(request.headers()),
                Some(_) | None => 0,
            };
            let has_too_many_fields = request.headers().len() > FIELDS_MAX;
            let (request, unread) = RequestBody::watch(request, &unread, &client);
            let is_multiplexed = request.version() == Version::HTTP_2;
            let connection_auth = connection_auth.clone();
            let origin = Arc::new(CallOrigin::new(peer, connection_auth.clone()));
            // Boxed: hyper copies the future of a call five times, and it has 2.7 KB.
            let answering = match has_too_many_fields {
                // The request is dropped here, before the call waits for anything.
                true => ready(empty(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE)).boxed(),
                false => self.front.clone().answer(request, origin.clone()).boxed(),
            };
            let (response_budget, given_up) = (self.response_budget.clone(), given_up.clone());
            let account = account.clone();
            async move {
                let mut answer = match account {
                    None => answering.await,
                    Some(account) => {
                        match counted(answering, &account, &origin, head_bytes).await {
                            Ok((answer, charge)) => {
                                call.charge = charge;
                                answer
                            }
                            Err(NoRoom) => {
                                // Calls with a key may share the connection of one that shows none.
                                if !account.has_key() {
                                    connection_auth.end();
                                }
                                empty(StatusCode::SERVICE_UNAVAILABLE)
                            }
                        }
                    }
                };
                let owner = answer.extensions().get::<AnswerOwner>();
                let owner = owner.map(|AnswerOwner(owner)| owner.clone());
                let whole = answer.body().size_hint().exact();
                let is_charged = call.charge.is_some();
                let is_one = |bytes: &u64| !is_multiplexed || is_large(*bytes) || is_charged;
                let mut holding = match whole.filter(is_one) {
                    // A small answer on HTTP/2 is one of up to 256, and is counted when it is passed on.
                    None => Holding::Pieces { response_budget, owner, given_up, held: None },
                    Some(bytes) => {
                        let reserved =
                            response_budget.reserve_whole(bytes, owner.as_ref(), &given_up);
                        match reserved {
                            Ok(held) => Holding::Whole(held),
                            Err(OverBudget) => {
                                let format = RefusalFormat::of(uri.path());
                                answer = response_over_budget(format, answer).await;
                                Holding::Whole(None)
                            }
                        }
                    }
                };
                // After the answer is counted, since it is in memory meanwhile: a small one as its first piece.
                let is_unread = match unread {
                    Some(unread) => {
                        let bytes = whole.and_then(|bytes| usize::try_from(bytes).ok());
                        holding.begin_piece(bytes.unwrap_or_default(), &mut call);
                        !unread.reaches_end().await
                    }
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
        let replaced = account.as_ref().map(|account| account.closing.clone()).unwrap_or_default();
        let watched = Watched {
            stream,
            activity: activity.clone(),
            client: client.clone(),
            account: account.clone(),
            has_ended: false,
            linger: None,
        };
        let stream = TokioIo::new(watched);
        let http = http(CallExecutor::new(connection_auth.clone()));
        let mut connection = pin!(http.serve_connection_with_upgrades(stream, service));
        let mut buffers = Buffers { account: account.as_deref(), counted: (0, CONNECTION_BYTES) };
        let mut is_ending = false;
        loop {
            // Awaited with the same deadline for the client's end once the connection is ending.
            let room = Room { given_up, replaced: &replaced, connection_auth: &connection_auth };
            let interrupt = self.interrupt(&activity, room, is_ending).boxed();
            let interrupt = tokio::select! {
                biased;
                outcome = poll_fn(|context| {
                    let outcome = connection.as_mut().poll(context);
                    match outcome.is_pending() && buffers.count(&activity).is_err() {
                        true => Poll::Ready(Err("no room for a head, or for streams".into())),
                        false => outcome,
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
                    debug!("a connection was closed: others needed its room");
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

    /// Returns when the connection must be interrupted. A connection that `is_ending` is not asked to end
    /// again.
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

/// Waits for the answer to a call, and counts the call unless it has had a valid key. The check of a key
/// waits for nothing, so that a call with a key is known after the first poll and is never counted; on a
/// host that stands by, the active host checks keys, and the first calls of a connection count meanwhile.
///
/// # Errors
/// [`NoRoom`]: the call was dropped.
async fn counted(
    mut answering: BoxFuture<'static, Response<AnswerBody>>,
    account: &Arc<Account>,
    origin: &CallOrigin,
    head_bytes: usize,
) -> Result<(Response<AnswerBody>, Option<Charge>), NoRoom> {
    let mut charge: Option<Charge> = None;
    let answer = poll_fn(|context| {
        let answer = answering.as_mut().poll(context);
        if origin.has_key() {
            account.show_key();
            if let Some(charge) = charge.take() {
                charge.cancel();
            }
        } else if answer.is_pending() && charge.is_none() && !account.has_key() {
            charge = Some(account.charge(CALL_BYTES + head_bytes)?);
        }
        answer.map(Ok)
    })
    .await?;
    drop(answering);
    if origin.has_key() {
        return Ok((answer, None));
    }
    // Larger ones have a budget of their own.
    let size = answer.body().size_hint().exact().filter(|bytes| !is_large(*bytes));
    let bytes = CALL_BYTES + size.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or_default();
    let charge = match charge {
        Some(mut charge) => charge.resize(bytes).map(|()| charge),
        None => account.charge(bytes),
    };
    Ok((answer, Some(charge?)))
}

/// About the memory of the fields of a head.
fn head_bytes(fields: &HeaderMap) -> usize {
    let texts = fields.iter().map(|(name, value)| name.as_str().len() + value.len());
    fields.len() * FIELD_BYTES + texts.sum::<usize>()
}

fn empty(status: StatusCode) -> Response<AnswerBody> {
    let mut answer = Response::new(AnswerBody::empty());
    *answer.status_mut() = status;
    answer
}

/// The buffers of a connection that has shown no key. They are counted after HTTP has begun all calls that
/// have arrived, so that the heads of these are not a part of them.
struct Buffers<'a> {
    account: Option<&'a Account>,
    /// The incomplete head and the rest.
    counted: (usize, usize),
}

impl Buffers<'_> {
    fn count(&mut self, activity: &Mutex<Activity>) -> Result<(), NoRoom> {
        let Some(account) = self.account.filter(|account| !account.has_key()) else {
            return Ok(());
        };
        let memory = activity.lock().memory();
        if memory != self.counted {
            account.set_buffers(memory.0, memory.1)?;
            self.counted = memory;
        }
        Ok(())
    }
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
    /// Its answers or its place are needed for other clients.
    GivenUp,
    /// All connections must end, or this one has no valid key any more.
    End,
    /// Its client has done nothing for too long.
    Quiet,
}

/// Returns when the connection has been without a call for too long, or its client has not read an
/// answer in time.
async fn quiet_for_too_long(activity: &Mutex<Activity>, idle_wait: Duration) {
    loop {
        let now = Instant::now();
        let deadline = activity.lock().deadline(idle_wait);
        if deadline.is_some_and(|deadline| deadline <= now) {
            return;
        }
        // A wait that begins from now on may last at least this long.
        let next = now + HEAD_WAIT.min(TAKE_WAIT).min(idle_wait);
        sleep_until(deadline.map_or(next, |deadline| deadline.min(next))).await;
    }
}

/// The activity on a connection.
#[derive(Debug)]
struct Activity {
    calls: usize,
    /// The calls with output that the client has not read yet, and their deadlines.
    unread_answers: Vec<(u64, Instant)>,
    /// HTTP/2: bytes of answers that are unread and not counted among those of all connections. At most
    /// [`SMALL_ANSWER_BYTES`].
    uncounted_bytes: usize,
    /// The number of the next call.
    next_call: u64,
    /// When the last call ended, or the connection was opened.
    quiet_since: Instant,
    /// When the first byte of an incomplete head arrived.
    head_since: Option<Instant>,
    /// Bytes that may belong to an incomplete head: all since the begin of the last call on HTTP/2, and those
    /// between two calls on HTTP/1.
    head_bytes: usize,
    /// Calls since bytes have arrived: on HTTP/2 all of them were in memory at one time.
    calls_at_once: usize,
    /// The most calls that were in memory at one time.
    calls_peak: usize,
    /// When the client was asked to close the connection.
    ends_since: Option<Instant>,
    /// HTTP/2: bytes between two calls need not be a head.
    is_multiplexed: bool,
    /// The rest of the preface, with which the connection's next bytes are compared. Empty once the
    /// bytes so far have shown whether this is HTTP/2.
    preface_left: &'static [u8],
    /// An answer has announced that the connection ends with it.
    announced_close: bool,
    client: Arc<ClientSide>,
}

impl Activity {
    fn new() -> Self {
        let quiet_since = Instant::now();
        let (head_since, ends_since) = (None, None);
        let (calls, unread_answers, next_call) = (0, vec![], 0);
        let (is_multiplexed, announced_close) = (false, false);
        Self {
            calls,
            unread_answers,
            uncounted_bytes: 0,
            next_call,
            quiet_since,
            head_since,
            head_bytes: 0,
            calls_at_once: 0,
            calls_peak: 0,
            ends_since,
            is_multiplexed,
            preface_left: PREFACE,
            announced_close,
            client: Arc::default(),
        }
    }

    fn is_ending(&self) -> bool {
        self.ends_since.is_some()
    }

    /// The time at which the connection has been quiet for too long. During a call it is the
    /// deadline for reading the answer, if there is one.
    fn deadline(&self, idle_wait: Duration) -> Option<Instant> {
        if self.calls > 0 {
            return self.unread_answers.iter().map(|(_, deadline)| *deadline).min();
        }
        if let Some(since) = self.ends_since {
            return Some(since.max(self.quiet_since) + END_WAIT);
        }
        let idle = self.quiet_since + idle_wait;
        Some(self.head_since.map_or(idle, |since| since + HEAD_WAIT))
    }

    /// How to end a connection after HTTP has finished: `None` when the client has nothing more to
    /// send. An incomplete head was refused by HTTP itself, without an announcement.
    fn linger(&self) -> Option<Linger> {
        let is_head_refused = self.head_since.is_some() && !self.is_ending();
        (self.announced_close || is_head_refused).then(|| Linger::begin(self.announced_close))
    }

    fn came(&mut self, bytes: &[u8]) {
        if !self.preface_left.is_empty() {
            self.look_for_preface(bytes);
        }
        if self.calls == 0 && !self.is_multiplexed {
            self.head_since.get_or_insert_with(Instant::now);
        }
        if self.calls == 0 || self.is_multiplexed {
            self.head_bytes += bytes.len();
        }
        self.calls_at_once = 0;
    }

    /// About the memory of an incomplete head, and of the connection's buffers.
    fn memory(&self) -> (usize, usize) {
        let head = match self.is_multiplexed {
            true => (self.head_bytes * MULTIPLEXED_HEAD_FACTOR).min(MULTIPLEXED_HEAD_MAX),
            false => self.head_bytes * HEAD_FACTOR,
        };
        // A small one is a part of the buffers.
        let head = if head > CONNECTION_BYTES { head } else { 0 };
        let streams = match self.is_multiplexed && self.calls_peak > 1 {
            true => self.calls_peak.next_power_of_two() * STREAM_BYTES,
            false => 0,
        };
        let buffers = CONNECTION_BYTES + streams;
        (head, buffers)
    }

    /// Compares the connection's first bytes with the preface. An incomplete preface must be
    /// completed in the same time as a head.
    fn look_for_preface(&mut self, bytes: &[u8]) {
        let expected = self.preface_left;
        if let Some(left) = expected.strip_prefix(bytes) {
            self.preface_left = left;
            self.is_multiplexed = left.is_empty();
        } else {
            self.preface_left = &[];
            self.is_multiplexed = bytes.starts_with(expected);
        }
        if self.is_multiplexed {
            self.head_since = None;
        }
    }
}

/// A call in progress: from its head until the client has read the last byte of its answer.
struct Call {
    activity: Arc<Mutex<Activity>>,
    number: u64,
    is_multiplexed: bool,
    /// Bytes of the answer that were passed on.
    handed: u64,
    /// The current piece's part of [`Activity::uncounted_bytes`].
    uncounted_bytes: usize,
    /// When the last of them were passed on, while the client has not read them.
    waits_since: Option<Instant>,
    /// The total time of waiting for the client.
    waited: Duration,
    /// What the call holds, if it has had no valid key.
    charge: Option<Charge>,
}

impl Call {
    fn begin(activity: &Arc<Mutex<Activity>>, version: Version) -> Self {
        let mut now = activity.lock();
        now.calls += 1;
        now.calls_at_once += 1;
        now.calls_peak = now.calls_peak.max(now.calls).max(now.calls_at_once);
        (now.head_since, now.head_bytes) = (None, 0);
        let is_multiplexed = version == Version::HTTP_2;
        now.is_multiplexed = is_multiplexed;
        now.client.call_began(is_multiplexed);
        let number = now.next_call;
        now.next_call += 1;
        drop(now);
        let (handed, waits_since, waited) = (0, None, Duration::ZERO);
        Self {
            activity: activity.clone(),
            number,
            is_multiplexed,
            handed,
            uncounted_bytes: 0,
            waits_since,
            waited,
            charge: None,
        }
    }

    /// The answer announces that the connection ends with it.
    fn announced_close(&self) {
        self.activity.lock().announced_close = true;
    }

    /// More bytes were passed on; HTTP asks for further ones once the client has read them.
    fn hand_over(&mut self, bytes: usize) {
        let now = Instant::now();
        self.handed += bytes as u64;
        self.waits_since = Some(now);
        let earned = Duration::from_secs(self.handed / BYTES_PER_SECOND_MIN);
        let left = (TAKE_WAIT + earned).saturating_sub(self.waited).min(TAKE_WAIT);
        self.activity.lock().unread_answers.push((self.number, now + left));
    }

    /// Whether a piece needs no room among the answers of all connections: it is small, and so are all such
    /// pieces of its connection together. An HTTP/1 connection has one call at a time.
    fn may_be_uncounted(&mut self, bytes: usize) -> bool {
        if is_large(bytes as u64) || !self.is_multiplexed {
            return !is_large(bytes as u64);
        }
        let mut activity = self.activity.lock();
        let sum = activity.uncounted_bytes + bytes;
        if is_large(sum as u64) {
            return false;
        }
        activity.uncounted_bytes = sum;
        self.uncounted_bytes = bytes;
        true
    }

    fn end_piece(&mut self) {
        if self.uncounted_bytes > 0 {
            self.activity.lock().uncounted_bytes -= std::mem::take(&mut self.uncounted_bytes);
        }
    }

    fn taken(&mut self) {
        let Some(since) = self.waits_since.take() else { return };
        self.waited += since.elapsed();
        self.activity.lock().unread_answers.retain(|(number, _)| *number != self.number);
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.taken();
        self.end_piece();
        let mut activity = self.activity.lock();
        activity.calls -= 1;
        activity.client.call_ended();
        activity.quiet_since = Instant::now();
    }
}

/// The body of an answer, which ends its call.
struct CountedBody<B> {
    body: B,
    /// The rest of a large piece.
    rest: Bytes,
    holding: Holding,
    call: Call,
}

/// The entry of an answer among those that wait for their clients.
enum Holding {
    Whole(Option<BudgetPermit>),
    /// One piece after the other.
    Pieces {
        response_budget: Arc<ResponseBudget>,
        owner: Option<OwnerId>,
        given_up: CancellationToken,
        held: Option<BudgetPermit>,
    },
}

/// Whether an answer or a piece of so many bytes is always counted.
fn is_large(bytes: u64) -> bool {
    bytes > SMALL_ANSWER_BYTES as u64
}

impl Holding {
    fn begin_piece(&mut self, bytes: usize, call: &mut Call) {
        if let Self::Pieces { response_budget, owner, given_up, held } = self
            && !call.may_be_uncounted(bytes)
        {
            *held = Some(response_budget.reserve_piece(bytes, owner.as_ref(), given_up));
        }
    }

    fn record_progress(&mut self) {
        let (Self::Whole(held) | Self::Pieces { held, .. }) = self;
        if let Some(held) = held {
            held.record_progress();
        }
    }

    fn end_piece(&mut self) {
        if let Self::Pieces { held, .. } = self {
            *held = None;
        }
    }
}

impl<B> CountedBody<B> {
    fn new(body: B, call: Call, holding: Holding) -> Self {
        Self { body, rest: Bytes::new(), holding, call }
    }

    /// The size of the next piece. The bytes that remain in HTTP's queue after the last piece are not counted
    /// any more, so that it is small.
    fn piece_bytes(&self) -> usize {
        let left = self.rest.len();
        let last = match self.call.is_multiplexed {
            true if left > QUEUED_BYTES_MAX => END_BYTES,
            false if left > SMALL_ANSWER_BYTES => SMALL_ANSWER_BYTES,
            true | false => return left,
        };
        (left - last).min(PIECE_BYTES)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for CountedBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        self.call.taken();
        self.holding.record_progress();
        if self.rest.is_empty() {
            self.holding.end_piece();
            self.call.end_piece();
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                other => return Poll::Ready(other),
            };
            match frame.into_data() {
                Ok(data) => {
                    let Self { holding, call, .. } = &mut *self;
                    holding.begin_piece(data.len(), call);
                    self.rest = data;
                }
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let bytes = self.piece_bytes();
        let piece = self.rest.split_to(bytes);
        // HTTP/1 drops the body with its last piece, and the call ends here. HTTP/2 keeps both until the
        // client has room for the piece, which may be never.
        if self.call.is_multiplexed || !self.is_end_stream() {
            self.call.hand_over(bytes);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (left, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + left);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + left);
        }
        hint
    }
}

/// A stream that records the arrival of bytes, and lingers at its end if the client may still be
/// sending.
struct Watched<IO> {
    stream: IO,
    activity: Arc<Mutex<Activity>>,
    client: Arc<ClientSide>,
    account: Option<Arc<Account>>,
    /// A read has found the end of the client's data.
    has_ended: bool,
    linger: Option<Linger>,
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

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Duration = Duration::from_secs(75);

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_bounded_only_while_there_is_no_call() {
        let activity = Arc::new(Mutex::new(Activity::new()));
        let started = Instant::now();
        let deadline = || activity.lock().deadline(IDLE).map(|at| at - started);
        assert_eq!(deadline(), Some(IDLE));
        tokio::time::advance(Duration::from_secs(1)).await;
        activity.lock().came(b"G");
        tokio::time::advance(Duration::from_secs(1)).await;
        activity.lock().came(b"G");
        assert_eq!(deadline(), Some(Duration::from_secs(1) + HEAD_WAIT), "from the first byte");
        let call = Call::begin(&activity, Version::HTTP_11);
        activity.lock().came(b"G");
        assert_eq!(deadline(), None);
        tokio::time::advance(IDLE * 2).await;
        drop(call);
        assert_eq!(deadline(), Some(Duration::from_secs(2) + IDLE * 3), "from the call's end");
        // On HTTP/2 a client may send a ping.
        drop(Call::begin(&activity, Version::HTTP_2));
        activity.lock().came(b"G");
        assert_eq!(deadline(), Some(Duration::from_secs(2) + IDLE * 3));
        activity.lock().ends_since = Some(started);
        assert_eq!(deadline(), Some(Duration::from_secs(2) + IDLE * 2 + END_WAIT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_whole_preface_of_http_2_is_not_the_begin_of_a_head() {
        let settings = [PREFACE, &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
        let byte_by_byte: Vec<&[u8]> = PREFACE.chunks(1).collect();
        let cases: [(&[&[u8]], bool); 8] = [
            (&[PREFACE], true),
            (&[&settings], true),
            (&byte_by_byte, true),
            (&[&PREFACE[..23], &settings[23..], b"x"], true),
            (&[&PREFACE[..23]], false),
            (&[&PREFACE[..23], b"x", &PREFACE[23..]], false),
            (&[b"P", PREFACE], false),
            (&[b"GET / HTTP/1.1\r\n", PREFACE], false),
        ];
        for (pieces, is_preface) in cases {
            let mut activity = Activity::new();
            for piece in pieces {
                activity.came(piece);
            }
            let expected = if is_preface { IDLE } else { HEAD_WAIT };
            let left = activity.deadline(IDLE).map(|at| at - Instant::now());
            assert_eq!(left, Some(expected), "{pieces:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_has_to_be_taken_in_time() {
        let activity = Arc::new(Mutex::new(Activity::new()));
        let left = || activity.lock().deadline(IDLE).map(|at| at - Instant::now());
        let mut call = Call::begin(&activity, Version::HTTP_11);
        call.hand_over(BYTES_PER_SECOND_MIN as usize);
        assert_eq!(left(), Some(TAKE_WAIT));
        tokio::time::advance(Duration::from_secs(29)).await;
        call.taken();
        assert_eq!(left(), None, "the handler may take its time");
        tokio::time::advance(IDLE).await;
        call.hand_over(BYTES_PER_SECOND_MIN as usize);
        assert_eq!(left(), Some(Duration::from_secs(3)), "of 30 s, and one for each 16 KiB");
        drop(call);
        assert_eq!(left(), Some(IDLE));
    }

    #[tokio::test]
    async fn a_large_answer_is_handed_over_in_pieces() {
        use http_body_util::{BodyExt as _, Full};

        // HTTP/2 holds the last piece until the client has room for it.
        let sizes = [
            (
                Version::HTTP_11,
                [PIECE_BYTES, PIECE_BYTES + 1 - SMALL_ANSWER_BYTES, SMALL_ANSWER_BYTES],
                0,
            ),
            (Version::HTTP_2, [PIECE_BYTES, PIECE_BYTES + 1 - END_BYTES, END_BYTES], 1),
        ];
        for (version, sizes, last_unread) in sizes {
            let activity = Arc::new(Mutex::new(Activity::new()));
            let whole = Bytes::from(vec![7; 2 * PIECE_BYTES + 1]);
            let call = Call::begin(&activity, version);
            let mut body = CountedBody::new(Full::new(whole), call, Holding::Whole(None));
            let mut left = 2 * PIECE_BYTES + 1;
            for (bytes, unread) in sizes.into_iter().zip([1, 1, last_unread]) {
                left -= bytes;
                let piece = body.frame().await.unwrap().unwrap().into_data().unwrap();
                assert_eq!(piece.len(), bytes);
                assert_eq!(body.size_hint().exact(), Some(left as u64));
                assert_eq!(activity.lock().unread_answers.len(), unread);
            }
            assert!(body.is_end_stream());
            drop(body);
            let activity = activity.lock();
            assert_eq!((activity.calls, activity.unread_answers.len()), (0, 0));
        }
    }

    #[tokio::test]
    async fn small_answers_count_beside_others_of_their_connection() {
        use http_body_util::{BodyExt as _, Full};

        let response_budget = Arc::new(ResponseBudget::default());
        let given_up = CancellationToken::new();
        let begin = |activity, version, bytes: usize| {
            let holding = Holding::Pieces {
                response_budget: response_budget.clone(),
                owner: None,
                given_up: given_up.clone(),
                held: None,
            };
            let answer = Full::new(Bytes::from(vec![7; bytes]));
            CountedBody::new(answer, Call::begin(activity, version), holding)
        };
        let counts = |body: &CountedBody<_>| matches!(&body.holding, Holding::Pieces { held, .. } if held.is_some());
        let activity = Arc::new(Mutex::new(Activity::new()));
        let mut bodies: Vec<_> = [60 << 10, 5 << 10, 4 << 10]
            .map(|bytes| begin(&activity, Version::HTTP_2, bytes))
            .into();
        for (body, expected) in bodies.iter_mut().zip([false, true, false]) {
            body.frame().await.unwrap().unwrap();
            assert_eq!(counts(body), expected);
        }
        assert_eq!(activity.lock().uncounted_bytes, 64 << 10);
        drop(bodies.remove(0));
        let mut next = begin(&activity, Version::HTTP_2, 60 << 10);
        next.frame().await.unwrap().unwrap();
        assert!(!counts(&next), "the first one has been read");
        let mut other = begin(&Arc::new(Mutex::new(Activity::new())), Version::HTTP_11, 64 << 10);
        other.frame().await.unwrap().unwrap();
        assert!(!counts(&other), "an HTTP/1 connection has one answer");
        drop((bodies, next));
        assert_eq!(activity.lock().uncounted_bytes, 0);
    }

    #[tokio::test]
    async fn the_pieces_of_a_stream_count_for_the_owner_who_reads_it() {
        use gristmill_core::sharing::tenancy::Tenancy;
        use http_body_util::{BodyExt as _, Full};

        let tenancy = Tenancy::default();
        tenancy.set_several_owners(true);
        let response_budget = Arc::new(ResponseBudget::new(tenancy));
        let owner = OwnerId::new("a").unwrap();
        let [slower, given_up] = std::array::from_fn(|_| CancellationToken::new());
        let _share = response_budget.reserve_piece(192 << 20, Some(&owner), &slower);
        let holding = Holding::Pieces {
            response_budget,
            owner: Some(owner),
            given_up: given_up.clone(),
            held: None,
        };
        let call = Call::begin(&Arc::new(Mutex::new(Activity::new())), Version::HTTP_11);
        let piece = Bytes::from(vec![7; PIECE_BYTES]);
        let mut body = CountedBody::new(Full::new(piece), call, holding);
        body.frame().await.unwrap().unwrap();
        assert!(slower.is_cancelled(), "the owner's share was taken");
        assert!(!given_up.is_cancelled());
    }
}
