//! The domain of Gristmill: what a job is, what may happen to it, and the traits behind which the
//! disk ([`store`], [`catalog`]) and the sandbox ([`runtime`]) stand.
//!
//! **Invariants.** This crate does no I/O, knows neither axum nor wasmtime nor SQLite, and reads
//! time only through [`time::Clock`]. Every change of a job's state is decided by
//! [`job::JobState::apply`] and by nothing else.

pub mod backup;
pub mod catalog;
#[cfg(test)]
mod catalog_tests;
pub mod delivery;
pub mod digest;
pub mod document;
pub mod egress;
pub mod endpoint;
pub mod id;
pub mod idempotency;
pub mod image;
pub mod job;
pub mod job_news;
pub mod jobs;
pub mod key;
pub mod limits;
pub mod listing;
pub mod logs;
pub mod network;
pub mod payload;
pub mod policy;
pub mod price;
pub mod rate;
pub mod record;
pub mod registry_auth;
pub mod room;
pub mod runtime;
pub mod shares;
pub mod signals;
pub mod store;
pub mod stream;
pub mod template;
pub mod tenancy;
pub mod time;
pub mod usage;
pub mod volume;
pub mod webhook;
pub mod workers;
