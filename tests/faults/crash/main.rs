//! The promises about crashes: acknowledged changes survive `kill -9` at any instant, and a host
//! that is asked to end does so in order.

#![cfg(test)]
#![allow(clippy::disallowed_methods, reason = "variables have the size of a run")]

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
