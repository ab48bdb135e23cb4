//! The promises about crashes: acknowledged changes survive `kill -9` at any instant, and a host
//! that is asked to end does so in order.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "all of this is test code: a broken assumption must stop the test"
)]

mod damage;
mod drain;
mod lock;
mod management;
#[path = "../../../host/store/tests/support/postgres.rs"]
#[allow(dead_code, reason = "the store's tests use all of it")]
mod postgres;
mod recovery;
mod rolling;
mod torture;
mod upgrade;
