//! The listener of the active host, for hosts that stand by: they forward calls, and run attempts.
//!
//! **Bounds.** [`CONNECTIONS_MAX`] connections, and [`HANDSHAKE_WAIT`] for a new connection to show
//! that it comes from a host. [`NewConnections`] bounds those that have not shown it, so that
//! strangers in the hosts' network do not take the files of the process.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use gristmill_cluster::Runners;
use gristmill_edge::{
    ACCEPT_PAUSE, AddressBound, Addresses, AllBound, Answerer, CONNECTION_BYTES, PeerAddress,
    Server, accept,
};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::cluster::handshake::{Membership, Purpose};
use super::cluster::link::{self, Role};

/// A forwarded call in progress has one connection.
const CONNECTIONS_MAX: u32 = 16_384;

const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);

/// Most connections before their handshakes. A standby has
/// [`CONNECTING_MAX`](super::cluster::forward::CONNECTING_MAX) of them at one time.
const HANDSHAKES_MAX: u32 = 256;

/// The bound of the connections that have not shown that they come from a host. At the bound of an
/// address, or of all, the oldest one of the address that has the most is closed: a host needs some
/// milliseconds for its handshake, so that a stranger's silent connection is closed in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NewConnections {
    /// Most of all addresses: a part of the files that the process may have open.
    pub(crate) connections_max: u32,
}

impl NewConnections {
    /// The bound in a process with this many files: an eighth of them, and [`HANDSHAKES_MAX`] at
    /// most.
    pub(crate) fn within(open_files_max: u64) -> Self {
        let eighth = u32::try_from(open_files_max / 8).unwrap_or(u32::MAX);
        Self { connections_max: eighth.clamp(1, HANDSHAKES_MAX) }
    }

    /// One address has three quarters of them: several hosts may share one.
    fn addresses(self) -> Arc<Addresses> {
        let of_address = (self.connections_max - self.connections_max / 4).max(1);
        let bound = AddressBound { connections_max: of_address, is_for_loopback: true };
        let bytes_max = CONNECTION_BYTES.saturating_mul(self.connections_max as usize);
        Addresses::new(bound, AllBound { connections_max: CONNECTIONS_MAX, bytes_max })
    }
}

/// Serves the calls that other hosts forward, and uses their sandboxes, until the process ends.
pub(crate) async fn serve<A: Answerer>(
    listener: TcpListener,
    membership: Membership,
    server: Arc<Server<A>>,
    runners: Arc<Runners>,
    new_connections: NewConnections,
) {
    let addresses = new_connections.addresses();
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    loop {
        let (mut stream, peer, slot) = match accept(&listener, &slots).await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection of another host cannot be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (membership, server, runners) = (membership.clone(), server.clone(), runners.clone());
        let account = addresses.admit(PeerAddress(peer.ip()));
        tokio::spawn(async move {
            let greeting = async {
                link::prepare(&stream, Role::Host)?;
                let purpose = membership.accept(&mut stream).await?;
                if purpose == Purpose::Calls {
                    link::prepare(&stream, Role::Answering)?;
                }
                Ok::<_, io::Error>(purpose)
            };
            let greeted = tokio::select! {
                greeted = timeout(HANDSHAKE_WAIT, greeting) => greeted,
                () = account.closing.cancelled() => {
                    return debug!("a connection from {peer} was closed for a newer one");
                }
            };
            drop(account);
            match greeted {
                Ok(Ok(Purpose::Attempts)) => runners.serve(stream, peer).await,
                Ok(Ok(Purpose::Calls)) => {
                    server.serve(stream, PeerAddress(peer.ip()), Arc::default(), None).await;
                }
                Ok(Err(error)) => debug!(%error, "a connection from {peer} was refused: {error}"),
                Err(_) => debug!("a connection from {peer} has not shown that it is a host"),
            }
            drop(slot);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use gristmill_edge::Account;

    use super::*;

    #[test]
    fn silent_connections_are_bounded_and_the_oldest_give_way() {
        for (open_files_max, all, of_address) in
            [(20_000, 256, 192), (u64::MAX, 256, 192), (1_024, 128, 96), (0, 1, 1)]
        {
            let bound = NewConnections::within(open_files_max);
            assert_eq!(bound.connections_max, all);
            let addresses = bound.addresses();
            let open =
                |number: u8| addresses.admit(PeerAddress(Ipv4Addr::new(10, 0, 0, number).into()));
            let left = |accounts: &[Arc<Account>]| {
                accounts.iter().filter(|it| !it.closing.is_cancelled()).count()
            };
            let of_stranger: Vec<_> = (0..300).map(|_| open(1)).collect();
            assert_eq!(left(&of_stranger), of_address, "{open_files_max} files");
            assert!(of_stranger[0].closing.is_cancelled(), "the oldest is closed");
            assert!(!of_stranger[299].closing.is_cancelled(), "the newest stays");
            let of_host = open(2);
            let of_others: Vec<_> = (3..=255).map(open).collect();
            assert!(!of_others[252].closing.is_cancelled());
            let mut of_all = [of_stranger, of_others].concat();
            of_all.push(of_host);
            assert!(left(&of_all) <= all as usize, "{} of {all}", left(&of_all));
        }
    }
}
