//! The sandbox of Gristmill: one wasmtime instance per job, or for several of an endpoint that says so.
//!
//! [`Sandbox`] is the whole of it: it takes uploaded components ([`Components`](gristmill_core::runtime::Components))
//! and runs attempts at jobs ([`Runtime`](gristmill_core::runtime::Runtime)). The way of an attempt:
//! a permit and a compiled component (`sandbox`, `artifacts`), a store with its limits (`state`,
//! `limiter`) and an instance (`instance`; `idle` for those that wait for another job), the call under two lines of defence (`attempt`, `deadline`), and one sentence for
//! how it ended (`end`). What a handler may call lies in `host_fns` and `egress`,
//! what it sees of the disk in `disk`.
//!
//! **Invariants.** This is the only crate that knows wasmtime. No component is loaded from a
//! compiled file whose digest is not the recorded one. Nothing of an attempt outlives its permit, but
//! what its handler keeps in an instance that its endpoint reuses.

mod artifacts;
mod attempt;
mod bindings;
pub mod compile;
mod compile_cache;
mod component;
mod confine;
mod deadline;
mod disk;
mod egress;
mod end;
mod engine;
mod files;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod host_fns;
mod idle;
mod instance;
mod lane;
mod limiter;
mod log;
mod permits;
pub mod preinit;
mod producers;
mod records;
mod sandbox;
mod split;
mod stack;
mod staging;
mod state;
mod stdio;
mod swap;
mod turn;
mod turns;

pub use compile::Compiler;
pub use engine::Pool;
pub use records::{ArtifactRecords, MemoryRecords, RecordError};
pub use sandbox::{OpenSandboxError, Sandbox, SandboxSettings};

/// The target of the spans that tell each host call of a handler, as those of WASI do: their events
/// `call` and `return` have the arguments and the result, secrets included. Only who runs a handler
/// of his own should listen; for all others they cost one look at whether somebody does.
pub const HOST_CALLS: &str = "gristmill_runtime::bindings";

#[cfg(test)]
mod testing;
