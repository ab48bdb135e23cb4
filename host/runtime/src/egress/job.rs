//! The requests of one job: which hosts it may reach, for how long, and how many at one time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gristmill_core::deploy::egress::Permission;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::metrics::endpoint::RequestEnd;
use gristmill_core::runtime::{Attempt, AttemptSink};
use gristmill_core::trace::{SpanKind, TraceContext};
use gristmill_egress::{AddressScope, Destination};
use http::{HeaderMap, HeaderValue, Method};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::Semaphore;
use tracing::field::Empty;
use tracing::{Instrument as _, trace_span};
use url::Url;

use super::calls::Calls;
use super::client::{Egress, Slot, without_hop_headers};
use super::error::{EgressError, HTTP_HEAD_BYTES_MAX, REQUESTS_PER_JOB_MAX};
use super::span::{RequestSpan, add_trace};

/// A request that a handler wants to make.
#[derive(Debug)]
pub(crate) struct OutgoingRequest {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<reqwest::Body>,
    /// When the handler stops to wait for the head of the answer. The attempt's deadline applies
    /// in any case.
    pub(crate) until: Option<Instant>,
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
    pub(super) calls: Arc<Calls>,
}

impl JobEgress {
    pub(crate) fn new(
        egress: Arc<Egress>,
        attempt: &Attempt<()>,
        sink: Arc<dyn AttemptSink>,
    ) -> Self {
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
    pub(crate) fn begin(&mut self, attempt: &Attempt<()>, sink: Arc<dyn AttemptSink>) {
        self.end(sink);
        self.calls = Arc::default();
        self.deadline = attempt.deadline;
        self.trace = attempt.trace.clone();
    }

    /// Ends the requests that the job has left open, and returns their slots; `sink` is the next
    /// one.
    pub(crate) fn end(&mut self, sink: Arc<dyn AttemptSink>) {
        self.calls.end();
        self.sink = sink;
    }

    /// The bytes of bodies that the attempt has sent, and those that it has received.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        self.calls.traffic.totals()
    }

    /// Counts bytes of an answer that is read into memory.
    pub(crate) fn count_received(&self, bytes: usize) {
        self.calls.traffic.received(bytes);
    }

    /// How many requests of the job hold a slot.
    #[cfg(test)]
    pub(super) fn open_requests(&self) -> usize {
        REQUESTS_PER_JOB_MAX - self.in_flight.available_permits()
    }

    /// Time until the attempt is stopped.
    pub(super) fn remaining(&self) -> Duration {
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
        let unanswered = self.calls.begin(self.deadline);
        self.report_unanswered().await;
        let answer = self.send_once(request).await;
        let end = answer.as_ref().map_or_else(EgressError::as_end, |_| RequestEnd::Answered);
        if let Some(took_us) = unanswered.end() {
            self.sink.requested(end, took_us).await;
        }
        answer
    }

    /// Reports the requests that the handler has abandoned since the last report.
    async fn report_unanswered(&self) {
        while let Some((end, took_us)) = self.calls.next_unanswered() {
            self.sink.requested(end, took_us).await;
        }
    }

    /// Reports the requests that have no answer when the attempt ends. Their answers are not
    /// reported any more.
    pub(crate) async fn report_end(&self) {
        self.calls.abandon_all(self.deadline);
        self.report_unanswered().await;
    }

    /// The body of a request, from bytes in memory; `None` without bytes. It counts as sent when
    /// the connection takes it.
    pub(crate) fn whole_body(&self, bytes: Vec<u8>) -> Option<reqwest::Body> {
        let never = |never: Infallible| match never {};
        (!bytes.is_empty()).then(|| {
            let body = Full::new(Bytes::from(bytes)).map_err(never).boxed_unsync();
            reqwest::Body::wrap(self.calls.cap(body, self.remaining(), None))
        })
    }

    async fn send_once(
        &self,
        request: OutgoingRequest,
    ) -> Result<(reqwest::Response, Slot), EgressError> {
        let (destination, address_scope) = self.address_scope(&request.method, &request.url)?;
        let of_job =
            self.in_flight.clone().try_acquire_owned().map_err(|_| EgressError::TooMany)?;
        let endpoint = &self.deployment.endpoint;
        let until = request.until;
        let slot = within(until, self.egress.slot(endpoint, of_job)).await?;
        let found = within(until, self.egress.look_up(&destination, endpoint)).await??;
        let client = self.egress.client(address_scope)?;
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
        if endpoint.settings.propagate_traces {
            let own = span.as_ref().map(RequestSpan::context);
            add_trace(&mut headers, own.as_ref().or(self.trace.as_ref()));
        }
        let mut building =
            client.request(request.method, request.url).headers(headers).timeout(self.remaining());
        if let Some(body) = request.body {
            building = building.body(body);
        }
        let sending = async {
            let request = building.build()?;
            let sent = self.egress.send(request, &found, address_scope).await;
            sent.map_err(|error| EgressError::of_send(error, &destination, &endpoint.owner))
        };
        let answer = within(until, sending.instrument(sent.clone())).await.flatten();
        let answer = answer.and_then(with_own_head);
        if let Some(span) = span {
            span.end(answer.as_ref().map(reqwest::Response::status));
        }
        let response = answer?;
        sent.record("status", response.status().as_u16());
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
                self.egress.check(&destination).map_err(|refused| {
                    EgressError::of_address(refused, &destination, &endpoint.owner)
                })?;
                Ok((destination, AddressScope::PublicAddresses))
            }
            Permission::Denied => {
                let Destination { host, port, .. } = destination;
                Err(EgressError::NotAllowed((self.egress.request_refusal)(
                    &endpoint.id,
                    &host,
                    port,
                )))
            }
        }
    }
}

/// The answer with a bounded head that it does not share: the connection reads a head into one
/// buffer, of up to some 400 KiB, which each value would keep. Headers that concern one hop only
/// are dropped.
///
/// # Errors
/// [`EgressError::HeadTooLarge`] beyond [`HTTP_HEAD_BYTES_MAX`].
fn with_own_head(mut response: reqwest::Response) -> Result<reqwest::Response, EgressError> {
    response.extensions_mut().clear();
    let headers = std::mem::take(response.headers_mut());
    let sizes = headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    let bytes = sizes.sum();
    if bytes > HTTP_HEAD_BYTES_MAX {
        return Err(EgressError::HeadTooLarge { bytes });
    }
    let headers = without_hop_headers(headers);
    let own = response.headers_mut();
    own.reserve(headers.len());
    for (name, value) in &headers {
        let mut copy = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
            EgressError::Other(format!(
                "the answer's header `{name}` has a value that is malformed"
            ))
        })?;
        copy.set_sensitive(value.is_sensitive());
        own.append(name.clone(), copy);
    }
    Ok(response)
}

/// Waits for `future` until then.
///
/// # Errors
/// [`EgressError::Timeout`].
pub(crate) async fn within<F: Future>(
    until: Option<Instant>,
    future: F,
) -> Result<F::Output, EgressError> {
    match until {
        Some(until) => {
            tokio::time::timeout_at(until.into(), future).await.map_err(|_| EgressError::Timeout)
        }
        None => Ok(future.await),
    }
}
