//! The two HTTP clients: one connects only to public addresses, the other to any. They share
//! nothing, so that a connection of one client never serves a request of the other.

use std::sync::OnceLock;
use std::time::Duration;

use gristmill_core::id::{EndpointId, OwnerId};
use reqwest::redirect::Policy;
use reqwest::{Client, retry};

use crate::destination::Destination;
use crate::resolver::{Found, LookupError, LookupFn, Lookups, Resolver, lookup_by_system};
use crate::{AddressPolicy, AddressRefused, AddressScope};

/// Most time for making a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client for each [`AddressScope`], built when it is first needed.
#[derive(Debug)]
pub struct Clients {
    addresses: AddressPolicy,
    lookups: Lookups,
    public: OnceLock<Result<Client, NoClient>>,
    any: OnceLock<Result<Client, NoClient>>,
}

/// Why a client cannot be built. Nothing was sent; a repetition fails alike until the host is started again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NoClient(String);

impl Clients {
    /// Creates the clients. The one for [`AddressScope::PublicAddresses`] connects where
    /// `addresses` permits.
    pub fn new(addresses: AddressPolicy) -> Self {
        Self::with_names(addresses, lookup_by_system)
    }

    /// The same, with the names that `ask` resolves.
    pub fn with_names(addresses: AddressPolicy, ask: LookupFn) -> Self {
        let (public, any) = (OnceLock::new(), OnceLock::new());
        Self { addresses, lookups: Lookups::new(ask), public, any }
    }

    /// Finds the addresses of a destination for a request of an endpoint, when it is the endpoint's
    /// turn ([`FairPermits`](gristmill_core::sharing::fair_permits::FairPermits)).
    /// The request is then sent inside of [`Found::with`]. Whether the addresses are permitted is
    /// checked when it connects.
    ///
    /// # Errors
    /// [`LookupError`] when there are none, or the lookup hangs. The time until it begins has no
    /// bound.
    pub async fn look_up(
        &self,
        destination: &Destination,
        owner: &OwnerId,
        endpoint: &EndpointId,
    ) -> Result<Found, LookupError> {
        match destination.address {
            Some(_) => Ok(Found::ADDRESS),
            None => self.lookups.look_up(&destination.host, owner, endpoint).await,
        }
    }

    /// Refuses a destination that is an address, as a request for [`AddressScope::PublicAddresses`]
    /// would be refused. Names are checked when they are resolved.
    ///
    /// # Errors
    /// [`AddressRefused`] when the host is such an address.
    pub fn check(&self, destination: &Destination) -> Result<(), AddressRefused> {
        let Some(address) = destination.address else { return Ok(()) };
        let refused = |reason| AddressRefused { host: destination.host.clone(), reason };
        self.addresses.check(address).map_err(refused)
    }

    /// The client for a scope. It checks the addresses that it resolves; an address in the URL
    /// itself is checked by [`Clients::check`].
    ///
    /// # Errors
    /// [`NoClient`].
    pub fn get(&self, scope: AddressScope) -> Result<&Client, NoClient> {
        let cell = match scope {
            AddressScope::PublicAddresses => &self.public,
            AddressScope::AnyAddress => &self.any,
        };
        let client =
            cell.get_or_init(|| self.build(scope).map_err(|error| NoClient(error.to_string())));
        client.as_ref().map_err(Clone::clone)
    }

    fn build(&self, scope: AddressScope) -> reqwest::Result<Client> {
        Client::builder()
            .dns_resolver(Resolver {
                addresses: (scope == AddressScope::PublicAddresses).then(|| self.addresses.clone()),
                lookups: self.lookups.clone(),
            })
            .redirect(Policy::none())
            .retry(retry::never())
            .referer(false)
            .no_proxy()
            // One request per connection, so that no state of a request reaches the next.
            .pool_max_idle_per_host(0)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
    }
}
