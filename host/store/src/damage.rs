//! Damage: places of a data directory that do not hold what was written to them.

use std::fmt;
use std::path::PathBuf;

/// A place on the disk that does not hold what was written to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: PathBuf,
    /// The first byte of the file that is concerned, as far as that is known.
    pub offset: Option<u64>,
    /// How the damage was noticed.
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
