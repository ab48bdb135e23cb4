//! Damage: bytes of a data directory that differ from those that were written.

use std::path::PathBuf;
use std::{fmt, io};

/// A location on the disk whose bytes differ from those that were written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// The first damaged byte of the file, if it is known.
    pub offset: Option<u64>,
    /// How the damage was detected.
    pub details: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.file.display())?;
        if let Some(offset) = self.offset {
            write!(f, " at byte {offset}")?;
        }
        write!(f, ": {}", self.details)
    }
}

/// The error for bytes that differ from those that were written.
pub(crate) fn damaged(details: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, details.into())
}
