//! The host functions for handlers, one file per interface of `wit/`.

mod context;
mod endpoints;
pub(crate) mod filesystem;
mod http;
mod log;
mod output;

// The interface has only types and no functions.
impl crate::bindings::gristmill::handler::types::Host for crate::attempt::state::State {}
