//! Everything that a client sees of the platform, through the real binary and over HTTP. The tests
//! follow the documented contract; each name states the rule that it checks.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "all of this is test code: a broken assumption must stop the test"
)]

mod auth;
mod big_streams;
mod bounds;
mod cancel;
mod deploy;
mod durability;
mod errors;
mod health;
mod idempotency;
mod isolation;
mod lifecycle;
mod openai;
mod openai_stream;
mod openapi;
mod policy;
mod priority;
mod progress;
mod purge;
mod rate_limits;
mod requests;
mod retry;
mod sandbox;
mod sandbox_network;
mod secrets;
mod stream;
mod stream_events;
mod stream_sizes;
mod templates;
mod timeouts;
mod ttl;
mod uploads;
mod webhooks;
