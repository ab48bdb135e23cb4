//! The host functions for handlers, one file per interface of `wit/`, and the bounds of `wasi:http`.

mod context;
mod endpoints;
pub(crate) mod filesystem;
mod http;
mod log;
mod output;
pub(crate) mod wasi_http_heads;

// The interface has only types and no functions.
impl crate::bindings::gristmill::handler::types::Host for crate::attempt::state::State {}
