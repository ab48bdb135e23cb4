//! All outgoing HTTP of the process, with the bounds on open requests.

use std::sync::Arc;

use gristmill_core::deploy::egress::{HostPattern, Permission};
use gristmill_core::deploy::endpoint::Endpoint;
use gristmill_core::sharing::permits::{Permit, Permits};
use gristmill_core::sharing::shares::SharedBound;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::trace::Tracer;
use gristmill_egress::{
    AddressPolicy, AddressRefused, AddressScope, Clients, Destination, Found, SendError,
};
use http::header::{self, HeaderMap, HeaderName};
use reqwest::Client;
use tokio::sync::OwnedSemaphorePermit;

use super::error::{EgressError, RequestRefusal, not_allowed};

/// Most requests of all jobs that are open at one time; each holds a socket. Further ones wait, and
/// while several owners have endpoints each owner has a share. An endpoint's jobs have at most a
/// quarter, so that an endpoint whose servers never answer delays only itself.
pub(super) const REQUESTS_MAX: u64 = 1_024;

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

/// The right to one open request, within the bounds of the job, its endpoint, and the process. It
/// is kept with the answer, whose body holds the connection ([`Clients::send`]).
#[derive(Debug)]
pub(crate) struct Slot {
    _of_job: OwnedSemaphorePermit,
    _of_all: Permit,
}

/// All outgoing HTTP of the process.
#[derive(Debug)]
pub(crate) struct Egress {
    in_flight: Permits,
    clients: Clients,
    private_hosts: Vec<HostPattern>,
    tracer: Tracer,
    pub(super) request_refusal: RequestRefusal,
}

impl Egress {
    /// Requests to public hosts connect to the addresses that `addresses` permits. `private_hosts`
    /// are the hosts with private addresses that handlers of every owner may reach.
    pub(crate) fn new(
        addresses: AddressPolicy,
        private_hosts: Vec<HostPattern>,
        tenancy: Tenancy,
        tracer: Tracer,
        request_refusal: RequestRefusal,
    ) -> Arc<Self> {
        Arc::new(Self {
            in_flight: Permits::with_parts(SharedBound::new(REQUESTS_MAX, tenancy)),
            clients: Clients::new(addresses),
            private_hosts,
            tracer,
            request_refusal,
        })
    }

    /// Requests to public hosts alone, on a host of one owner and without spans.
    pub(crate) fn plain() -> Arc<Self> {
        let (addresses, tenancy) = (AddressPolicy::default(), Tenancy::default());
        Self::new(addresses, Vec::new(), tenancy, Tracer::default(), not_allowed)
    }

    /// Makes the spans of requests.
    pub(super) fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// The addresses of a destination that the endpoint's handlers may reach. The endpoint's own
    /// list permits private addresses only to endpoints of the operator, since any owner writes
    /// such lists.
    pub(super) fn permission(&self, endpoint: &Endpoint, destination: &Destination) -> Permission {
        let listed = destination.permission(&endpoint.settings.allowed_hosts);
        let may_be_private = endpoint.owner.is_operator()
            || destination.permission(&self.private_hosts) != Permission::Denied;
        match listed {
            Permission::AnyAddress if !may_be_private => Permission::Public,
            _ => listed,
        }
    }

    /// Waits for the right of an endpoint's job to open one more request.
    pub(super) async fn slot(&self, endpoint: &Endpoint, of_job: OwnedSemaphorePermit) -> Slot {
        let of_all = self.in_flight.share(&endpoint.owner, &endpoint.id).acquire().await;
        Slot { _of_job: of_job, _of_all: of_all }
    }

    /// Refuses a destination given as an address that is not permitted.
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

    /// Makes a call. Its connection ends with the returned future, or with the answer.
    pub(super) async fn send(
        &self,
        request: reqwest::Request,
        found: &Found,
        address_scope: AddressScope,
    ) -> Result<reqwest::Response, SendError> {
        self.clients.send(request, found, address_scope).await
    }

    /// The client that builds the requests for a scope.
    pub(super) fn client(&self, address_scope: AddressScope) -> Result<&Client, EgressError> {
        self.clients.get(address_scope).map_err(|error| EgressError::Other(error.to_string()))
    }
}

/// The headers without those that concern one hop only.
pub(super) fn without_hop_headers(mut headers: HeaderMap) -> HeaderMap {
    for name in &HOP_HEADERS {
        headers.remove(name);
    }
    headers
}
