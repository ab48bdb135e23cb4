//! What a handler may call, one file per interface of `wit/`.

mod context;
mod http;
mod log;
mod output;

// The interface has types only; nothing can be called.
impl crate::bindings::gristmill::handler::types::Host for crate::state::State {}
