//! The domain of Gristmill: jobs and their states, and the traits that hide the disk ([`store`],
//! [`catalog`]) and the sandbox ([`runtime`]).
//!
//! * A job is in [`job`], its webhook in [`webhook`], the calls that concern it in [`jobs`], and
//!   the news of its changes in [`signals`].
//! * The objects that users deploy are in [`deploy`]; [`catalog`] keeps them, their keys
//!   ([`access`]) and their owners' shares of the host ([`sharing`]).
//! * What a job cost and what operators see of it is in [`billing`], [`metrics`], [`logs`] and
//!   [`trace`]; [`http_requests`] has the requests that are no jobs.
//!
//! Each module knows only those before it: [`metrics`], [`incarnation`], [`job`], [`webhook`],
//! [`deploy`], [`catalog`], [`runtime`] and [`store`], [`signals`], [`jobs`].
//!
//! **Invariants.** This crate does no I/O, and does not depend on axum, wasmtime or SQLite. Every
//! time that is stored or shown comes from [`time::Clock`]. Only [`job::state::JobState::apply`]
//! decides changes of a job's state.

pub mod access;
pub mod backup;
pub mod billing;
pub mod catalog;
#[cfg(test)]
mod catalog_tests;
pub mod deploy;
pub mod depot;
pub mod hex;
pub mod http_call;
pub mod http_calls;
pub mod http_requests;
pub mod id;
pub mod incarnation;
pub mod job;
pub mod jobs;
pub mod limits;
pub mod logs;
pub mod metrics;
pub mod peaks;
pub mod registries;
pub mod runtime;
pub mod schedule;
pub mod sharing;
pub mod signals;
pub mod store;
mod store_error;
pub mod time;
pub mod trace;
pub mod webhook;
pub mod workers;
