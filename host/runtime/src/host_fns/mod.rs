//! The host functions for handlers, one file per interface of `wit/`, and what
//! this host changes of `wasi:http`.

mod context;
mod endpoints;
mod filesystem;
mod http;
pub(crate) mod linker;
mod log;
mod output;
mod split;
mod wasi_http_ends;
mod wasi_http_errors;
mod wasi_http_heads;

// The interface has only types and no functions.
impl crate::bindings::gristmill::handler::types::Host for crate::sandbox::state::State {}
