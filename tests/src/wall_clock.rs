//! The wall clock of a host, which the library of [`disk_shim`](crate::disk_shim) replaces.

use std::fs;
use std::path::Path;

/// Sets the lead of the wall clock in seconds, in the file that `CLOCK_FILE` names. Replaces the
/// file at once, since a host may read it at any time.
///
/// # Panics
/// When the file cannot be written.
pub fn set_clock_lead(file: &Path, lead: &str) {
    let next = file.with_extension("next");
    fs::write(&next, lead).unwrap();
    fs::rename(next, file).unwrap();
}
