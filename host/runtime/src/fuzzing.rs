//! The entry point of a fuzz target for uploaded components: the work of the compiling process, in
//! this process.

use std::sync::OnceLock;

use gristmill_core::deploy::endpoint::Metering;
use wasmtime::Engine;

use crate::compile::component;
use crate::engine::{Kind, compile_engine};

/// Checks and compiles a component. Returns its imports and exports, or the reason of a refusal.
///
/// # Errors
/// The refusal, in the words for the uploader.
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
