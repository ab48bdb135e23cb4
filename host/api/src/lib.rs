//! The HTTP interface of Gristmill: the queue API under `/v2` and `/sdk/v2`, the management API
//! under `/v1`, a registry of handlers beside the queue API, and the web
//! console.
//!
//! [`Api::new`] lists every route on one screen. The documents of both APIs are those of
//! `gristmill-wire`; `queue/dto/` and `management/dto/` convert the domain to them. OpenAI's format
//! is only in `queue/openai`, and that of registries only in [`registry`]. Every error of both APIs
//! is an [`error::ApiError`].
//!
//! **Bounds.** A body is read up to its route's limit; [`in_flight::BODIES_IN_FLIGHT_BYTES_MAX`]
//! bounds the sum of all bodies that are being read, with a share for each key. A waiting call
//! costs one task and one map entry.

mod access;
mod admission;
mod answer_owner;
mod auth;
mod body;
mod call_origin;
mod caller;
mod checks;
mod connection_shares;
mod console;
mod control_error;
mod docs_page;
mod error;
mod fallback;
mod head;
mod host_facts;
mod in_flight;
mod management;
mod metrics;
mod openapi;
mod paths;
mod probes;
mod query;
mod queue;
mod rate_limit;
mod refusal;
mod registry;
mod router;
mod session_cookie;
mod state;
mod unauthenticated;
mod wire_time;

/// The body of an answer.
pub use axum::body::Body as AnswerBody;

pub use answer_owner::{AnswerOwner, SMALL_ANSWER_BYTES};
pub use call_origin::{CallOrigin, PeerAddress};
pub use connection_shares::{ConnectionAuth, ConnectionShares, OwnerAtShare};
pub use host_facts::{CertificateExpiry, HostFacts};
pub use probes::probe_without_jobs;
pub use rate_limit::RateLimits;
pub use router::{Api, response_over_budget, unavailable};
pub use state::{ApiState, Services};
pub use unauthenticated::AddressLimit;
