//! Name resolution. What is returned here is what is connected to, so an answer cannot change
//! between the check and the connection.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::sync::Semaphore;

use crate::{AddressPolicy, AddressRefused};

/// Lookups that run at one time; each holds a thread. More wait.
const LOOKUPS_MAX: usize = 32;

/// Who answers for a name.
type Ask = fn(&str) -> io::Result<Vec<SocketAddr>>;

/// The turns for looking names up. A clone shares them.
#[derive(Debug, Clone)]
pub(crate) struct Lookups {
    turns: Arc<Semaphore>,
    ask: Ask,
}

impl Lookups {
    fn new(ask: Ask) -> Self {
        Self { turns: Arc::new(Semaphore::new(LOOKUPS_MAX)), ask }
    }
}

impl Default for Lookups {
    fn default() -> Self {
        Self::new(|host| Ok((host, 0).to_socket_addrs()?.collect()))
    }
}

/// Resolves names for one client.
#[derive(Debug)]
pub(crate) struct Resolver {
    /// What decides about addresses; without it, every address is permitted.
    pub(crate) addresses: Option<AddressPolicy>,
    pub(crate) lookups: Lookups,
}

/// Why a request failed, when its host has an address that is refused. Nothing was connected to.
pub fn refused_address(error: &reqwest::Error) -> Option<&AddressRefused> {
    let first = std::error::Error::source(error);
    std::iter::successors(first, |cause| cause.source()).find_map(|cause| cause.downcast_ref())
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.addresses.clone();
        let Lookups { turns, ask } = self.lookups.clone();
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let turn = turns.acquire_owned().await?;
            // A lookup cannot be interrupted, so its turn lasts until it really ends.
            let addresses = tokio::task::spawn_blocking(move || {
                let _turn = turn;
                ask(&host).map(|found| (found, host))
            });
            let (addresses, host) = addresses.await??;
            if let Some(policy) = policy
                && let Some(reason) = addresses.iter().find_map(|a| policy.check(a.ip()).err())
            {
                return Err(AddressRefused { host, reason }.into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const PUBLIC: &str = "1.1.1.1:0";
    const PRIVATE: &str = "127.0.0.1:0";

    async fn resolve(resolver: &Resolver) -> Result<Vec<SocketAddr>, String> {
        let found = resolver.resolve("rebound.example".parse().unwrap()).await;
        found.map(Iterator::collect).map_err(|error| error.to_string())
    }

    /// The answer that was checked is the one that is connected to, and the next request asks and
    /// checks again: a name that turns to the host's own network meanwhile leads nowhere.
    #[tokio::test]
    async fn a_name_that_is_bound_again_is_checked_again() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        let lookups = Lookups::new(|_| {
            let answers = [PUBLIC, PRIVATE];
            let answer = answers[ASKED.fetch_add(1, Ordering::Relaxed)];
            Ok(vec![answer.parse().unwrap()])
        });
        let resolver = Resolver { addresses: Some(AddressPolicy::default()), lookups };
        assert_eq!(resolve(&resolver).await, Ok(vec![PUBLIC.parse().unwrap()]));
        let refused = "`rebound.example` has an address that is not public";
        assert_eq!(resolve(&resolver).await, Err(refused.to_owned()));
    }

    #[tokio::test]
    async fn one_address_that_is_not_public_is_enough() {
        let lookups = Lookups::new(|_| Ok([PUBLIC, PRIVATE].map(|a| a.parse().unwrap()).into()));
        let resolver =
            Resolver { addresses: Some(AddressPolicy::default()), lookups: lookups.clone() };
        assert!(resolve(&resolver).await.is_err());
        let resolver = Resolver { addresses: None, lookups };
        assert_eq!(resolve(&resolver).await.unwrap().len(), 2);
    }
}
