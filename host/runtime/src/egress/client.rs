//! All outgoing HTTP of the process: how much of it may be open at one time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use gristmill_core::endpoint::Endpoint;
use gristmill_core::id::EndpointId;
use gristmill_egress::{AddressPolicy, AddressRefused, Clients, Destination, Found, Reach};
use http::header::{self, HeaderMap, HeaderName};
use parking_lot::Mutex;
use reqwest::Client;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{EgressError, Slot};

/// Requests of all jobs that are open at one time; each holds a socket. More wait.
const REQUESTS_MAX: usize = 1_024;

/// Requests of one endpoint's jobs that are open at one time; more wait. A quarter of all: an
/// endpoint whose servers never answer holds up itself, and nobody else.
pub(super) const REQUESTS_PER_ENDPOINT_MAX: usize = REQUESTS_MAX / 4;

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

/// All outgoing HTTP of the process.
#[derive(Debug)]
pub(crate) struct Egress {
    in_flight: Arc<Semaphore>,
    /// The share of each endpoint that has open requests.
    shares: Mutex<HashMap<EndpointId, Weak<Semaphore>>>,
    clients: Clients,
}

impl Egress {
    /// Requests for the public connect where `addresses` permits.
    pub(crate) fn new(addresses: AddressPolicy) -> Arc<Self> {
        let in_flight = Arc::new(Semaphore::new(REQUESTS_MAX));
        Arc::new(Self { in_flight, shares: Mutex::default(), clients: Clients::new(addresses) })
    }

    /// Waits for the right of an endpoint's job to open one more request.
    pub(super) async fn slot(&self, endpoint: &EndpointId, of_job: OwnedSemaphorePermit) -> Slot {
        // First the endpoint's share: whoever waits for it holds nothing that others need.
        let of_endpoint = acquire(self.share(endpoint)).await;
        let of_all = acquire(self.in_flight.clone()).await;
        Slot { _of_job: of_job, _of_endpoint: of_endpoint, _of_all: of_all }
    }

    /// An endpoint's share. It lives as long as somebody holds or awaits a part of it.
    fn share(&self, endpoint: &EndpointId) -> Arc<Semaphore> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(endpoint).and_then(Weak::upgrade) {
            return share;
        }
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(REQUESTS_PER_ENDPOINT_MAX));
        shares.insert(endpoint.clone(), Arc::downgrade(&share));
        share
    }

    /// Refuses a destination that is an address which the public may not reach from here.
    pub(super) fn check(&self, destination: &Destination) -> Result<(), AddressRefused> {
        self.clients.check(destination)
    }

    /// Finds the addresses of a destination for a request of an endpoint's job.
    pub(super) async fn look_up(
        &self,
        destination: &Destination,
        endpoint: &Endpoint,
    ) -> Result<Found, EgressError> {
        Ok(self.clients.look_up(destination, &endpoint.owner, &endpoint.id).await?)
    }

    /// The client for a reach.
    pub(super) fn client(&self, reach: Reach) -> Result<&Client, EgressError> {
        self.clients.get(reach).map_err(EgressError::Other)
    }
}

async fn acquire(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore.acquire_owned().await.expect("the request semaphores are never closed")
}

/// The headers without those that concern one hop only.
pub(super) fn without_hop_headers(mut headers: HeaderMap) -> HeaderMap {
    for name in &HOP_HEADERS {
        headers.remove(name);
    }
    headers
}
