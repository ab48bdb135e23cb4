//! All that handlers may import: the functions of their world, and WASI 0.2.

use gristmill_core::deploy::handler_kind::interface_of;
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Engine, Result};

use super::filesystem;
use super::wasi_http_ends::mark_ends;
use super::wasi_http_errors::name_errors;
use super::wasi_http_heads::bound_heads;
use crate::bindings::Handler;
use crate::sandbox::state::State;

/// All packages and interfaces that a component may import. The list is only for the wording of
/// refusals; the linker decides about its entries.
const PROVIDED: [(&str, &str, &[&str]); 8] = [
    ("gristmill:handler", "0.1", &["types", "context", "output", "log", "http", "endpoints"]),
    ("wasi:io", "0.2", &["error", "poll", "streams"]),
    ("wasi:clocks", "0.2", &["monotonic-clock", "wall-clock"]),
    ("wasi:random", "0.2", &["random", "insecure", "insecure-seed"]),
    (
        "wasi:cli",
        "0.2",
        &[
            "environment",
            "exit",
            "stdin",
            "stdout",
            "stderr",
            "terminal-input",
            "terminal-output",
            "terminal-stdin",
            "terminal-stdout",
            "terminal-stderr",
        ],
    ),
    ("wasi:filesystem", "0.2", &["types", "preopens"]),
    (
        "wasi:sockets",
        "0.2",
        &[
            "network",
            "instance-network",
            "ip-name-lookup",
            "tcp",
            "tcp-create-socket",
            "udp",
            "udp-create-socket",
        ],
    ),
    ("wasi:http", "0.2", &["types", "outgoing-handler"]),
];

/// The linker's name of the interface with the types of requests and answers.
const WASI_HTTP_TYPES: &str = "wasi:http/types@0.2.12";

/// All imports of handlers: their world, and WASI 0.2. All of WASI is linked, since some languages
/// always import all of it; functions that handlers may not use return an error.
///
/// # Errors
/// When two of the parts define the same name.
pub(crate) fn linker(engine: &Engine) -> Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    Handler::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    linker.allow_shadowing(true);
    let mut types = linker.instance(WASI_HTTP_TYPES)?;
    bound_heads(&mut types)?;
    mark_ends(&mut types)?;
    name_errors(&mut types)?;
    linker.allow_shadowing(false);
    filesystem::add_to_linker(&mut linker)?;
    Ok(linker)
}

/// Whether handlers may import it.
pub(crate) fn is_provided(import: &str) -> bool {
    PROVIDED.iter().any(|(package, track, interfaces)| {
        let interface = || interface_of(import, track)?.strip_prefix(package)?.strip_prefix('/');
        interface().is_some_and(|interface| interfaces.contains(&interface))
    })
}
