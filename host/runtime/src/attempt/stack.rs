//! The stack of a handler that trapped, for the handler's author.

use gristmill_core::runtime::{SourceLocation, StackCall};
use rustc_demangle::demangle;
use wasmtime::{FrameInfo, FrameSymbol, WasmBacktrace};
use wasmtime_wasi::I32Exit;

/// The calls of an error, the innermost first; none when the handler ended in order.
pub(crate) fn stack(error: &wasmtime::Error) -> Vec<StackCall> {
    if error.is::<I32Exit>() {
        return Vec::new();
    }
    let trace = error.downcast_ref::<WasmBacktrace>();
    trace.map(|trace| trace.frames().iter().flat_map(calls).collect()).unwrap_or_default()
}

/// One call of the machine may be several of the source, by inlining.
fn calls(frame: &FrameInfo) -> Vec<StackCall> {
    let name = frame.func_name().map(readable);
    let Some((outermost, inlined)) = frame.symbols().split_last() else {
        return vec![StackCall { function: name, location: None }];
    };
    let of = |symbol: &FrameSymbol, known: Option<String>| StackCall {
        // The table of names has whole paths; debug information may have only the last part.
        function: known.or_else(|| symbol.name().map(readable)),
        location: symbol
            .file()
            .map(|file| SourceLocation { file: file.to_owned(), line: symbol.line() }),
    };
    let inlined = inlined.iter().map(|symbol| of(symbol, None));
    inlined.chain([of(outermost, name)]).collect()
}

/// A name as in the source, without the compiler's hash.
fn readable(name: &str) -> String {
    format!("{:#}", demangle(name))
}
