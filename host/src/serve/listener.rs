//! Accepting connections, with the bounds that a listener on a hostile network needs: how many
//! there may be, and what one of them may send at once. How long it may be quiet is in
//! [`super::connection`].

use std::io;
use std::iter;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gristmill_api::{Api, PeerAddress};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::connection::Server;
use super::tls::Tls;

/// Largest head of a request, in bytes; beyond it the answer is 431.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Streams that one HTTP/2 connection may have open. Further ones are refused, and may be tried
/// again.
const STREAMS_MAX: u32 = 256;

/// Streams that an HTTP/2 client may reset before they have been looked at. With one more the
/// connection is closed: opening and resetting costs a client less than it costs us.
const PENDING_RESETS_MAX: usize = 20;

/// Streams that we may have to reset for a client's mistakes. With one more the connection is
/// closed.
const MISTAKES_MAX: usize = 256;

/// What an operator decides about connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most connections at one time. More wait in the kernel's backlog.
    pub connections_max: u32,
    /// A connection without a call for this long is closed.
    pub idle_wait: Duration,
}

/// The connections that are left when the listener has ended.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    tasks: TaskTracker,
    end: CancellationToken,
}

impl Connections {
    /// Lets the calls that are under way come to their end, and waits for it.
    pub(crate) async fn shutdown(self) {
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Serves until `stop` fires. What is under way then goes on, until the connections are shut down.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    api: Api,
    limits: ConnectionLimits,
    stop: CancellationToken,
) -> Connections {
    let connections = Connections::default();
    let slots = Arc::new(Semaphore::new(limits.connections_max as usize));
    let server = Arc::new(Server {
        api,
        http: http(),
        idle_wait: limits.idle_wait,
        untaken: Arc::default(),
        end: connections.end.clone(),
    });
    let begin = |(stream, peer, slot): Accepted| {
        let (server, tls) = (server.clone(), tls.clone());
        let peer = PeerAddress(peer.ip());
        connections.tasks.spawn(async move {
            match tls {
                None => server.serve(stream, peer).await,
                Some(tls) => {
                    let accepted = tokio::select! {
                        accepted = tls.accept(stream) => accepted,
                        () = server.end.cancelled() => return,
                    };
                    match accepted {
                        Ok(stream) => server.serve(stream, peer).await,
                        Err(error) => debug!(%error, "a TLS handshake failed: {error}"),
                    }
                }
            }
            drop(slot);
        });
    };
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        match accepted {
            Ok(accepted) => begin(accepted),
            Err(error) => {
                // Out of file descriptors, usually: give the others time to end.
                warn!(%error, "a connection cannot be accepted: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    for accepted in connected_before(listener, &slots) {
        begin(accepted);
    }
    connections
}

/// A connection and the slot that it takes.
type Accepted = (TcpStream, SocketAddr, OwnedSemaphorePermit);

async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> io::Result<Accepted> {
    let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
    let (stream, peer) = listener.accept().await?;
    // Answers are small and complete when they are written; waiting for more would cost up to
    // 40 ms with a client that delays its acknowledgements.
    stream.set_nodelay(true)?;
    Ok((stream, peer, slot))
}

/// The connections that the kernel has completed and nobody has accepted: when the listener is closed,
/// a reset is their only answer. The kernel is asked, as the runtime may not have heard of them yet.
fn connected_before(
    listener: TcpListener,
    slots: &Arc<Semaphore>,
) -> impl Iterator<Item = Accepted> {
    let listener = listener.into_std().ok();
    iter::from_fn(move || {
        let slot = slots.clone().try_acquire_owned().ok()?;
        let (stream, peer) = listener.as_ref()?.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        let stream = TcpStream::from_std(stream).ok()?;
        stream.set_nodelay(true).ok()?;
        Some((stream, peer, slot))
    })
}

fn http() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    // The time of a head is bounded by the connection, before HTTP is spoken too.
    builder.http1().header_read_timeout(None).max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(PENDING_RESETS_MAX)
        .max_local_error_reset_streams(MISTAKES_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
    builder
}
