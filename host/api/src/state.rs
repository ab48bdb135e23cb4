//! The state of the routes: handles to the parts that the host has created.
//!
//! *Invariant:* no store, catalog or logs. The operations of [`Control`] read and change all that
//! is deployed, and those of [`Jobs`] the jobs.

use std::ops::Deref;
use std::sync::Arc;

use gristmill_control::Control;
use gristmill_core::access::secrets::SecretsStore;
use gristmill_core::http_calls::HttpCalls;
use gristmill_core::jobs::operations::Jobs;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::time::Clock;
use gristmill_core::trace::Tracer;
use gristmill_core::webhook::delivery::WebhookReceivers;
use gristmill_edge::CertificateExpiry;

use crate::host_facts::{HostFacts, Started};
use crate::http_metrics::HttpMetrics;
use crate::limits::checks::{Checks, Pages};
use crate::limits::in_flight::InFlight;
use crate::limits::owner_calls::CALLS_OF_CONNECTION;
use crate::limits::rate_limit::{RateLimiter, RateLimits};
use crate::limits::unauthenticated::{AddressLimiter, Counted};
use crate::overview_events::OverviewEvents;
use crate::request::body::BodyReader;

/// The state of the routes. Each call clones it several times; a clone costs one counter.
#[derive(Debug, Clone)]
pub struct ApiState(Arc<SharedState>);

/// What all calls share.
#[derive(Debug)]
pub struct SharedState {
    pub(crate) control: Control,
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) http_calls: Arc<dyn HttpCalls>,
    pub(crate) disk_space: Arc<DiskSpaceGauge>,
    pub(crate) secrets: Arc<dyn SecretsStore>,
    pub(crate) receivers: Arc<dyn WebhookReceivers>,
    pub(crate) bodies: BodyReader,
    /// The turns of checks of large bodies.
    pub(crate) checks: Checks,
    /// The turns of lists.
    pub(crate) pages: Pages,
    pub(crate) overview_events: OverviewEvents,
    /// The memory of large results that are being assembled.
    pub(crate) results: InFlight,
    pub(crate) limiter: RateLimiter,
    pub(crate) unauthenticated: AddressLimiter,
    pub(crate) visitors: AddressLimiter,
    pub(crate) http: Arc<HttpMetrics>,
    pub(crate) tracer: Tracer,
    pub(crate) compatibility: Compatibility,
    pub(crate) facts: HostFacts,
    pub(crate) certificate: CertificateExpiry,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) started: Started,
    /// Below it, each endpoint of HTTP has a name.
    pub(crate) http_domain: Option<Box<str>>,
}

/// The settings for clients of hosted services.
#[derive(Debug, Clone)]
pub struct Compatibility {
    /// Completes the names of the template field and query flag for platform templates:
    /// `is<Brand>`, `include<Brand>Templates`.
    pub brand: Arc<str>,
    /// Whether endpoints that request a GPU are accepted; they run on the CPU like all others.
    pub ignores_gpu: bool,
}

/// The parts of the host that the routes use.
#[derive(Debug)]
pub struct ApiParts {
    /// The clock that counts the calls of a key.
    pub clock: Arc<dyn Clock>,
    /// The operations on what is deployed.
    pub control: Control,
    /// The jobs.
    pub jobs: Arc<Jobs>,
    /// Has HTTP requests answered.
    pub http_calls: Arc<dyn HttpCalls>,
    /// The free space of the disk.
    pub disk_space: Arc<DiskSpaceGauge>,
    /// The store, for the key of its secrets.
    pub secrets: Arc<dyn SecretsStore>,
    /// The receivers that submissions may name.
    pub receivers: Arc<dyn WebhookReceivers>,
    /// Makes the spans of submissions.
    pub tracer: Tracer,
    /// What the host is.
    pub facts: HostFacts,
    /// When its certificate expires.
    pub certificate: CertificateExpiry,
    /// Most connections of clients, from which the most calls at one time follow.
    pub connections_max: u32,
    /// The domain of the names of HTTP endpoints, in lower case.
    pub http_domain: Option<Box<str>>,
    /// The limits of calls.
    pub limits: RateLimits,
    /// The settings for clients of hosted services.
    pub compatibility: Compatibility,
}

impl ApiState {
    /// Combines the parts.
    pub fn new(parts: ApiParts) -> Self {
        let ApiParts { clock, control, jobs, http_calls, disk_space, secrets, .. } = parts;
        let ApiParts { receivers, tracer, facts, certificate, limits, compatibility, .. } = parts;
        let http_domain = parts.http_domain;
        let calls_max = u64::from(parts.connections_max).saturating_mul(CALLS_OF_CONNECTION);
        let started = Started { at: clock.now(), elapsed: clock.elapsed() };
        Self(Arc::new(SharedState {
            control,
            jobs,
            http_calls,
            disk_space,
            secrets,
            receivers,
            bodies: BodyReader::default(),
            checks: Checks::default(),
            pages: Pages::default(),
            overview_events: OverviewEvents::default(),
            results: InFlight::of_results(),
            unauthenticated: AddressLimiter::new(Counted::Unauthenticated, limits.unauthenticated),
            visitors: AddressLimiter::new(Counted::Visits, limits.visitors),
            limiter: RateLimiter::new(limits, calls_max, clock.clone()),
            http: Arc::default(),
            tracer,
            compatibility,
            facts,
            certificate,
            clock,
            started,
            http_domain,
        }))
    }
}

impl Deref for ApiState {
    type Target = SharedState;
    fn deref(&self) -> &SharedState {
        &self.0
    }
}
