//! The HTTP clients: one that reaches public addresses only, one that reaches any. They share
//! nothing, so that a connection of the one can never serve a request of the other.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::header::{self, HeaderMap, HeaderName};
use reqwest::redirect::Policy;
use reqwest::{Client, retry};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::EgressError;
use super::resolver::{Lookups, Resolver};

/// Requests of all jobs that are open at one time; each holds a socket. More wait.
const REQUESTS_MAX: usize = 1_024;

/// How long making a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers between two neighbours on the wire, and those that reqwest writes itself.
const HOP_HEADERS: [HeaderName; 10] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::HOST,
];

/// Which addresses a request may connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Only if all addresses of the name are public.
    PublicAddresses,
    /// Any: the operator named this destination.
    AnyAddress,
}

/// All outgoing HTTP of the process. Each client is built when it is first needed.
#[derive(Debug)]
pub(crate) struct Egress {
    in_flight: Arc<Semaphore>,
    lookups: Lookups,
    public: OnceLock<Result<Client, String>>,
    any: OnceLock<Result<Client, String>>,
}

impl Egress {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            in_flight: Arc::new(Semaphore::new(REQUESTS_MAX)),
            lookups: Lookups::default(),
            public: OnceLock::new(),
            any: OnceLock::new(),
        })
    }

    /// Waits for the right to open one more request.
    pub(super) async fn slot(&self) -> OwnedSemaphorePermit {
        let slot = self.in_flight.clone().acquire_owned().await;
        slot.expect("the request semaphore is never closed")
    }

    /// The client for a reach.
    pub(super) fn client(&self, reach: Reach) -> Result<&Client, EgressError> {
        let cell = match reach {
            Reach::PublicAddresses => &self.public,
            Reach::AnyAddress => &self.any,
        };
        let client = cell.get_or_init(|| self.build(reach).map_err(|error| error.to_string()));
        client.as_ref().map_err(|error| EgressError::Other(error.clone()))
    }

    fn build(&self, reach: Reach) -> reqwest::Result<Client> {
        Client::builder()
            .dns_resolver(Resolver { reach, lookups: self.lookups.clone() })
            .redirect(Policy::none())
            .retry(retry::never())
            .referer(false)
            .no_proxy()
            // One request per connection: nothing of a job is left for the next.
            .pool_max_idle_per_host(0)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .build()
    }
}

/// The headers without those that concern one hop only.
pub(super) fn without_hop_headers(mut headers: HeaderMap) -> HeaderMap {
    for name in &HOP_HEADERS {
        headers.remove(name);
    }
    headers
}
