//! Why a data directory cannot be opened, and what opening it found.

use std::io;
use std::path::PathBuf;

use gristmill_core::runtime::is_no_space;
use rusqlite::ErrorCode;

/// Why a store was not opened. Nothing was changed, unless the text says so.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directory cannot be made, read or written.
    #[error("data directory `{}`: {source}", dir.display())]
    Directory {
        /// The data directory.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another process, or this one, has it open.
    #[error("data directory `{}` is in use by another process", dir.display())]
    InUse {
        /// The data directory.
        dir: PathBuf,
    },
    /// The database library is older than the first version without a known way to lose data.
    #[error("sqlite {found} is too old, at least 3.51.3 is needed")]
    SqliteTooOld {
        /// The version that was linked.
        found: &'static str,
    },
    /// The file is a database of something else.
    #[error("`{}` is not a job store", file.display())]
    NotAStore {
        /// The database file.
        file: PathBuf,
    },
    /// Another version of the program made the file.
    #[error("job store `{}` has schema version {found}, this program reads version {expected}", file.display())]
    UnknownSchema {
        /// The database file.
        file: PathBuf,
        /// The version in the file.
        found: i64,
        /// The version that this program reads and writes.
        expected: i64,
    },
    /// The key that secrets are encrypted with is not there, or not the one that they were
    /// encrypted with.
    #[error("key of the stored secrets `{}`: {details}", file.display())]
    SecretsKey {
        /// The file of the key.
        file: PathBuf,
        /// What is wrong with it.
        details: String,
    },
    /// The file does not hold what was written to it. Restore it from a backup.
    #[error("job store `{}` is damaged: {details}", file.display())]
    Damaged {
        /// The database file.
        file: PathBuf,
        /// The first of what is wrong.
        details: String,
    },
    /// The database refused a statement.
    #[error("job store: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The journal cannot be opened, or is damaged.
    #[error("journal: {0}")]
    Journal(#[from] io::Error),
    /// A write failed while the store was being repaired.
    #[error("job store: {0}")]
    Repair(String),
    /// The store's threads cannot be started.
    #[error("start the store's threads: {0}")]
    Thread(io::Error),
}

/// Why the store cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The journal cannot be read or written.
    #[error("journal: {0}")]
    Journal(#[from] io::Error),
    /// The database refused a statement.
    #[error("database: {0}")]
    Database(#[from] rusqlite::Error),
    /// The other thread of the store has ended.
    #[error("the store has ended")]
    Ended,
}

impl Failure {
    /// Whether there was no space for what was to be written: nothing of it counts, and it can be
    /// written when there is space.
    pub(crate) fn is_no_space(&self) -> bool {
        match self {
            Self::Journal(error) => is_no_space(error),
            Self::Database(error) => error.sqlite_error_code() == Some(ErrorCode::DiskFull),
            Self::Ended => false,
        }
    }
}

/// What opening a data directory found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the store was closed in order the last time. True for a new one.
    pub was_clean: bool,
    /// Jobs that wait now, those below included.
    pub waiting: u64,
    /// Jobs that ran when the host died, and wait again.
    pub requeued: u64,
    /// Jobs that ran when the host died, for the last time: they are FAILED.
    pub given_up: u64,
    /// Jobs whose ttl or retention passed while the host was down: they are deleted.
    pub expired: u64,
}
