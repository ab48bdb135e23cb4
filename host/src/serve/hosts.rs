//! The listener of the active host, for hosts that stand by: they forward calls, and run attempts.
//!
//! **Bounds.** [`LinkFiles`] are set aside before the connections of clients get theirs, so that
//! hosts find each other however many callers there are. A new connection has [`HANDSHAKE_WAIT`] to
//! show that it comes from a host; a quarter of the files is for those that have not shown it, so
//! that strangers in the hosts' network do not take the others.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use gristmill_cluster::Runners;
use gristmill_edge::{
    ACCEPT_PAUSE, AddressBound, Addresses, AllBound, Answerer, CONNECTION_BYTES, ForwardedCalls,
    PeerAddress, accept,
};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::cluster::handshake::{Membership, Purpose};
use super::cluster::link::HostStream;

const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);

/// Most connections of other hosts: 80 hosts have nine each, and a quarter is for handshakes.
const CONNECTIONS_MAX: u32 = 1_024;

/// The files for connections between hosts.
///
/// At the bound of an address, or of all, for connections that have not shown that they come from a
/// host, the oldest one of the address that has the most is closed: a host needs some milliseconds
/// for its handshake, so that a stranger's silent connection is closed in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkFiles {
    pub(crate) connections_max: u32,
}

impl LinkFiles {
    /// Those of a process with this many files: an eighth, and [`CONNECTIONS_MAX`] at most.
    pub(crate) fn within(open_files_max: u64) -> Self {
        let eighth = u32::try_from(open_files_max / 8).unwrap_or(u32::MAX);
        Self { connections_max: eighth.clamp(1, CONNECTIONS_MAX) }
    }

    /// Most connections before their handshakes.
    fn handshakes_max(self) -> u32 {
        (self.connections_max / 4).max(1)
    }

    /// The connections before their handshakes. One address has three quarters of them: several
    /// hosts may share one.
    fn addresses(self) -> Arc<Addresses> {
        let handshakes_max = self.handshakes_max();
        let of_address = (handshakes_max - handshakes_max / 4).max(1);
        let bound = AddressBound { connections_max: of_address, is_for_loopback: true };
        let bytes_max = CONNECTION_BYTES.saturating_mul(handshakes_max as usize);
        let connections_max = self.connections_max;
        Addresses::new(bound, AllBound { connections_max, bytes_max })
    }
}

/// Serves the calls that other hosts forward, and uses their sandboxes, until the process ends. To
/// be run on the threads of connections between hosts; calls are served on those of `api`.
pub(crate) async fn serve<A: Answerer>(
    listener: TcpListener,
    membership: Membership,
    calls: ForwardedCalls<A>,
    runners: Arc<Runners>,
    files: LinkFiles,
    api: Handle,
) {
    let addresses = files.addresses();
    let slots = Arc::new(Semaphore::new(files.connections_max as usize));
    loop {
        let (stream, peer, slot) = match accept(&listener, &slots).await {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection of another host cannot be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (membership, calls, runners) = (membership.clone(), calls.clone(), runners.clone());
        let api = api.clone();
        let account = addresses.admit(PeerAddress(peer.ip()));
        tokio::spawn(async move {
            let greeting = async {
                let stream = HostStream::new(stream)?;
                membership.accept(stream).await
            };
            let greeted = tokio::select! {
                greeted = timeout(HANDSHAKE_WAIT, greeting) => greeted,
                () = account.closing.cancelled() => {
                    return debug!("a connection from {peer} was closed for a newer one");
                }
            };
            drop(account);
            match greeted {
                Ok(Ok((stream, Purpose::Attempts))) => runners.serve(stream, peer).await,
                Ok(Ok((mut stream, Purpose::Calls))) => {
                    let serving = async move {
                        stream.get_mut().0.move_here()?;
                        calls.serve(stream, PeerAddress(peer.ip())).await.map_err(io::Error::other)
                    };
                    if let Ok(Err(error)) = api.spawn(serving).await {
                        debug!(%error, "the host at {peer} forwards no more calls: {error}");
                    }
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
            [(20_000, 256, 192), (u64::MAX, 256, 192), (2_048, 64, 48), (0, 1, 1)]
        {
            let bound = LinkFiles::within(open_files_max);
            assert_eq!(bound.handshakes_max(), all);
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
