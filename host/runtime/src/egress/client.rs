//! All outgoing HTTP of the process: how much of it may be open at one time.

use std::sync::Arc;

use gristmill_egress::{Clients, Reach};
use http::header::{self, HeaderMap, HeaderName};
use reqwest::Client;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::EgressError;

/// Requests of all jobs that are open at one time; each holds a socket. More wait.
const REQUESTS_MAX: usize = 1_024;

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
    clients: Clients,
}

impl Egress {
    pub(crate) fn new() -> Arc<Self> {
        let in_flight = Arc::new(Semaphore::new(REQUESTS_MAX));
        Arc::new(Self { in_flight, clients: Clients::default() })
    }

    /// Waits for the right to open one more request.
    pub(super) async fn slot(&self) -> OwnedSemaphorePermit {
        let slot = self.in_flight.clone().acquire_owned().await;
        slot.expect("the request semaphore is never closed")
    }

    /// The client for a reach.
    pub(super) fn client(&self, reach: Reach) -> Result<&Client, EgressError> {
        self.clients.get(reach).map_err(EgressError::Other)
    }
}

/// The headers without those that concern one hop only.
pub(super) fn without_hop_headers(mut headers: HeaderMap) -> HeaderMap {
    for name in &HOP_HEADERS {
        headers.remove(name);
    }
    headers
}
