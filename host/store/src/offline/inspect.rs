//! Reads a data directory without changing any byte, time or name.
//!
//! `SQLite` would create further files beside a database in WAL mode. Without a lock, and with the
//! index of its log in memory, it creates no file: it reads the log if there is one, and else reads
//! the file as unchanging.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use gristmill_core::backup::{DATABASE, JOURNAL, SECRETS_KEY};
use gristmill_core::time::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::dir_lock::{DirLock, LOCK};
use crate::error::OpenError;
use crate::journal::JournalRecord;
use crate::journal::scan::Scan;
use crate::seal::Seal;
use crate::tables::catalog;
use crate::tables::db::{FileContent, identify, read_journal_record, refuse_remains};
use crate::tables::schema::Schema;

/// A data directory, open for reading.
pub(crate) struct Inspected {
    pub(crate) db: Connection,
    pub(crate) file: PathBuf,
    pub(crate) journal_dir: PathBuf,
    pub(crate) journal: Scan,
    pub(crate) known: JournalRecord,
    /// The newest time that the host has recorded.
    pub(crate) seen_at: Option<Timestamp>,
    /// The encryption key; `None` when its file is missing.
    pub(crate) seal: Option<Seal>,
    /// Keeps hosts from starting meanwhile, if the directory has the lock file.
    _lock: Option<DirLock>,
}

impl Inspected {
    /// Opens a directory that no process has open.
    ///
    /// # Errors
    /// [`OpenError::NoData`] and [`OpenError::TablesMissing`] when it has no tables; and when it is
    /// in use, has a job store of an unknown version, or cannot be read at all.
    pub(crate) fn open(dir: &Path, secrets_key: Option<&Path>) -> Result<Self, OpenError> {
        let in_dir = |source| OpenError::Directory { dir: dir.to_owned(), source };
        let file = dir.join(DATABASE);
        match fs::metadata(&file) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                refuse_remains(dir)?;
                return Err(OpenError::NoData { dir: dir.to_owned() });
            }
            Err(error) => return Err(in_dir(error)),
        }
        let lock = lock(dir)?;
        let db = open_to_read(dir, &file)?;
        if identify(&db, &file, &Schema::PRODUCT)? == FileContent::New {
            return Err(OpenError::NotAStore { file });
        }
        let (known, seen_at) = read_journal_record(&db)?;
        let journal_dir = dir.join(JOURNAL);
        let journal = Scan::open(&journal_dir, known).map_err(in_dir)?;
        let in_dir_key = dir.join(SECRETS_KEY);
        let key = secrets_key.unwrap_or(&in_dir_key);
        let seal = key.exists().then(|| Seal::open(key, false)).transpose()?;
        Ok(Self { db, file, journal_dir, journal, known, seen_at, seal, _lock: lock })
    }

    /// Checks that the key file has all keys that the directory needs; without a key file there is
    /// nothing to check. A host does not start while this fails.
    ///
    /// # Errors
    /// [`OpenError::SecretsKey`], also when the text that shows the keys is damaged, and the error
    /// of the tables.
    pub(crate) fn check_keys(&self) -> Result<(), OpenError> {
        let Some(seal) = &self.seal else { return Ok(()) };
        seal.read_word(&self.word()?).map(drop)
    }

    /// The text that shows which keys the directory needs.
    pub(crate) fn word(&self) -> rusqlite::Result<Vec<u8>> {
        self.db.query_row("SELECT sealed FROM meta", (), |row| row.get(0))
    }

    /// The same text for a new directory, if it is damaged here: no key decrypts it, and a key
    /// decrypts a record of the catalog. `None` when the key file may be the wrong one.
    pub(crate) fn word_in_place_of_damaged(&self) -> Option<Vec<u8>> {
        let seal = self.seal.as_ref()?;
        let word = seal.word_in_place_of(&self.word().ok()?)?;
        let mut is_right = false;
        // An unreadable page ends the search: what was decrypted before proves as much.
        let _ = catalog::each(&self.db, seal, |_, _, body| {
            is_right |= body.is_some();
            Ok(())
        });
        is_right.then_some(word)
    }
}

fn lock(dir: &Path) -> Result<Option<DirLock>, OpenError> {
    match File::open(dir.join(LOCK)) {
        Ok(file) => DirLock::take(file, dir).map(Some),
        // The state after `restore`: no host has used the directory yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(OpenError::Directory { dir: dir.to_owned(), source }),
    }
}

fn open_to_read(dir: &Path, file: &Path) -> Result<Connection, OpenError> {
    let log = dir.join(format!("{DATABASE}-wal"));
    let has_log = fs::metadata(log).is_ok_and(|log| log.len() > 0);
    let how = if has_log { "vfs=unix-none" } else { "immutable=1" };
    let mut uri = "file:".to_owned();
    for byte in
        std::path::absolute(file).unwrap_or_else(|_| file.to_owned()).as_os_str().as_encoded_bytes()
    {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02x}")),
        }
    }
    let uri = format!("{uri}?mode=ro&{how}");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(uri, flags | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.pragma_update(None, "cell_size_check", true)?;
    db.pragma_update(None, "trusted_schema", false)?;
    Ok(db)
}
