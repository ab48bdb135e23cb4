//! The handlers that the build script builds.

use std::path::PathBuf;

/// Returns its input, byte for byte.
pub fn echo() -> PathBuf {
    component("echo")
}

/// Behaves as the input's `op` says; see its README.
pub fn playground() -> PathBuf {
    component("playground")
}

/// Attacks its host; see its README.
pub fn hostile() -> PathBuf {
    component("hostile")
}

/// Streams a prompt's tokens with metrics.
pub fn token_stream() -> PathBuf {
    component("token_stream")
}

/// Counts lines and words.
pub fn word_count() -> PathBuf {
    component("word_count")
}

/// A text generator with OpenAI's format.
pub fn chat() -> PathBuf {
    component("chat")
}

/// Scales an image down.
pub fn thumbnail() -> PathBuf {
    component("thumbnail")
}

/// Splits numbers into prime factors, with a table that it computes in `init`.
pub fn factors() -> PathBuf {
    component("factors")
}

/// Fetches a URL.
pub fn fetch() -> PathBuf {
    component("fetch")
}

/// Passes calls of OpenAI's clients on to another server.
pub fn llm_proxy() -> PathBuf {
    component("llm_proxy")
}

/// Streams the lines of a URL, with the crate `wstd`.
pub fn wstd_fetch() -> PathBuf {
    component("wstd_fetch")
}

/// Handles HTTP requests as their paths say; see its README.
pub fn http_playground() -> PathBuf {
    component("http-playground")
}

fn component(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("GRISTMILL_GUESTS_DIR")).join(name).with_extension("wasm");
    assert!(
        path.is_file(),
        "{} is missing: run `cargo build --release --target wasm32-wasip2` in handlers/",
        path.display()
    );
    path
}
