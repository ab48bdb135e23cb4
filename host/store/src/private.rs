//! Directories and files that only their owner may read.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

/// The directory holds secrets: submissions may carry credentials.
pub(crate) fn make_private_dir(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// Opens a file that only its owner may read, and creates it if it is missing.
pub(crate) fn open_private_file(file: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file)
}
