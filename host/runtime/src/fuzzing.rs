//! What a fuzz target does with an uploaded component: what the compiling process does, without
//! the process.

use std::sync::OnceLock;

use gristmill_core::endpoint::Metering;
use wasmtime::Engine;

use crate::component;
use crate::engine::{Kind, compile_engine};

/// Checks and compiles a component. Answers with its imports and exports, or why it is refused.
///
/// # Errors
/// The refusal, as the one who uploads it reads it.
///
/// # Panics
/// When this machine has no engine.
pub fn inspect(bytes: &[u8]) -> Result<(Vec<String>, Vec<String>), String> {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    let kind = Kind { metering: Metering::Fuel, explains_traps: false };
    let engine = ENGINE.get_or_init(|| compile_engine(kind).expect("a known machine"));
    let (_, info) = component::inspect(engine, bytes).map_err(|refused| refused.to_string())?;
    Ok((info.imports, info.exports))
}
