//! One request and its answer, on a connection of its own.
//!
//! **Promise.** The connection belongs to the call: it is closed as soon as the future of
//! [`exchange`] is dropped, or the body of the answer is. If the kernel has not taken the whole
//! request by then, the rest is discarded and the connection is reset; otherwise the kernel
//! delivers its buffer. So a receiver that answers early, or never, and reads slowly keeps no
//! memory of this process beyond the call. **Cost.** A task for each call.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::uri::{Parts, Scheme};
use http::{HeaderValue, Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection};
use hyper::rt::{Read, Write};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt as _;

use crate::AddressRefused;

/// Most time for making a connection, with its TLS.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time without traffic after which the kernel probes an idle connection, and between its probes.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Probes without an answer that end a connection.
const KEEPALIVE_RETRIES: u32 = 3;

/// Most time in which a receiver acknowledges nothing.
const ACKNOWLEDGED_WITHIN: Duration = Duration::from_secs(30);

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The receiver has an address that is refused. Nothing was connected to.
    #[error(transparent)]
    Refused(#[from] AddressRefused),
    /// The time of the request is over, or that for connecting, or the receiver has acknowledged
    /// nothing for too long.
    #[error("the request timed out")]
    TimedOut,
    /// There is no connection, for this reason. Nothing was sent.
    #[error("cannot connect: {0}")]
    NotConnected(String),
    /// Such a request cannot be sent, for this reason.
    #[error("{0}")]
    Invalid(String),
    /// Anything else. The receiver may have the request.
    #[error("{0}")]
    Failed(String),
}

impl SendError {
    /// The error of a failure, with its innermost cause.
    fn of(error: &(dyn Error + 'static), other: fn(String) -> Self) -> Self {
        let causes = std::iter::successors(Some(error), |cause| Error::source(*cause));
        if causes.clone().any(is_timeout) {
            return Self::TimedOut;
        }
        other(causes.last().map_or_else(String::new, ToString::to_string))
    }
}

fn is_timeout(error: &(dyn Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>().map(io::Error::kind);
    io == Some(io::ErrorKind::TimedOut)
        || error.downcast_ref().is_some_and(hyper::Error::is_timeout)
}

/// The body of an answer, which holds the connection.
pub(crate) struct AnswerBody {
    body: Incoming,
    /// Fires when the time of the request is over.
    until: Option<Pin<Box<Sleep>>>,
    /// Dropped last: the connection can then close in the usual way if the body was read.
    _call: DropGuard,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        // First, so that it ends also a body that always has a next piece.
        if let Some(until) = &mut self.until
            && until.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Some(Err(io::Error::from(io::ErrorKind::TimedOut).into())));
        }
        Pin::new(&mut self.body).poll_frame(context).map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Sends a request to one of these addresses, and waits for the head of the answer. `addresses` is
/// not used if the host of the URL is an address itself; `tls` is used for `https`.
///
/// # Errors
/// [`SendError`].
pub(crate) async fn exchange(
    request: Request<reqwest::Body>,
    addresses: Arc<[SocketAddr]>,
    tls: Option<Arc<ClientConfig>>,
    until: Option<Instant>,
) -> Result<Response<AnswerBody>, SendError> {
    let connecting = connect(request.uri().clone(), addresses);
    let sending = async {
        let Some(tls) = tls else {
            let tcp = within_connect_timeout(connecting).await?;
            return send(TokioIo::new(tcp), |io| io.inner(), request, until).await;
        };
        let name = server_name(request.uri())?;
        let connecting = async {
            let tls = TlsConnector::from(tls).connect(name, connecting.await?).await;
            tls.map_err(|error| SendError::of(&error, SendError::NotConnected))
        };
        let stream = within_connect_timeout(connecting).await?;
        send(TokioIo::new(stream), |io| io.inner().get_ref().0, request, until).await
    };
    match until {
        Some(until) => {
            tokio::time::timeout_at(until, sending).await.unwrap_or(Err(SendError::TimedOut))
        }
        None => sending.await,
    }
}

async fn within_connect_timeout<T>(
    connecting: impl Future<Output = Result<T, SendError>>,
) -> Result<T, SendError> {
    timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or(Err(SendError::TimedOut))
}

/// Connects to the host of the URL, at one of these addresses.
async fn connect(uri: Uri, addresses: Arc<[SocketAddr]>) -> Result<TcpStream, SendError> {
    let resolver = tower::service_fn(move |_: Name| {
        let addresses = addresses.to_vec();
        async move { Ok::<_, io::Error>(addresses.into_iter()) }
    });
    let mut connector = HttpConnector::new_with_resolver(resolver);
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    connector.set_keepalive_retries(Some(KEEPALIVE_RETRIES));
    connector.set_tcp_user_timeout(Some(ACKNOWLEDGED_WITHIN));
    let connected = connector.oneshot(uri).await;
    connected
        .map(TokioIo::into_inner)
        .map_err(|error| SendError::of(&error, SendError::NotConnected))
}

/// The name that the receiver's certificate must have.
fn server_name(uri: &Uri) -> Result<ServerName<'static>, SendError> {
    let host = uri.host().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(bare.to_owned())
        .map_err(|error| SendError::of(&error, SendError::NotConnected))
}

/// Sends the request over a connection, and waits for the head of the answer.
async fn send<T: Read + Write + Unpin + Send + 'static>(
    io: T,
    tcp: fn(&T) -> &TcpStream,
    mut request: Request<reqwest::Body>,
    until: Option<Instant>,
) -> Result<Response<AnswerBody>, SendError> {
    prepare(&mut request)?;
    let failed = |error: hyper::Error| SendError::of(&error, SendError::Failed);
    let ended = CancellationToken::new();
    // Dropped after the sender, so that the connection can close in the usual way.
    let call = ended.clone().drop_guard();
    let (mut sender, connection) = http1::handshake(io).await.map_err(failed)?;
    tokio::spawn(drive(connection, ended, tcp));
    sender.ready().await.map_err(failed)?;
    let answer = sender.send_request(request).await.map_err(failed)?;
    Ok(answer.map(|body| {
        let until = until.map(|until| Box::pin(tokio::time::sleep_until(until)));
        AnswerBody { body, until, _call: call }
    }))
}

/// Moves the data of a connection until it closes, or the call ends.
async fn drive<T: Read + Write + Unpin>(
    mut connection: Connection<T, reqwest::Body>,
    ended: CancellationToken,
    tcp: fn(&T) -> &TcpStream,
) {
    tokio::select! {
        // When the call ends, the connection is polled once more: it closes in the usual way if
        // the kernel has taken the whole request.
        biased;
        // A failure reaches the call through its answer.
        _ = &mut connection => {}
        () = ended.cancelled() => {
            // The rest of the request is discarded also in the kernel. If the option is refused,
            // the kernel sends the rest that it has.
            let _ = tcp(&connection.into_parts().io).set_zero_linger();
        }
    }
}

/// Writes the headers and the target of an HTTP/1.1 request from its URL.
fn prepare(request: &mut Request<reqwest::Body>) -> Result<(), SendError> {
    let invalid = |error: http::Error| SendError::Invalid(error.to_string());
    let uri = std::mem::take(request.uri_mut());
    let host = uri.host().unwrap_or_default();
    let default_port = if is_https(&uri) { 443 } else { 80 };
    let host = match uri.port_u16().filter(|port| *port != default_port) {
        Some(port) => HeaderValue::try_from(format!("{host}:{port}")),
        None => HeaderValue::from_str(host),
    };
    let host = host.map_err(|error| invalid(error.into()))?;
    let headers = request.headers_mut();
    headers.entry(HOST).or_insert(host);
    headers.entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
    let mut target = Parts::default();
    target.path_and_query = uri.into_parts().path_and_query;
    *request.uri_mut() = Uri::from_parts(target).map_err(|error| invalid(error.into()))?;
    Ok(())
}

/// Whether requests to this URL need TLS.
pub(crate) fn is_https(uri: &Uri) -> bool {
    uri.scheme() == Some(&Scheme::HTTPS)
}

#[cfg(test)]
mod tests;
