//! Accepts connections, with a bound of their number, as a listener on a hostile network needs it.
//! [`super::protocol`] bounds the requests of each, and [`super::connection`] the time that it may
//! be quiet.

use std::io;
use std::iter;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use crate::addresses::{ADDRESS_BYTES_MAX, AddressBound, Addresses, AllBound};
use crate::answerer::Answerer;
use crate::call_origin::PeerAddress;
use crate::connection::Server;
use crate::connection_shares::ConnectionShares;
use crate::response_budget::ResponseBudget;
use crate::tls::Tls;

/// Most files that are reserved for the journal, uploads and outgoing calls.
const OTHER_FILES_MAX: u64 = 1_024;

/// Connections of collectors and supervisors at one time. They show no key, so three quarters of
/// these are in use.
const COLLECTORS_MAX: u32 = 64;

/// Those of one address. They need no key, and the answers of others must not wait for their ends:
/// a supervisor without an answer would restart the host.
const COLLECTORS_OF_ADDRESS_MAX: u32 = 16;

/// The operator's settings of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Most connections at one time. Those without a valid key make room; beside connections with
    /// keys, more wait in the kernel's backlog.
    pub connections_max: u32,
    /// Whether the operator has set `connections_max`.
    pub is_set: bool,
    /// Their bound for one address without a valid key.
    pub of_address: AddressBound,
    /// Most bytes that callers without a valid key make the host keep.
    pub unauthenticated_bytes_max: usize,
    /// A connection without a call for this long is closed.
    pub idle_wait: Duration,
}

impl ConnectionLimits {
    /// The limits of a listener that only collectors and supervisors reach.
    pub fn of_collectors() -> Self {
        let connections_max = COLLECTORS_OF_ADDRESS_MAX;
        let of_address = AddressBound { connections_max, is_for_loopback: true };
        Self {
            connections_max: COLLECTORS_MAX,
            is_set: false,
            of_address,
            unauthenticated_bytes_max: ADDRESS_BYTES_MAX,
            idle_wait: Duration::from_secs(75),
        }
    }

    fn of_all(&self) -> AllBound {
        let bytes_max = self.unauthenticated_bytes_max;
        AllBound { connections_max: self.connections_max, bytes_max }
    }

    /// These limits in a process with this many files. A quarter of the files is for
    /// handlers, another quarter, but at most [`OTHER_FILES_MAX`], for the
    /// journal, uploads and outgoing calls. `taken` files are those of other listeners'
    /// connections.
    #[must_use]
    pub fn within(self, open_files_max: u64, taken: u32) -> Self {
        let quarter = open_files_max / 4;
        let room = open_files_max - quarter - quarter.min(OTHER_FILES_MAX);
        let room = room.saturating_sub(taken.into());
        let room = u32::try_from(room).unwrap_or(u32::MAX).max(1);
        let connections_max = self.connections_max.min(room);
        if connections_max < self.connections_max {
            let wanted = self.connections_max;
            let why = format!(
                "this process may have {open_files_max} files open (`ulimit -Hn`, LimitNOFILE= in \
                 systemd)"
            );
            // A warning only if the operator has set the bound: lowering the default is no fault.
            if self.is_set {
                let most = format!("only {connections_max} connections at one time, not {wanted}");
                warn!(open_files_max, connections_max, "{most}: {why}");
            } else {
                let most = format!("at most {connections_max} connections at one time");
                info!(open_files_max, connections_max, "{most}: {why}");
            }
        }
        Self { connections_max, ..self }
    }
}

/// The connections that remain when the listener has ended.
#[derive(Debug, Default)]
pub struct Connections {
    tasks: TaskTracker,
    end: CancellationToken,
}

impl Connections {
    /// Completes the running calls, and waits for their end.
    pub async fn shutdown(self) {
        self.end.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Serves until `stop` fires. Running calls then continue, until the connections are shut down.
pub async fn serve<A: Answerer>(
    listener: TcpListener,
    tls: Option<Arc<Tls>>,
    answerer: A,
    limits: ConnectionLimits,
    response_budget: Arc<ResponseBudget>,
    stop: CancellationToken,
) -> Connections {
    let connections = Connections::default();
    let slots = Arc::new(Semaphore::new(limits.connections_max as usize));
    let end = connections.end.clone();
    let server = Server::new(answerer, limits.idle_wait, response_budget, end);
    let addresses = Addresses::new(limits.of_address, limits.of_all());
    let shares = ConnectionShares::new(limits.connections_max);
    let begin = |(stream, peer, slot): Accepted| {
        let (server, tls) = (server.clone(), tls.clone());
        let peer = PeerAddress(peer.ip());
        let connection_auth = shares.connection();
        let account = addresses.admit(peer);
        connections.tasks.spawn(async move {
            let closing = account.closing.clone();
            match tls {
                None => server.serve(stream, peer, connection_auth, account).await,
                Some(tls) => {
                    let accepted = tokio::select! {
                        accepted = tls.accept(stream, peer) => accepted,
                        () = server.end.cancelled() => return,
                        () = closing.cancelled() => return,
                    };
                    match accepted {
                        Ok(stream) => {
                            server.serve(stream, peer, connection_auth, account).await;
                        }
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
                warn!(%error, "a connection cannot be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    for accepted in connected_before(listener, &slots) {
        begin(accepted);
    }
    connections
}

/// Pause after a failure to accept, so that other connections can end.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection with its slot.
pub type Accepted = (TcpStream, SocketAddr, OwnedSemaphorePermit);

/// Waits for a connection and a slot for it.
///
/// # Errors
/// Those of the system; usually there is no free file descriptor. Pause for [`ACCEPT_PAUSE`] then.
pub async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> io::Result<Accepted> {
    let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
    let (stream, peer) = listener.accept().await?;
    // Answers are small and complete when they are written; waiting for more data would cost up to
    // 40 ms with a client that delays its acknowledgements.
    stream.set_nodelay(true)?;
    Ok((stream, peer, slot))
}

/// The connections that the kernel has completed and the host has not accepted: closing the
/// listener would reset them. The kernel is asked directly, because the runtime may not have seen
/// them yet.
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use parking_lot::Mutex;

    use super::*;

    /// Held while a test calls [`ConnectionLimits::within`]: without it, the first use of a log
    /// line on a thread without a log may turn the line off on a thread that has one.
    static ONE_TEST: Mutex<()> = Mutex::new(());

    /// The log of one thread.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn limits(connections_max: u32, is_set: bool) -> ConnectionLimits {
        ConnectionLimits { connections_max, is_set, ..ConnectionLimits::of_collectors() }
    }

    #[test]
    fn only_a_bound_that_was_set_is_missed_with_a_warning() {
        let _turn = ONE_TEST.lock();
        for (is_set, level, sentence) in [
            (true, "WARN", "only 500 connections at one time, not 20000: this process may have"),
            (false, "INFO", "at most 500 connections at one time: this process may have"),
        ] {
            let log = Log::default();
            let writer = log.clone();
            let lines = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
            let limits = limits(20_000, is_set);
            let _ = tracing::subscriber::with_default(lines, || limits.within(1_000, 0));
            let text = String::from_utf8(log.0.lock().clone()).unwrap();
            assert!(text.contains(level) && text.contains(sentence), "{text}");
            assert_eq!(text.lines().count(), 1, "{text}");
        }
    }

    #[test]
    fn connections_leave_files_for_everything_else() {
        let _turn = ONE_TEST.lock();
        let cases = [
            (20_000, u64::MAX, 0, 20_000),
            (20_000, 65_536, 0, 20_000),
            (100_000, 65_536, 0, 48_128),
            (20_000, 20_000, 0, 13_976),
            (20_000, 20_000, 256, 13_720),
            (20_000, 4_096, 0, 2_048),
            (20_000, 1_000, 0, 500),
            (20_000, 1_000, 125, 375),
            (100, 1_000, 0, 100),
            (20_000, 1, 1, 1),
            (20_000, 0, 0, 1),
        ];
        for (connections_max, open_files_max, taken, expected) in cases {
            let limits = limits(connections_max, true).within(open_files_max, taken);
            assert_eq!(limits.connections_max, expected, "{open_files_max}");
        }
    }
}
