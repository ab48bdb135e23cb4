//! Name resolution. The addresses that are checked here are those that are connected to, so an
//! answer cannot change between the check and the connection.
//!
//! A caller looks a name up before it sends its request
//! ([`Clients::look_up`](crate::Clients::look_up)), so the time of the lookup, and of the wait for
//! its turn, does not count against the receiver. [`Clients::send`](crate::Clients::send) then
//! connects to the addresses that were found. Requests of the host itself, such as the fetch of an
//! image, look the name up while they connect, and take no turn, since their caller bounds their
//! number.
//!
//! **Bounds.** [`LOOKUPS_MAX`] lookups at one time: a quarter of them for one endpoint, and for one
//! owner three times as many as are left free. So lookups that hang leave turns to other owners. A
//! caller waits [`LOOKUP_TIMEOUT`] for a running lookup.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use gristmill_core::id::{EndpointId, OwnerId};
use gristmill_core::sharing::permits::{Permit, Permits};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::oneshot;

use crate::{AddressPolicy, AddressRefused, SendError};

/// Lookups that run at one time; each holds a thread. More wait.
const LOOKUPS_MAX: usize = 32;

/// How long a caller waits for a lookup that runs. The lookup itself cannot be interrupted.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Looks up the addresses of a name; may take long.
pub type LookupFn = fn(&str) -> io::Result<Vec<SocketAddr>>;

/// Looks a name up by the system's resolver.
pub(crate) fn lookup_by_system(host: &str) -> io::Result<Vec<SocketAddr>> {
    Ok((host, 0).to_socket_addrs()?.collect())
}

/// The turns for looking names up. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct Lookups {
    turns: Permits,
    ask: LookupFn,
}

/// Why no addresses of a name were found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The lookup failed.
    #[error("{0}")]
    Failed(String),
    /// The lookup takes too long.
    #[error("the name `{host}` was not resolved within {} s", LOOKUP_TIMEOUT.as_secs())]
    TimedOut {
        /// The name.
        host: String,
    },
}

/// The addresses of a request's host.
#[derive(Debug, Clone)]
pub struct Found(Option<(String, Arc<[SocketAddr]>)>);

impl Found {
    /// The host is an address already.
    pub(crate) const ADDRESS: Self = Self(None);

    /// The addresses of this host, if the policy permits all of them. Without a policy, every
    /// address is permitted.
    ///
    /// # Errors
    /// [`SendError::Refused`] for an address that is not permitted, and [`SendError::Invalid`] if
    /// these are the addresses of another name.
    pub(crate) fn permitted(
        &self,
        host: &str,
        policy: Option<&AddressPolicy>,
    ) -> Result<Arc<[SocketAddr]>, SendError> {
        match &self.0 {
            Some((name, addresses)) if name == host => {
                check(policy, host, addresses)?;
                Ok(addresses.clone())
            }
            _ => Err(SendError::Invalid(format!("the name `{host}` was not looked up"))),
        }
    }
}

/// Refuses a name that has an address which the policy does not permit.
fn check(
    policy: Option<&AddressPolicy>,
    host: &str,
    addresses: &[SocketAddr],
) -> Result<(), AddressRefused> {
    let refused = |policy: &AddressPolicy| {
        addresses.iter().find_map(|address| policy.check(address.ip()).err())
    };
    match policy.and_then(refused) {
        Some(reason) => Err(AddressRefused { host: host.to_owned(), reason }),
        None => Ok(()),
    }
}

impl Lookups {
    pub(crate) fn new(ask: LookupFn) -> Self {
        Self { turns: Permits::for_work(LOOKUPS_MAX), ask }
    }

    /// Looks a name up when it is the endpoint's turn.
    ///
    /// # Errors
    /// [`LookupError`]; the time for which the endpoint waits for its turn has no bound.
    pub(crate) async fn look_up(
        &self,
        host: &str,
        owner: &OwnerId,
        endpoint: &EndpointId,
    ) -> Result<Found, LookupError> {
        let turn = self.turns.share(owner, endpoint).acquire().await;
        let addresses = self.ask(host, Some(turn)).await?;
        Ok(Found(Some((host.to_owned(), addresses))))
    }

    async fn ask(
        &self,
        host: &str,
        turn: Option<Permit>,
    ) -> Result<Arc<[SocketAddr]>, LookupError> {
        let (ask, name) = (self.ask, host.to_owned());
        let (answer, found) = oneshot::channel();
        // A lookup cannot be interrupted, so its turn lasts until it really ends.
        tokio::task::spawn_blocking(move || {
            let addresses = ask(&name);
            drop(turn);
            // A caller that has given up needs no answer.
            let _ = answer.send(addresses);
        });
        match tokio::time::timeout(LOOKUP_TIMEOUT, found).await {
            Ok(Ok(Ok(addresses))) => Ok(addresses.into()),
            Ok(Ok(Err(error))) => Err(LookupError::Failed(error.to_string())),
            Ok(Err(_)) => Err(LookupError::Failed("the host is ending".to_owned())),
            Err(_) => Err(LookupError::TimedOut { host: host.to_owned() }),
        }
    }
}

/// Resolves names for one client.
#[derive(Debug)]
pub(crate) struct Resolver {
    /// The policy for addresses; without it, every address is permitted.
    pub(crate) addresses: Option<AddressPolicy>,
    pub(crate) lookups: Lookups,
}

/// The refused address, if a request failed for this reason. No connection was made.
pub fn refused_address(error: &reqwest::Error) -> Option<&AddressRefused> {
    let first = std::error::Error::source(error);
    std::iter::successors(first, |cause| cause.source()).find_map(|cause| cause.downcast_ref())
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, lookups) = (self.addresses.clone(), self.lookups.clone());
        Box::pin(async move {
            let host = name.as_str();
            let addresses = lookups.ask(host, None).await?;
            check(policy.as_ref(), host, &addresses)?;
            let addresses: Vec<_> = addresses.iter().copied().collect();
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests;
