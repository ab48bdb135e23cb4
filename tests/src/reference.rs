//! Pages of the documentation that tests write from their sources.

use std::path::Path;
use std::{env, fs};

/// The page at this path of the repository.
///
/// # Panics
/// When there is none.
pub fn read(path: &str) -> String {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    fs::read_to_string(place).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Compares a page with its source. With `GRISTMILL_WRITE_DOCS` in the environment it writes the
/// page first.
///
/// # Panics
/// When the page is out of date.
pub fn check(path: &str, text: &str) {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    if env::var_os("GRISTMILL_WRITE_DOCS").is_some() {
        fs::write(&place, text).unwrap();
    }
    let is_current = fs::read_to_string(&place).is_ok_and(|written| written == text);
    assert!(is_current, "{path} is out of date; `make references` writes it");
}
