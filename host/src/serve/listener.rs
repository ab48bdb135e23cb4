//! Accepting connections and serving them, with the bounds that a listener on a hostile network
//! needs: how many connections there may be, and how long a client may take over its headers.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gristmill_api::{Api, PeerAddress};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

/// Most connections at one time. More wait in the kernel's backlog.
const CONNECTIONS_MAX: usize = 20_000;

/// A client that has not sent its request's headers after this long is disconnected. It counts
/// from the first byte, so idle keep-alive connections are not affected.
const HEADER_WAIT: Duration = Duration::from_secs(20);

/// Largest header section, in bytes; beyond it the answer is 431.
const HEADER_BYTES_MAX: usize = 64 << 10;

/// Streams that one HTTP/2 connection may have open.
const STREAMS_MAX: u32 = 256;

/// Serves until `stop` fires, then lets the calls that run come to their end. The returned guard
/// waits for them.
pub(crate) async fn serve(
    listener: TcpListener,
    api: Api,
    stop: CancellationToken,
) -> GracefulShutdown {
    let connections = GracefulShutdown::new();
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let builder = builder();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let (stream, peer, slot) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, usually: give the others time to end.
                warn!(%error, "a connection cannot be accepted: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (api, peer) = (api.clone(), PeerAddress(peer.ip()));
        let service = service_fn(move |request| {
            let answering = api.clone().answer(request, peer);
            async move { Ok::<_, Infallible>(answering.await) }
        });
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let connection = connections.watch(connection.into_owned());
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection ended early: {error}");
            }
            drop(slot);
        });
    }
    connections
}

async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
    let (stream, peer) = listener.accept().await?;
    // Answers are small and complete when they are written; waiting for more would cost up to
    // 40 ms with a client that delays its acknowledgements.
    stream.set_nodelay(true)?;
    Ok((stream, peer, slot))
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WAIT)
        .max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX));
    builder
}
