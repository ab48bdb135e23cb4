//! Directories that end with a command.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

/// A temporary directory that only its owner can access.
pub(crate) fn temporary(prefix: &str) -> io::Result<TempDir> {
    let private = Permissions::from_mode(0o700);
    tempfile::Builder::new().prefix(prefix).permissions(private).tempdir()
}
