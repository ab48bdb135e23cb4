//! What a handler may call, one file per interface of `wit/`.

mod context;
pub(crate) mod filesystem;
mod http;
mod log;
mod output;

// The interface has types only; nothing can be called.
impl crate::bindings::gristmill::handler::types::Host for crate::state::State {}
