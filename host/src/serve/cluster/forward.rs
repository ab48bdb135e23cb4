//! Forwards calls to the active host, as a proxy does: bodies and answers are streams, and nothing
//! is repeated. The active host may answer before it has read the body, as it does with a body that
//! is too large; the rest of the body is then not read. Only a handler of HTTP reads on while it
//! answers, until its answer ends.
//!
//! **Bounds.** Those of [the connections](super::calls) and of [their places](super::callers).
//! Calls in progress end when another host becomes active. A call ends there when its client
//! leaves.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use gristmill_api::{
    AnswerBody, ByName, reads_on, too_many_calls_without_key, unavailable, unreadable_body,
};
use gristmill_core::id::{KeyId, OwnerId};
use gristmill_edge::{
    ANSWER_END, AnswerOwner, CallOrigin, PeerAddress, remove_named_by_connection,
};
use gristmill_store::ActiveHost;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use parking_lot::{Mutex, RwLock};
use tracing::debug;

use super::callers::{Place, ShownKey, StandbyCallers, TooManyCalls};
use super::calls::{CallError, CallLinks, InProgress};
use super::handshake::{HostKey, Membership};

/// The address of the client of a forwarded call. Only read on connections between hosts.
const PEER: HeaderName = HeaderName::from_static("gristmill-peer");

/// Of a forwarded call to an HTTP endpoint by its own name. Only read on connections between hosts.
const BY_NAME: HeaderName = HeaderName::from_static("gristmill-by-name");

/// The owner and the id of the key of a forwarded call, in its answer. Only read on connections
/// between hosts; the client does not get it.
const KEY: HeaderName = HeaderName::from_static("gristmill-key");

/// Headers that belong to one connection (RFC 9110, section 7.6.1).
const OF_CONNECTION: [HeaderName; 6] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// The reason for a standby's probes.
pub(crate) const STANDS_BY: &str = "the host stands by: another host is active";

const STOPPING: &str = "the host is stopping; try again shortly";
const NO_HOST: &str = "no host is active at present; try again shortly";
const NO_ADDRESS: &str = "the active host has no address for other hosts (--cluster-listen)";
const UNREACHABLE: &str = "the active host cannot be reached; try again shortly";
const LOST: &str = "the active host has not answered, and whether the call has taken \
                    effect is unknown; try again shortly";

/// A host that stands by.
#[derive(Debug)]
pub(crate) struct Standby {
    keys: Vec<HostKey>,
    callers: StandbyCallers,
    target: RwLock<Target>,
    /// Whether it forwards no more calls.
    is_stopping: AtomicBool,
}

#[derive(Debug, Clone)]
enum Target {
    NoHost,
    /// A host that other hosts cannot reach.
    Unreachable,
    Host(Arc<Host>),
}

/// The active host.
#[derive(Debug)]
struct Host {
    active: ActiveHost,
    links: CallLinks<Sending>,
}

impl Standby {
    /// A host that knows no active host. `keys` are those of the hosts of the database, at least
    /// one.
    pub(crate) fn new(keys: Vec<HostKey>) -> Self {
        Self {
            keys,
            callers: StandbyCallers::default(),
            target: RwLock::new(Target::NoHost),
            is_stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn membership(&self, session: u64) -> Membership {
        Membership::new(&self.keys, session)
    }

    /// Forwards calls to this host from now on; calls to another one in progress end.
    pub(crate) fn set_active(&self, active: Option<ActiveHost>) {
        let mut target = self.target.write();
        if let (Target::Host(host), Some(active)) = (&*target, active)
            && host.active == active
        {
            return;
        }
        if let Target::Host(host) = &*target {
            host.links.close();
        }
        *target = match active {
            None => Target::NoHost,
            Some(ActiveHost { address: None, .. }) => Target::Unreachable,
            Some(active @ ActiveHost { session, address: Some(address) }) => {
                let links = CallLinks::new(address, self.membership(session));
                Target::Host(Arc::new(Host { active, links }))
            }
        };
    }

    /// The host that is active, as far as this one knows.
    pub(crate) fn active(&self) -> Option<ActiveHost> {
        match &*self.target.read() {
            Target::Host(host) => Some(host.active),
            Target::NoHost | Target::Unreachable => None,
        }
    }

    /// Forwards no more calls; those in progress continue.
    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Forwards a call.
    pub(crate) async fn forward<B>(
        &self,
        request: Request<B>,
        origin: &CallOrigin,
    ) -> Response<AnswerBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path().to_owned();
        if self.is_stopping.load(Ordering::Relaxed) {
            return unavailable(&path, STOPPING).await;
        }
        let target = self.target.read().clone();
        let host = match target {
            Target::Host(host) => host,
            Target::NoHost => return unavailable(&path, NO_HOST).await,
            Target::Unreachable => return unavailable(&path, NO_ADDRESS).await,
        };
        let credentials = self.callers.credentials(request.headers());
        let place = match self.callers.admit(credentials, origin).await {
            Ok(place) => place,
            Err(TooManyCalls { calls, wait }) => {
                return too_many_calls_without_key(&path, calls, wait).await;
            }
        };
        let (request, body) = request.into_parts();
        let sending = Sending::new(AnswerBody::new(body));
        let stops = StopsSending(sending.clone());
        let request = Request::from_parts(request, sending.clone());
        let Some(request) = outgoing(request, origin.peer().0) else {
            return unavailable(&path, UNREACHABLE).await;
        };
        match host.links.send(request).await {
            Ok((mut answer, in_progress)) => {
                if !reads_on(&path) {
                    sending.stop();
                }
                let key = take_key(&mut answer, origin);
                self.callers.answered(credentials, origin, key.as_ref(), &answer);
                let held = Held { _place: place, _in_progress: in_progress, _stops: stops };
                incoming(answer, held)
            }
            Err(_) if sending.has_failed() => unreadable_body(&path).await,
            Err(error) => {
                debug!(%error, "a call was not forwarded: {error}");
                let sentence = match error {
                    CallError::NotSent(_) => UNREACHABLE,
                    CallError::Lost(_) => LOST,
                };
                unavailable(&path, sentence).await
            }
        }
    }
}

/// What a forwarded call holds until its answer has been read.
struct Held {
    _place: Place,
    _in_progress: InProgress,
    _stops: StopsSending,
}

/// The body of a forwarded call. Clones are the same body.
#[derive(Clone)]
struct Sending {
    rest: Arc<Mutex<Rest>>,
    has_failed: Arc<AtomicBool>,
}

/// The part of a body that was not sent yet. Who waits for more of it is woken when it changes.
enum Rest {
    Body(AnswerBody, Option<Waker>),
    /// It is not read, because the call has been answered. The active host ends the stream.
    Unread(Option<Waker>),
    /// The client has left or has its whole answer, and the stream ends with an error.
    Abandoned,
}

/// Ends the stream of a call when it is dropped, unless the body was sent to its end.
struct StopsSending(Sending);

impl Drop for StopsSending {
    fn drop(&mut self) {
        let rest = std::mem::replace(&mut *self.0.rest.lock(), Rest::Abandoned);
        if let Rest::Unread(Some(waker)) | Rest::Body(_, Some(waker)) = rest {
            waker.wake();
        }
    }
}

impl Sending {
    fn new(body: AnswerBody) -> Self {
        Self { rest: Arc::new(Mutex::new(Rest::Body(body, None))), has_failed: Arc::default() }
    }

    /// Reads no more of it: the call has been answered.
    fn stop(&self) {
        let mut rest = self.rest.lock();
        if let Rest::Body(_, waker) = &mut *rest {
            // Nobody is woken: there is no more to send.
            *rest = Rest::Unread(waker.take());
        }
    }

    /// Whether the client's body could not be read.
    fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let mut rest = self.rest.lock();
        let (body, waker) = match &mut *rest {
            Rest::Body(body, waker) => (body, waker),
            Rest::Unread(waker) => {
                *waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            Rest::Abandoned => {
                return Poll::Ready(Some(Err(io::Error::other("the client has left"))));
            }
        };
        let Poll::Ready(frame) = Pin::new(body).poll_frame(context) else {
            *waker = Some(context.waker().clone());
            return Poll::Pending;
        };
        if matches!(frame, Some(Err(_))) {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(&*self.rest.lock(), Rest::Body(body, _) if body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &*self.rest.lock() {
            Rest::Body(body, _) => body.size_hint(),
            Rest::Unread(_) | Rest::Abandoned => SizeHint::default(),
        }
    }
}

/// The call as it is sent to the active host, which answers it as one of HTTP/1.1 with this `Host`.
/// `None` when it has no form there.
fn outgoing<B>(request: Request<B>, peer: IpAddr) -> Option<Request<B>> {
    let (mut head, body) = request.into_parts();
    if head.method == Method::CONNECT {
        return None;
    }
    if !head.headers.contains_key(header::HOST)
        && let Some(authority) = head.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        head.headers.insert(header::HOST, host);
    }
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    // HTTP/2 needs a name, but no host reads it.
    head.uri = format!("http://active{target}").parse().ok()?;
    head.version = Version::HTTP_2;
    remove_headers_of_connection(&mut head.headers);
    // This host has answered it.
    head.headers.remove(header::EXPECT);
    head.headers.insert(PEER, HeaderValue::from_str(&peer.to_string()).ok()?);
    head.headers.remove(BY_NAME);
    if head.extensions.get::<ByName>().is_some() {
        head.headers.insert(BY_NAME, HeaderValue::from_static("1"));
    }
    Some(Request::from_parts(head, body))
}

/// The answer for the client. Its body ends with an error when the active host has not ended it.
fn incoming(answer: Response<Incoming>, held: Held) -> Response<AnswerBody> {
    let (mut head, body) = answer.into_parts();
    // HTTP/1.1 names its own version to the client.
    head.version = Version::HTTP_11;
    remove_headers_of_connection(&mut head.headers);
    let is_ended = body.is_end_stream();
    // HTTP/2 checks it.
    let has_length = head.headers.contains_key(header::CONTENT_LENGTH);
    let body = ForwardedAnswer { body, has_length, is_ended, _held: held };
    Response::from_parts(head, AnswerBody::new(body))
}

/// The body of an answer of the active host.
struct ForwardedAnswer {
    body: Incoming,
    /// The head has named the length.
    has_length: bool,
    /// Its end has arrived.
    is_ended: bool,
    _held: Held,
}

impl Body for ForwardedAnswer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        loop {
            if self.is_ended {
                return Poll::Ready(None);
            }
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(frame) => frame.map_err(io::Error::other),
                None if self.has_length => return Poll::Ready(None),
                None => Err(io::Error::other("the active host has dropped the call")),
            };
            match frame.map(Frame::into_trailers) {
                Ok(Ok(mut trailers)) => {
                    self.is_ended |= trailers.remove(ANSWER_END).is_some();
                    if !trailers.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                    }
                }
                Ok(Err(data)) => return Poll::Ready(Some(Ok(data))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_ended || (self.has_length && self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn remove_headers_of_connection(headers: &mut HeaderMap) {
    remove_named_by_connection(headers);
    for name in &OF_CONNECTION {
        headers.remove(name);
    }
}

/// The address of the client of a call that another host has forwarded. What that host has added to
/// the headers is removed.
pub(crate) fn take_client<B>(request: &mut Request<B>) -> Option<PeerAddress> {
    let peer = request.headers_mut().remove(PEER)?;
    if request.headers_mut().remove(BY_NAME).is_some() {
        request.extensions_mut().insert(ByName);
    }
    peer.to_str().ok()?.parse().ok().map(PeerAddress)
}

/// Names the valid key of a call to the host that has forwarded the call.
pub(crate) fn name_key(origin: &CallOrigin, headers: &mut HeaderMap) {
    headers.remove(KEY);
    let Some((owner, key)) = origin.key() else { return };
    if let Ok(named) = HeaderValue::from_str(&format!("{owner} {key}")) {
        headers.insert(KEY, named);
    }
}

/// Records the valid key that the active host has seen, and removes the header. If the owner has
/// too many connections, this one ends after the answer. Returns the key.
fn take_key<B>(answer: &mut Response<B>, origin: &CallOrigin) -> Option<ShownKey> {
    let named = answer.headers_mut().remove(KEY);
    let named = named.as_ref().and_then(|named| named.to_str().ok()?.split_once(' '));
    let Some((Ok(owner), Ok(key))) =
        named.map(|(owner, key)| (OwnerId::new(owner), KeyId::new(key)))
    else {
        if answer.status() == StatusCode::UNAUTHORIZED {
            origin.record_no_key();
        }
        return None;
    };
    if origin.record_key(&owner, &key).is_ok() {
        answer.extensions_mut().insert(AnswerOwner(owner.clone()));
    }
    Some(ShownKey { owner, key })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_connection_are_not_forwarded() {
        let request = Request::post("https://mill.lan/v2/a/run?x=1")
            .version(Version::HTTP_2)
            .header("connection", "close, X-Mine")
            .header("x-mine", "1")
            .header("te", "trailers")
            .header("authorization", "Bearer k")
            .header("gristmill-peer", "10.9.9.9")
            .header("gristmill-by-name", "1")
            .body(AnswerBody::empty())
            .unwrap();
        let peer = "192.0.2.1".parse().unwrap();
        let mut sent = outgoing(request, peer).unwrap();
        assert_eq!(sent.uri().path_and_query().unwrap(), "/v2/a/run?x=1");
        assert_eq!(sent.version(), Version::HTTP_2);
        assert_eq!(take_client(&mut sent), Some(PeerAddress(peer)), "not the client's own");
        let mut names: Vec<_> = sent.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["authorization", "host"]);
        assert!(sent.extensions().get::<ByName>().is_none(), "not the client's own");
        assert_eq!(sent.headers()["host"], "mill.lan");
    }

    #[test]
    fn the_key_of_a_forwarded_call_is_recorded_and_not_sent_on() {
        let peer = || PeerAddress("192.0.2.1".parse().unwrap());
        let owner = OwnerId::new("zoe").unwrap();
        let (seen, unseen) = (CallOrigin::from(peer()), CallOrigin::from(peer()));
        seen.record_key(&owner, &KeyId::new("k-1").unwrap()).unwrap();
        for (at_active, expected) in [(&seen, Some(&owner)), (&unseen, None)] {
            let mut answer = Response::new(());
            // A handler may have set it.
            answer.headers_mut().insert(KEY, HeaderValue::from_static("mallory k"));
            name_key(at_active, answer.headers_mut());
            let here = CallOrigin::from(peer());
            assert_eq!(take_key(&mut answer, &here).map(|shown| shown.owner).as_ref(), expected);
            assert_eq!(here.has_key(), expected.is_some());
            let named = answer.extensions().get::<AnswerOwner>().map(|AnswerOwner(owner)| owner);
            assert_eq!(named, expected);
            assert!(answer.headers().is_empty(), "{answer:?}");
        }
    }
}
