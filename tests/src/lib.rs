//! Whole-system tests: they drive the real binary over HTTP.
//!
//! [`TestHost`] starts and stops it, [`Client`] calls it, [`guests`] has the handlers to run on it.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    clippy::missing_panics_doc,
    reason = "all of this is test code: a broken assumption must stop the test"
)]

mod answer;
mod built;
mod client;
mod files;
pub mod guests;
mod host;
pub mod http2;
mod local_server;
mod own_network;
mod process;
mod receiver;
pub mod recorded;
pub mod reference;
mod schedules;
mod scripted_server;
mod sse;
mod wait;
mod wall_clock;
mod wire;

pub use answer::Answer;
pub use built::{binary, disk_shim};
pub use client::Client;
pub use files::files_without_keys;
pub use host::{Clocked, Shared, TestHost, clocked_host, shared_host};
pub use local_server::LocalServer;
pub use own_network::{ip, run_in_own_network, skip_without_namespaces};
pub use process::command;
pub use receiver::{ReceivedCall, Receiver, machine_name};
pub use schedules::each_time_is_decided_once;
pub use scripted_server::{Reply, ScriptedServer};
pub use sse::parse_events;
pub use wait::{PATIENCE, eventually, percentile};
pub use wall_clock::set_clock_lead;
pub use wire::{Wire, WireAnswer, next_answer};
