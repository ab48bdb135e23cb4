//! The listener of the active host, for hosts that stand by: they forward calls, and run attempts.
//!
//! **Bounds.** [`CONNECTIONS_MAX`] connections, and [`HANDSHAKE_WAIT`] for a new connection to show that it comes
//! from a host.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use gristmill_api::PeerAddress;
use gristmill_cluster::Runners;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::cluster::handshake::{Membership, Purpose};
use super::cluster::link::{self, Role};
use super::edge::connection::Server;
use super::edge::listener::{ACCEPT_PAUSE, accept};

/// A forwarded call in progress has one connection.
const CONNECTIONS_MAX: usize = 16_384;

const HANDSHAKE_WAIT: Duration = Duration::from_secs(5);

/// Serves the calls that other hosts forward, and uses their sandboxes, until the process ends.
pub(crate) async fn serve(
    listener: TcpListener,
    membership: Membership,
    server: Arc<Server>,
    runners: Arc<Runners>,
) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
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
        tokio::spawn(async move {
            let greeting = async {
                link::prepare(&stream, Role::Host)?;
                let purpose = membership.accept(&mut stream).await?;
                if purpose == Purpose::Calls {
                    link::prepare(&stream, Role::Answering)?;
                }
                Ok::<_, io::Error>(purpose)
            };
            match timeout(HANDSHAKE_WAIT, greeting).await {
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
