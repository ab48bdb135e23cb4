//! The connections over which a host that stands by forwards calls to the active host.
//!
//! **Bounds.** [`LINKS`] connections of HTTP/2, with as many streams as [`TRANSPORT`] has for each.
//! A call takes the connection with the fewest calls, the first of several, so that most hosts need
//! one. **Promise.** A call whose connection could not be made has had no effect. A connection is
//! made again by the next call that needs it. **Cost.** The threads that serve the calls carry the
//! frames too: with threads of their own a call changed its thread twice on each host.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use futures::future::{BoxFuture, Shared};
use gristmill_edge::TRANSPORT;
use hyper::body::{Body, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::handshake::{Membership, Purpose};

/// Most connections to the active host.
pub(crate) const LINKS: usize = 8;

/// Most calls in progress.
pub(crate) const CALLS_MAX: usize = LINKS * TRANSPORT.streams_max as usize;

type Opened<B> = Result<SendRequest<B>, Arc<io::Error>>;

/// The connections to one active host.
pub(crate) struct CallLinks<B> {
    address: SocketAddr,
    membership: Membership,
    links: [CallLink<B>; LINKS],
    /// Ends them.
    closed: CancellationToken,
}

impl<B> Drop for CallLinks<B> {
    fn drop(&mut self) {
        self.close();
    }
}

/// One of them; empty before its first call.
struct CallLink<B> {
    in_progress: Arc<AtomicUsize>,
    opening: Mutex<Option<Shared<BoxFuture<'static, Opened<B>>>>>,
}

impl<B> Default for CallLink<B> {
    fn default() -> Self {
        Self { in_progress: Arc::default(), opening: Mutex::default() }
    }
}

impl<B> std::fmt::Debug for CallLinks<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallLinks").field("address", &self.address).finish_non_exhaustive()
    }
}

/// A call that counts for its connection until this is dropped.
#[derive(Debug)]
pub(crate) struct InProgress(Arc<AtomicUsize>);

impl Drop for InProgress {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why a call was not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// The active host has not seen the call.
    #[error("{0}")]
    NotSent(Arc<io::Error>),
    /// Whether it has taken effect is unknown.
    #[error("{0}")]
    Lost(hyper::Error),
}

impl<B> CallLinks<B> {
    /// Ends all connections with their calls, and makes no further ones.
    pub(crate) fn close(&self) {
        self.closed.cancel();
    }
}

impl<B> CallLinks<B>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static,
{
    /// None yet.
    pub(crate) fn new(address: SocketAddr, membership: Membership) -> Self {
        Self { address, membership, links: Default::default(), closed: CancellationToken::new() }
    }

    /// Sends a call, and returns the head of its answer. The call counts for its connection until
    /// the second value is dropped.
    ///
    /// # Errors
    /// When it could not be sent, or was not answered.
    pub(crate) async fn send(
        &self,
        mut request: Request<B>,
    ) -> Result<(Response<Incoming>, InProgress), CallError> {
        let link = self.least_busy();
        link.in_progress.fetch_add(1, Ordering::Relaxed);
        let in_progress = InProgress(link.in_progress.clone());
        // A connection that has ended unnoticed is made again once.
        let mut is_last = false;
        loop {
            let mut requests = self.open(link).await.map_err(CallError::NotSent)?;
            match requests.try_send_request(request).await {
                Ok(answer) => return Ok((answer, in_progress)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if !is_last => (request, is_last) = (unsent, true),
                    Some(_) => {
                        let error = io::Error::other(error.into_error());
                        return Err(CallError::NotSent(Arc::new(error)));
                    }
                    None => return Err(CallError::Lost(error.into_error())),
                },
            }
        }
    }

    fn least_busy(&self) -> &CallLink<B> {
        let calls = |link: &&CallLink<B>| link.in_progress.load(Ordering::Relaxed);
        // There are some.
        self.links.iter().min_by_key(calls).unwrap_or(&self.links[0])
    }

    /// The connection, which is made unless it is open. All calls that need it wait for one try.
    fn open(&self, link: &CallLink<B>) -> impl Future<Output = Opened<B>> + use<B> {
        let mut opening = link.opening.lock();
        let usable = opening.as_ref().filter(|opening| match opening.peek() {
            None => true,
            Some(Ok(requests)) => !requests.is_closed(),
            Some(Err(_)) => false,
        });
        if let Some(usable) = usable {
            return usable.clone();
        }
        let connecting =
            tokio::spawn(connect(self.address, self.membership.clone(), self.closed.clone()));
        let connected = connecting.map(|connected| match connected {
            Ok(connected) => connected.map_err(Arc::new),
            Err(error) => Err(Arc::new(io::Error::other(error))),
        });
        opening.insert(connected.boxed().shared()).clone()
    }
}

/// Makes a connection, which ends when `closed` fires.
async fn connect<B>(
    address: SocketAddr,
    membership: Membership,
    closed: CancellationToken,
) -> io::Result<SendRequest<B>>
where
    B: Body<Data: Send, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static,
{
    let connecting = membership.connect(address, Purpose::Calls);
    let Some(connected) = closed.run_until_cancelled(connecting).await else {
        return Err(io::Error::other("another host is active now"));
    };
    let mut stream = connected?;
    stream.get_mut().0.end_at(closed);
    let handshake = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(TRANSPORT.ping_interval)
        .keep_alive_timeout(TRANSPORT.ping_time_max)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(TRANSPORT.stream_window)
        .initial_connection_window_size(TRANSPORT.connection_window)
        .initial_max_send_streams(Some(TRANSPORT.streams_max as usize))
        .max_send_buf_size(TRANSPORT.send_buffer)
        .max_header_list_size(TRANSPORT.head_bytes_max)
        // Clients may leave at one time, and answers to them may be on their way.
        .max_concurrent_reset_streams(TRANSPORT.streams_max as usize)
        .max_local_error_reset_streams(None)
        .handshake(TokioIo::new(stream));
    let (requests, connection) = handshake.await.map_err(io::Error::other)?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            debug!(%error, "a connection to the active host is lost: {error}");
        }
    });
    Ok(requests)
}
