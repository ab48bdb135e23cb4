//! Errors of opening a data directory, and the results of opening it.

use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use gristmill_core::time::Timestamp;

use crate::damage::Damage;

use gristmill_core::runtime::is_no_space;
use rusqlite::ErrorCode;

/// Why a store was not opened. Nothing was changed, unless the text says so.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no directory with the data of a host.
    #[error(
        "{} holds no data of a host: it has no file `store.db`. Name the directory that `gristmill serve` \
         has as its --data-dir",
        dir.display()
    )]
    NoData {
        /// The directory.
        dir: PathBuf,
    },
    /// The directory cannot be created, read or written.
    #[error("data directory `{}`: {source}", dir.display())]
    Directory {
        /// The data directory.
        dir: PathBuf,
        /// The system's error. It is a part of the sentence, and no source, which would be shown
        /// again.
        r#source: io::Error,
    },
    /// A restore or a repair into it was interrupted.
    #[error(
        "data directory `{}` is incomplete: a restore or a repair into it was interrupted. Run it \
         again, into an empty directory",
        dir.display()
    )]
    Unfinished {
        /// The data directory.
        dir: PathBuf,
    },
    /// It has handlers, or the copy of an upgrade, and no tables: they were moved, perhaps by
    /// mistake.
    #[error(
        "data directory `{}` has no jobs and no records (`store.db`), but `{}`: as a new host this one would \
         delete the handlers in it. Put `store.db`, `store.db-wal` and `journal` back, from where they were \
         moved to or from a backup; or, to begin anew, move the directory away or name another one with \
         --data-dir. The directory of a host with a database needs --database",
        dir.display(), remains.display()
    )]
    TablesMissing {
        /// The data directory.
        dir: PathBuf,
        /// The file or directory that belongs to the missing tables.
        remains: PathBuf,
    },
    /// An import has moved its jobs to a database.
    #[error(
        "the jobs of data directory `{}` were moved to a database with `gristmill import`, and run there: start \
         the host with --database, and with a data directory of its own. To use this directory \
         nevertheless, delete its file `.imported`",
        dir.display()
    )]
    Imported {
        /// The data directory.
        dir: PathBuf,
    },
    /// An import was completed, and its mark cannot be written.
    #[error(
        "the database has all jobs of data directory `{}`, but the file `.imported` cannot be written there \
         ({source}): do not start a host on the directory, since it would run the same jobs",
        dir.display()
    )]
    NotMarked {
        /// The data directory.
        dir: PathBuf,
        /// The system's error. It is a part of the sentence, and no source, which would be shown
        /// again.
        r#source: io::Error,
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
    /// The file is another program's database.
    #[error("`{}` is not a job store", file.display())]
    NotAStore {
        /// The database file.
        file: PathBuf,
    },
    /// Another version of the program made the file.
    #[error(
        "job store `{}` has schema version {found}, this program reads {}",
        file.display(), versions(reads)
    )]
    UnknownSchema {
        /// The database file.
        file: PathBuf,
        /// The version in the file.
        found: i64,
        /// The versions that this program reads. It writes the last one.
        reads: RangeInclusive<i64>,
    },
    /// The disk has no room for the copy of the tables and the journal that an upgrade keeps.
    #[error(
        "data directory `{}` has schema version {}, and is not upgraded to version {}: before that \
         the host copies its tables and its journal, which takes {} MiB, and the disk has {} MiB \
         free",
        dir.display(), upgrade.from, upgrade.to, mib(*needed), mib(*free)
    )]
    NoRoomForUpgrade {
        /// The data directory.
        dir: PathBuf,
        /// The upgrade that was not made.
        upgrade: SchemaUpgrade,
        /// Bytes of the copy; also those of the upgrade itself when they were missing before it
        /// began.
        needed: u64,
        /// Free bytes of the disk.
        free: u64,
    },
    /// The encryption key of the secrets is missing, or is not the one that they were encrypted
    /// with.
    #[error("key of the stored secrets `{}`: {details}", file.display())]
    SecretsKey {
        /// The file of the key.
        file: PathBuf,
        /// The fault of the key.
        details: String,
    },
    /// A file is damaged or missing. Continuing would silently lose acknowledged jobs or results.
    #[error(
        "damaged: {0}. The host does not start on it, so that nothing acknowledged is lost without a \
         word. List all damage with `gristmill check --data-dir {dir}`; then restore a backup, or \
         repair the rest with `gristmill repair --data-dir {dir} --output NEW`",
        dir = data_dir(&.0.file).display()
    )]
    Damaged(Damage),
    /// The clock is far from the newest time that the store has recorded. Nothing was deleted.
    #[error(
        "the clock is {} s {} the newest time that the store has noted",
        now.millis_since(*seen_at).max(seen_at.millis_since(*now)) / 1_000,
        if now > seen_at { "ahead of" } else { "behind" }
    )]
    ClockJumped {
        /// The newest time that the store has recorded.
        seen_at: Timestamp,
        /// The time now.
        now: Timestamp,
        /// Jobs that have not ended, and whose ttl, or the time for which they wait, would have
        /// passed.
        jobs: u64,
    },
    /// The clock is far from that of the database. Nothing was deleted.
    #[error(
        "this host's clock is {} s {} that of the database, so that jobs could be deleted before their time: \
         correct it, or accept it with --accept-clock",
        now.millis_since(*database).max(database.millis_since(*now)) / 1_000,
        if now > database { "ahead of" } else { "behind" }
    )]
    ClocksDiffer {
        /// The time of this host.
        now: Timestamp,
        /// The time of the database.
        database: Timestamp,
    },
    /// The disk has no room for the writes of a start.
    #[error(
        "the disk of the data directory is full, and a start writes some MiB to it. Remove other files \
         from the disk, or make it larger. Nothing is lost ({0})"
    )]
    DiskFull(String),
    /// The database refused a statement.
    #[error("job store: {0}")]
    Sqlite(rusqlite::Error),
    /// The journal cannot be opened, or is damaged.
    #[error("journal: {0}")]
    Journal(io::Error),
    /// A write failed while the store was being repaired.
    #[error("job store: {0}")]
    Repair(String),
    /// The data directory of a host with a database has jobs of its own.
    #[error(
        "data directory `{}` has the jobs of a host without a database: name another directory",
        dir.display()
    )]
    HasJobs {
        /// The data directory.
        dir: PathBuf,
    },
    /// The database server does not answer.
    #[error("{0}")]
    DatabaseUnavailable(String),
    /// Another host has the database open.
    #[error("the database is in use by another host")]
    DatabaseInUse,
    /// A host, or an import, has used the database.
    #[error(
        "the database is not empty, it has {jobs} jobs: an import needs an empty database, so that nothing \
         is mixed"
    )]
    DatabaseNotEmpty {
        /// The jobs in it.
        jobs: u64,
    },
    /// A newer program has made the tables of the database.
    #[error(
        "the tables of the database have version {found}, and this program knows versions up to {expected}"
    )]
    UnknownDatabaseVersion {
        /// The version of the tables.
        found: i32,
        /// The newest version that this program knows.
        expected: i32,
    },
    /// The database could lose acknowledged jobs, does not accept the host's statements, or has
    /// content that cannot be read.
    #[error("database: {0}")]
    Database(String),
    /// The store's threads cannot be started.
    #[error("cannot start the store's threads: {0}")]
    Thread(io::Error),
}

impl From<Damage> for OpenError {
    fn from(damage: Damage) -> Self {
        Self::Damaged(damage)
    }
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        if error.sqlite_error_code() == Some(ErrorCode::DiskFull) {
            Self::DiskFull(error.to_string())
        } else {
            Self::Sqlite(error)
        }
    }
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        if is_no_space(&error) { Self::DiskFull(error.to_string()) } else { Self::Journal(error) }
    }
}

/// The failure of the writes that a start makes.
impl From<Failure> for OpenError {
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        if failure.is_no_space() { Self::DiskFull(text) } else { Self::Repair(text) }
    }
}

fn versions(reads: &RangeInclusive<i64>) -> String {
    match (reads.start(), reads.end()) {
        (oldest, newest) if oldest == newest => format!("version {newest}"),
        (oldest, newest) => format!("versions {oldest} to {newest}"),
    }
}

/// Bytes in MiB, rounded up.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// The data directory that a file or the journal's directory belongs to.
fn data_dir(file: &Path) -> &Path {
    let is_top = |dir: &Path| !dir.ends_with(gristmill_core::backup::JOURNAL);
    let dir = file.parent().unwrap_or(file);
    if is_top(dir) { dir } else { dir.parent().unwrap_or(dir) }
}

/// Why the store must end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The journal cannot be read or written.
    #[error("journal: {0}")]
    Journal(#[from] io::Error),
    /// The journal is damaged.
    #[error("journal: {0}")]
    Damaged(Damage),
    /// The database refused a statement.
    #[error("database: {0}")]
    Database(#[from] rusqlite::Error),
    /// The database server refused a statement, or belongs to another host now.
    #[error("{0}")]
    Server(String),
    /// The key file cannot be written.
    #[error("key of the stored secrets: {0}")]
    KeyFile(io::Error),
    /// The other thread of the store has ended.
    #[error("the store has ended")]
    Ended,
}

impl Failure {
    /// Whether there was no space for a write: the write has changed nothing, and can be repeated
    /// when there is space.
    pub(crate) fn is_no_space(&self) -> bool {
        match self {
            Self::Journal(error) | Self::KeyFile(error) => is_no_space(error),
            Self::Database(error) => error.sqlite_error_code() == Some(ErrorCode::DiskFull),
            Self::Damaged(_) | Self::Server(_) | Self::Ended => false,
        }
    }
}

/// The findings of opening a data directory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Whether the store was closed in order the last time. True for a new one.
    pub was_clean: bool,
    /// Jobs that wait now, including the requeued ones.
    pub waiting: u64,
    /// Jobs that were running when the host ended, and wait again.
    pub requeued: u64,
    /// Jobs that other hosts were running, and perhaps still run.
    pub left: u64,
    /// Jobs that were running at too many ends of the host: they are FAILED.
    pub given_up: u64,
    /// Jobs whose ttl or retention passed while the host was down: they are deleted.
    pub expired: u64,
    /// The upgrade of the directory by this start, if its schema version was older.
    pub upgraded: Option<SchemaUpgrade>,
}

/// The beginning of the names of [`SchemaUpgrade::copy`].
pub(crate) const COPY_PREFIX: &str = "before-upgrade-";

/// An upgrade of a data directory. The tables and the journal before it are in
/// [`SchemaUpgrade::copy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchemaUpgrade {
    /// The schema version before.
    pub from: i64,
    /// The schema version now.
    pub to: i64,
}

impl SchemaUpgrade {
    /// The name of the copy in the data directory.
    pub fn copy(self) -> String {
        format!("{COPY_PREFIX}{}", self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_in_the_sentence_once() {
        let dir = PathBuf::from("count");
        let source = || io::Error::from(io::ErrorKind::NotFound);
        let errors = [
            OpenError::Directory { dir: dir.clone(), source: source() },
            OpenError::NotMarked { dir, source: source() },
        ];
        for error in errors {
            assert!(std::error::Error::source(&error).is_none(), "{error}");
            assert!(error.to_string().contains(&source().to_string()), "{error}");
        }
    }

    /// Each way in which a start can meet a full disk has the same sentence, which names the
    /// remedy.
    #[test]
    fn a_start_without_space_names_the_remedy() {
        let no_space = || io::Error::from(io::ErrorKind::StorageFull);
        let code = rusqlite::ffi::SQLITE_FULL;
        let full = || rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
        for error in [
            OpenError::from(no_space()),
            OpenError::from(full()),
            OpenError::from(Failure::Journal(no_space())),
            OpenError::from(Failure::Database(full())),
        ] {
            let text = error.to_string();
            assert!(matches!(error, OpenError::DiskFull(_)), "{text}");
            assert!(text.contains("Remove other files"), "{text}");
        }
        let other = OpenError::from(io::Error::other("no"));
        assert!(matches!(other, OpenError::Journal(_)), "{other}");
        let other = OpenError::from(rusqlite::Error::InvalidQuery);
        assert!(matches!(other, OpenError::Sqlite(_)), "{other}");
        assert!(matches!(OpenError::from(Failure::Ended), OpenError::Repair(_)));
    }
}
