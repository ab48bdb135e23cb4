//! The two HTTP clients: one connects only to public addresses, the other to any. They share
//! nothing, so that a connection of one client never serves a request of the other.
//!
//! A call for a job, that is a request of a handler or a webhook, is made by [`Clients::send`]: its
//! connection ends with the call. The host's own requests are sent by the clients themselves.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use gristmill_core::id::{EndpointId, OwnerId};
use reqwest::redirect::Policy;
use reqwest::{Client, Request, Response, retry};
use rustls_platform_verifier::Verifier;
use tokio::time::Instant;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::{ALL_VERSIONS, ClientConfig, Error};

use crate::destination::Destination;
use crate::exchange::{CONNECT_TIMEOUT, SendError, exchange, is_https};
use crate::resolver::{Found, LookupError, LookupFn, Lookups, Resolver, lookup_by_system};
use crate::{AddressPolicy, AddressRefused, AddressScope};

/// A client for each [`AddressScope`], built when it is first needed.
#[derive(Debug)]
pub struct Clients {
    addresses: AddressPolicy,
    lookups: Lookups,
    public: OnceLock<Result<Client, NoClient>>,
    any: OnceLock<Result<Client, NoClient>>,
    tls: OnceLock<Result<Arc<ClientConfig>, NoClient>>,
}

/// Why a client cannot be built. Nothing was sent; a repetition fails alike until the host is
/// started again.
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
        let (public, any, tls) = (OnceLock::new(), OnceLock::new(), OnceLock::new());
        Self { addresses, lookups: Lookups::new(ask), public, any, tls }
    }

    /// Finds the addresses of a destination for a request of an endpoint, when it is the endpoint's
    /// turn ([`Permits`](gristmill_core::sharing::permits::Permits)).
    /// [`send`](Self::send) then gets them, and checks whether they are permitted.
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

    /// Refuses a destination whose address is known without a lookup, as a request for
    /// [`AddressScope::PublicAddresses`] would be refused: an address, or a name of this machine.
    /// Other names are checked when they are resolved.
    ///
    /// # Errors
    /// [`AddressRefused`] when the host has such an address.
    pub fn check(&self, destination: &Destination) -> Result<(), AddressRefused> {
        let of_name = || destination.is_this_machine().then_some(Ipv4Addr::LOCALHOST.into());
        let Some(address) = destination.address.or_else(of_name) else { return Ok(()) };
        let refused = |reason| AddressRefused { host: destination.host.clone(), reason };
        self.addresses.check(address).map_err(refused)
    }

    /// Makes a call: sends a request, and waits for the head of the answer. The time limit of the
    /// request covers the connection, the head, and the body of the answer. The connection is
    /// closed when this future or the answer is dropped, whatever the receiver does; a receiver
    /// that has not taken the whole request by then gets no more of it.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send(
        &self,
        request: Request,
        found: &Found,
        scope: AddressScope,
    ) -> Result<Response, SendError> {
        let limit = request.timeout().copied();
        // A time that no clock can hold never comes.
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let addresses = self.addresses(&request, found, scope)?;
        let request: http::Request<reqwest::Body> = request
            .try_into()
            .map_err(|error: reqwest::Error| SendError::Invalid(crate::innermost_cause(&error)))?;
        let tls = match is_https(request.uri()) {
            true => Some(self.tls().map_err(|error| SendError::Failed(error.to_string()))?),
            false => None,
        };
        let answer = exchange(request, addresses, tls, until).await?;
        Ok(answer.map(reqwest::Body::wrap).into())
    }

    /// The addresses to which a request may connect; none if its host is an address itself.
    fn addresses(
        &self,
        request: &Request,
        found: &Found,
        scope: AddressScope,
    ) -> Result<Arc<[SocketAddr]>, SendError> {
        let destination = Destination::of(request.url())
            .map_err(|error| SendError::Invalid(error.to_string()))?;
        let policy = (scope == AddressScope::PublicAddresses).then_some(&self.addresses);
        match destination.address {
            Some(_) => {
                if policy.is_some() {
                    self.check(&destination)?;
                }
                Ok(Arc::default())
            }
            None => found.permitted(&destination.host, policy),
        }
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

    /// How calls use TLS: as the clients do, with the certificates that the system trusts.
    fn tls(&self) -> Result<Arc<ClientConfig>, NoClient> {
        let config = self.tls.get_or_init(|| {
            tls_config().map(Arc::new).map_err(|error| NoClient(error.to_string()))
        });
        config.clone()
    }
}

fn tls_config() -> Result<ClientConfig, Error> {
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
    let verifier = Verifier::new(provider.clone())?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(ALL_VERSIONS)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
