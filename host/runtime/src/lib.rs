//! The sandbox of Gristmill, in which handlers run: one wasmtime instance for each job, or for
//! several jobs if their endpoint reuses instances.
//!
//! [`WasmtimeRuntime`] is the entry point: it accepts uploaded components
//! ([`Components`](gristmill_core::runtime::Components)) and runs attempts of jobs
//! ([`Runtime`](gristmill_core::runtime::Runtime)).
//!
//! * `components` keeps uploads and their compiled files; `compile` checks and compiles them.
//! * `engine` has the settings of wasmtime; [`permits`](gristmill_core::sharing::permits) of core
//!   bound the number of sandboxes at one time.
//! * `attempt` is one attempt: its instance, its call and its end, described in one sentence.
//! * `sandbox` is the state of an attempt, with its limits. Two mechanisms end a call at its
//!   deadline.
//! * `host_fns`, `egress` and `disk` are the functions, the network and the files of handlers.
//!
//! Each of these uses only those below it: `attempt`, `components`, `compile`, `engine`,
//! `host_fns`, `sandbox`, `egress`, `disk`.
//!
//! **Invariants.** This is the only crate that depends on wasmtime. No component is loaded from a
//! compiled file whose digest is not the recorded one. No part of an attempt outlives its permit,
//! except a file operation that has begun.

mod attempt;
mod bindings;
pub mod compile;
mod components;
mod disk;
mod egress;
mod engine;
mod files;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod host_fns;
mod sandbox;
mod swap;
mod wasmtime_runtime;

pub use compile::process::Compiler;
pub use components::records::{ArtifactRecords, MemoryRecords, RecordError};
pub use disk::Wiping;
pub use egress::{RequestRefusal, how_to_allow};
pub use engine::Pool;
pub use wasmtime_runtime::{OpenRuntimeError, RuntimeSettings, WasmtimeRuntime};

/// The target of the spans of each host call of a handler, including those of WASI: their events
/// `call` and `return` have the arguments and the result, including secrets. Only a tool for
/// running trusted handlers should listen; otherwise the cost is one check for a listener.
pub const HOST_CALLS: &str = "gristmill_runtime::bindings";

#[cfg(test)]
mod testing;
