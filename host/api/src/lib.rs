//! The HTTP interface of Gristmill: the queue API under `/v2` and `/sdk/v2`, the management API
//! under `/v1`, a registry of handlers beside the queue API, and the web console.
//!
//! A call passes `request` (its head and path), `identity` (its key, its owner and its permission)
//! and `limits`, then the route in `queue`, `management`, `registry` or `console`, which reads its
//! body with `request`; a call below `/http` goes to `http_endpoints` instead of a route. `answer`
//! and `event_stream` have the forms that all of them share.
//!
//! Each module knows only those before it: `answer`, `limits`, `request`, `event_stream`, `state`,
//! `identity`, `openapi`, the routes, `router`.
//!
//! [`Api::new`] lists every route on one screen. The documents of both APIs are those of
//! `gristmill-wire`; each route converts the domain to them, and `queue/dto/` has the conversions
//! that several routes share. OpenAI's format is only in `queue/openai`, and that of registries
//! only in [`registry`]. Every error of both APIs is an [`answer::error::ApiError`].
//!
//! **Bounds.** A body is read up to its route's limit;
//! [`limits::in_flight::BODIES_IN_FLIGHT_BYTES_MAX`] bounds the sum of all bodies that are being
//! read, with a share for each key. A waiting call costs one task and one map entry.

mod answer;
mod console;
mod event_stream;
mod fallback;
mod host_facts;
mod http_endpoints;
mod http_metrics;
mod identity;
mod limits;
mod management;
mod metrics;
mod openapi;
mod overview_events;
mod probes;
mod queue;
mod registry;
mod request;
mod router;
mod state;

/// The body of an answer.
pub use axum::body::Body as AnswerBody;

pub use host_facts::HostFacts;
pub use http_endpoints::{ByName, by_name, reads_on};
pub use limits::rate_limit::RateLimits;
pub use limits::unauthenticated::AddressLimit;
pub use metrics::{StandbyMetrics, Unconfirmed};
pub use probes::probe_without_jobs;
pub use router::{
    Api, response_over_budget, too_many_calls_without_key, unavailable, unreadable_body,
};
pub use state::{ApiParts, ApiState, Compatibility};
