//! Several hosts on one PostgreSQL database: one has the queue, the others run jobs for it and
//! forward calls to it, and one of them becomes active when it ends.
//!
//! Each test drives the real binary on a real server. Without PostgreSQL,
//! `GRISTMILL_WITHOUT_POSTGRES=1` skips them.

#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "variables have the size of a run")]

mod adoption;
mod demo;
mod encryption;
mod failover;
mod hosts;
mod import;
mod load;
mod log;
mod mistakes;
mod outage;
mod owner_role;
mod partitions;
#[path = "../../../host/store/tests/support/postgres.rs"]
#[allow(dead_code, reason = "the store's tests use all of it")]
mod postgres;
mod proxy;
mod rates;
mod runners;
mod schedules;
mod secrecy;
mod shared_volumes;
mod slow_clients;
mod standby;
mod strangers;
mod takeover;
mod tcp;
mod torture;
mod upgrade;
