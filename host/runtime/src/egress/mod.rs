//! Outgoing HTTP, for both interfaces of handlers: the one-shot `http.send` and `wasi:http`. The
//! endpoint's list permits hosts; the resolver permits addresses. Redirects are returned, never
//! followed, so that each hop is checked. There are no proxies, no cookies, and no connections
//! shared between jobs.

mod calls;
mod client;
mod error;
mod job;
mod span;
#[cfg(test)]
mod tests;
mod wasi_http;

pub(crate) use client::Egress;
pub(crate) use error::{EgressError, HTTP_BODY_BYTES_MAX, HTTP_HEAD_BYTES_MAX, not_allowed};
pub use error::{RequestRefusal, how_to_allow};
pub(crate) use job::{JobEgress, OutgoingRequest, within};
pub(crate) use wasi_http::WRITE_BYTES_MAX;
