//! Name resolution. What is returned here is what is connected to, so an answer cannot change
//! between the check and the connection.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use gristmill_core::egress::is_public;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use crate::Reach;

/// Lookups that run at one time; each holds a thread. More wait.
const LOOKUPS_MAX: usize = 32;

/// The turns for looking names up. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct Lookups(Arc<Semaphore>);

impl Default for Lookups {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LOOKUPS_MAX)))
    }
}

/// Resolves names for one client.
#[derive(Debug)]
pub(crate) struct Resolver {
    pub(crate) reach: Reach,
    pub(crate) lookups: Lookups,
}

/// The name has an address that is not public. One such address is enough: a name that mixes them
/// is an attempt at something.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{host}` has an address that is not public")]
pub struct NotPublic {
    /// The name, or the address itself.
    pub host: String,
}

/// Whether a request failed because its host has an address that is not public. Then nothing was
/// connected to.
pub fn not_public(error: &reqwest::Error) -> Option<&NotPublic> {
    let first = std::error::Error::source(error);
    std::iter::successors(first, |cause| cause.source()).find_map(|cause| cause.downcast_ref())
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (reach, lookups) = (self.reach, self.lookups.0.clone());
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let turn = lookups.acquire_owned().await?;
            // A lookup cannot be interrupted, so its turn lasts until it really ends.
            let addresses = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                (host.as_str(), 0).to_socket_addrs().map(|found| (found.collect(), host))
            });
            let (addresses, host): (Vec<SocketAddr>, String) = addresses.await??;
            let is_reachable = match reach {
                Reach::PublicAddresses => addresses.iter().all(|address| is_public(address.ip())),
                Reach::AnyAddress => true,
            };
            if !is_reachable {
                return Err(NotPublic { host }.into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}
