//! An uploaded component: compiled, or refused with one sentence. A compiled component is a handler
//! that imports only interfaces of this host.
//!
//! Input: the bytes of a component, or its text, which begins with a parenthesis.

use gristmill_runtime::fuzzing::inspect;

/// Packages that a handler may import.
const PROVIDED: [&str; 8] = [
    "gristmill:handler/",
    "wasi:io/",
    "wasi:clocks/",
    "wasi:random/",
    "wasi:cli/",
    "wasi:filesystem/",
    "wasi:sockets/",
    "wasi:http/",
];

/// Longest refusal: the cut text of the compiler's error, and the words around it.
const REFUSAL_BYTES_MAX: usize = 2_000;

pub fn component(data: &[u8]) {
    let text = data.starts_with(b"(").then(|| str::from_utf8(data).ok()).flatten();
    let bytes = match text.map(wat::parse_str) {
        Some(Ok(bytes)) => bytes,
        Some(Err(_)) => return,
        None => data.to_vec(),
    };
    match inspect(&bytes) {
        Ok((imports, exports)) => {
            let is_provided = |import: &String| PROVIDED.iter().any(|it| import.starts_with(it));
            assert!(imports.iter().all(is_provided), "{imports:?}");
            let is_handler = |export: &String| export.starts_with("gristmill:handler/run@0.1.");
            assert!(exports.iter().any(is_handler), "{exports:?}");
        }
        Err(refusal) => {
            assert!(!refusal.is_empty() && refusal.len() < REFUSAL_BYTES_MAX, "{refusal}");
            assert!(!refusal.contains('\n'), "{refusal}");
        }
    }
}
