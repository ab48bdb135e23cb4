//! The domain of Gristmill: jobs and their states, and the traits that hide the disk ([`store`],
//! [`catalog`]) and the sandbox ([`runtime`]).
//!
//! **Invariants.** This crate does no I/O, and does not depend on axum, wasmtime or SQLite. Every
//! time that is stored or shown comes from [`time::Clock`]. Only [`job::JobState::apply`] decides
//! changes of a job's state.

pub mod backup;
pub mod catalog;
#[cfg(test)]
mod catalog_tests;
pub mod delivery;
pub mod depot;
pub mod digest;
mod disk_accounts;
pub mod disk_share;
pub mod disk_space;
pub mod document;
pub mod egress;
pub mod endpoint;
pub mod endpoint_metrics;
pub mod endpoint_series;
pub mod failure_reason;
pub mod fair_permits;
pub mod fair_share;
pub mod handler_call;
pub mod handler_calls;
pub mod hex;
pub mod id;
pub mod idempotency;
pub mod image;
pub mod job;
pub mod job_action;
pub mod job_event_notice;
pub mod job_filter;
pub mod jobs;
pub mod key;
pub mod key_shares;
pub mod limits;
pub mod listing;
pub mod logs;
pub mod metrics;
pub mod network;
pub mod payload;
pub mod policy;
pub mod price;
pub mod rate;
pub mod record;
pub mod registries;
pub mod registry_auth;
pub mod release;
pub mod retention;
pub mod runtime;
pub mod secrets;
pub mod signals;
pub mod store;
mod store_error;
pub mod stream;
pub mod submissions;
pub mod tags;
pub mod template;
pub mod tenancy;
pub mod time;
pub mod timeline;
pub mod trace;
pub mod usage;
pub mod volume;
pub mod volume_files;
pub mod webhook;
pub mod workers;
