//! Outgoing HTTP, for both interfaces of handlers: the one-shot `http.send` and `wasi:http`. The
//! endpoint's list permits hosts; the resolver permits addresses. Redirects are returned, never
//! followed, so that each hop is checked. There are no proxies, no cookies, and no connections
//! shared between jobs.

mod calls;
mod client;
mod span;
mod wasi_http;

use std::sync::Arc;
use std::time::{Duration, Instant};

use gristmill_core::deploy::egress::Permission;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{Attempt, AttemptSink};
use gristmill_core::trace::{SpanKind, TraceContext};
use gristmill_egress::{
    AddressRefused, AddressScope, Destination, LookupError, innermost_cause, refused_address,
};
use http::{HeaderMap, Method};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::field::Empty;
use tracing::{Instrument as _, trace_span};
use url::Url;

use calls::Calls;
pub(crate) use client::Egress;
use client::without_hop_headers;
use span::{RequestSpan, add_trace};
pub(crate) use wasi_http::bound_heads;

use gristmill_core::sharing::permits::Permit;

/// Largest body of a request or a response, in bytes (16 MiB). A larger one fails the request.
pub(crate) const HTTP_BODY_BYTES_MAX: usize = 16 << 20;

/// Largest head of a request, in bytes (32 KiB): method, URL and headers. A larger one is refused
/// before it is read. In `wasi:http`, where a handler sets these parts one by one, the bound
/// applies to each.
pub(crate) const HTTP_HEAD_BYTES_MAX: usize = 32 << 10;

/// Open requests of one job, until their answers are read or dropped. More are refused, since a
/// handler that holds them all would wait for itself.
const REQUESTS_PER_JOB_MAX: usize = 64;

/// Why a request was not made, or failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EgressError {
    /// The host is not on the endpoint's list.
    #[error("endpoint `{endpoint}` does not allow requests to `{host}:{port}`")]
    NotAllowed { endpoint: String, host: String, port: u16 },
    /// The host is on the list, but has an address that is refused.
    #[error(transparent)]
    AddressRefused(#[from] AddressRefused),
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The job has too many open requests.
    #[error("the job has {REQUESTS_PER_JOB_MAX} open requests, which is the limit")]
    TooMany,
    /// There was no answer in time.
    #[error("the request timed out")]
    Timeout,
    /// There was no connection.
    #[error("{0}")]
    Connect(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl EgressError {
    fn as_end(&self) -> RequestEnd {
        match self {
            Self::NotAllowed { .. } | Self::AddressRefused(_) => RequestEnd::Denied,
            Self::Timeout => RequestEnd::TimedOut,
            Self::Connect(_) => RequestEnd::NotConnected,
            Self::Invalid(_) | Self::TooMany | Self::Other(_) => RequestEnd::Failed,
        }
    }
}

/// A request that a handler wants to make.
#[derive(Debug)]
pub(crate) struct OutgoingRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<reqwest::Body>,
}

/// The right to one open request, within the bounds of the job, its endpoint, and the process.
#[derive(Debug)]
pub(crate) struct Slot {
    _of_job: OwnedSemaphorePermit,
    _of_endpoint: OwnedSemaphorePermit,
    _of_all: Permit,
}

/// The permitted requests of one job, and their deadline.
#[derive(Clone)]
pub(crate) struct JobEgress {
    egress: Arc<Egress>,
    /// Counts the requests.
    sink: Arc<dyn AttemptSink>,
    deployment: Arc<Deployment>,
    deadline: Instant,
    trace: Option<TraceContext>,
    in_flight: Arc<Semaphore>,
    calls: Arc<Calls>,
}

impl JobEgress {
    pub(crate) fn new(egress: Arc<Egress>, attempt: &Attempt, sink: Arc<dyn AttemptSink>) -> Self {
        Self {
            egress,
            sink,
            deployment: attempt.deployment.clone(),
            deadline: attempt.deadline,
            trace: attempt.trace.clone(),
            in_flight: Arc::new(Semaphore::new(REQUESTS_PER_JOB_MAX)),
            calls: Arc::default(),
        }
    }

    /// Begins the next attempt of the same instance.
    pub(crate) fn begin(&mut self, attempt: &Attempt, sink: Arc<dyn AttemptSink>) {
        self.end(sink);
        self.calls = Arc::default();
        self.deadline = attempt.deadline;
        self.trace = attempt.trace.clone();
    }

    /// Ends the requests that the job has left open, and returns their slots; `sink` is the next one.
    pub(crate) fn end(&mut self, sink: Arc<dyn AttemptSink>) {
        self.calls.end();
        self.sink = sink;
    }

    /// The bytes of bodies that the attempt has sent, and those that it has received.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        self.calls.traffic.totals()
    }

    /// Counts the bytes of bodies that were whole in memory.
    pub(crate) fn count_traffic(&self, sent: usize, received: usize) {
        self.calls.traffic.sent(sent);
        self.calls.traffic.received(received);
    }

    /// How many requests of the job hold a slot.
    #[cfg(test)]
    fn open_requests(&self) -> usize {
        REQUESTS_PER_JOB_MAX - self.in_flight.available_permits()
    }

    /// Time until the attempt is stopped.
    fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Sends a request and waits for the head of the answer. Keep the answer's slot until its body
    /// is read or dropped.
    ///
    /// # Errors
    /// [`EgressError`], before a byte is sent if the destination is not permitted.
    pub(crate) async fn send(
        &self,
        request: OutgoingRequest,
    ) -> Result<(reqwest::Response, Slot), EgressError> {
        let started = Instant::now();
        let answer = self.send_once(request).await;
        let end = answer.as_ref().map_or_else(EgressError::as_end, |_| RequestEnd::Answered);
        let took_us = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.sink.requested(end, took_us).await;
        answer
    }

    async fn send_once(
        &self,
        request: OutgoingRequest,
    ) -> Result<(reqwest::Response, Slot), EgressError> {
        let (destination, address_scope) = self.address_scope(&request.method, &request.url)?;
        let of_job =
            self.in_flight.clone().try_acquire_owned().map_err(|_| EgressError::TooMany)?;
        let endpoint = &self.deployment.endpoint;
        let slot = self.egress.slot(endpoint, of_job).await;
        let found = self.egress.look_up(&destination, endpoint).await?;
        let sent = {
            let (method, url) = (&request.method, &request.url);
            trace_span!(
                target: "gristmill_runtime::bindings::egress", "request", %method, %url,
                status = Empty
            )
        };
        let span = self.egress.tracer().child(self.trace.as_ref(), SpanKind::Client);
        let span = span.map(|span| RequestSpan::new(span, &request.method, &destination));
        let mut headers = without_hop_headers(request.headers);
        if endpoint.propagates_traces {
            let own = span.as_ref().map(RequestSpan::context);
            add_trace(&mut headers, own.as_ref().or(self.trace.as_ref()));
        }
        let mut sending = self
            .egress
            .client(address_scope)?
            .request(request.method, request.url)
            .headers(headers)
            .timeout(self.remaining());
        if let Some(body) = request.body {
            sending = sending.body(body);
        }
        let answer = found.with(sending.send()).instrument(sent.clone()).await;
        let answer = answer.map_err(EgressError::from);
        if let Some(span) = span {
            span.end(answer.as_ref().map(reqwest::Response::status));
        }
        let mut response = answer?;
        sent.record("status", response.status().as_u16());
        let headers = std::mem::take(response.headers_mut());
        *response.headers_mut() = without_hop_headers(headers);
        Ok((response, slot))
    }

    /// The destination of a request to this URL, and the addresses that it may reach.
    fn address_scope(
        &self,
        method: &Method,
        url: &Url,
    ) -> Result<(Destination, AddressScope), EgressError> {
        let destination =
            Destination::of(url).map_err(|error| EgressError::Invalid(error.to_string()))?;
        if *method == Method::CONNECT {
            return Err(EgressError::Invalid("CONNECT is not supported".to_owned()));
        }
        let endpoint = &self.deployment.endpoint;
        match self.egress.permission(endpoint, &destination) {
            Permission::AnyAddress => Ok((destination, AddressScope::AnyAddress)),
            Permission::Public => {
                self.egress.check(&destination)?;
                Ok((destination, AddressScope::PublicAddresses))
            }
            Permission::Denied => {
                let Destination { host, port, .. } = destination;
                Err(EgressError::NotAllowed { endpoint: endpoint.id.to_string(), host, port })
            }
        }
    }
}

impl From<LookupError> for EgressError {
    fn from(error: LookupError) -> Self {
        Self::Connect(format!("cannot connect: {error}"))
    }
}

impl From<reqwest::Error> for EgressError {
    fn from(error: reqwest::Error) -> Self {
        if let Some(refused) = refused_address(&error) {
            return refused.clone().into();
        }
        let cause = innermost_cause(&error);
        if error.is_timeout() {
            Self::Timeout
        } else if error.is_connect() {
            Self::Connect(format!("cannot connect: {cause}"))
        } else if error.is_builder() {
            Self::Invalid(cause)
        } else {
            Self::Other(format!("the request failed: {cause}"))
        }
    }
}

#[cfg(test)]
mod tests;
