//! The database file: opening, checking, writing and closing it. Used by one thread at a time.
//!
//! All data of jobs was in the journal first. A commit is therefore synced only before the journal
//! overwrites that data, and for the catalog, which is not in the journal.

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use gristmill_core::backup::{COMPONENTS, DATABASE, IMPORTED, UNFINISHED};
use gristmill_core::id::ShardId;
use gristmill_core::job::record::StoreEpoch;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::time::Timestamp;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, ffi, params};
use rustix::io::Errno;
use uuid::Uuid;

use crate::damage::Damage;
use crate::dir_lock::{DirLock, LOCK};
use crate::durable;
use crate::error::{COPY_PREFIX, OpenError, SchemaUpgrade};
use crate::format::CatalogRow;
use crate::format::EndpointKey;
use crate::journal::JournalEnd;
use crate::journal::JournalRecord;
use crate::medium::SegmentId;
use crate::private::make_private_dir;
use crate::private::open_private_file;
use crate::seal::{Seal, Word};
use crate::tables::before_upgrade;
use crate::tables::catalog;
use crate::tables::deleting;
use crate::tables::frozen::{FrozenFile, OpenFile, Thaw};
use crate::tables::schema::{self, Schema};
use crate::tables::sql;

/// Pages of 8 KiB in the write-ahead log after which they are moved into the database (32 MiB).
/// More makes the move rarer, and a start after a crash longer.
const CHECKPOINT_PAGES: u64 = 4_000;

/// The same while the disk is nearly full (4 MiB): the log itself takes space.
const CHECKPOINT_PAGES_TIGHT: u64 = 500;

/// Bytes of a page.
const PAGE_BYTES: u64 = 8 << 10;

/// Pages in the write-ahead log at which a copy of the file is aborted (4 GiB), so that a slow copy
/// does not fill the disk. Fewer on a smaller disk: the pages are written to the file afterwards,
/// so the disk must have as much space above its reserve as the log has taken.
const FROZEN_PAGES_MAX: u64 = 512 << 10;

/// Pages that are returned to the file system in one step (8 MiB).
const VACUUM_PAGES: i64 = 1_024;

/// The same while the disk is nearly full (512 KiB): a step is written to the write-ahead log
/// first.
const VACUUM_PAGES_TIGHT: i64 = 64;

/// Oldest SQLite without a known way to lose data in WAL mode.
const SQLITE_VERSION_MIN: i32 = 3_051_003;

/// Whether a commit waits for the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sync {
    /// The commit is on stable storage when the call returns.
    Now,
    /// A later commit syncs it; a crash before that may undo it.
    Later,
}

/// The one connection to the one file.
#[derive(Debug)]
pub(crate) struct Db {
    connection: Connection,
    /// Pages in the write-ahead log.
    wal_pages: Arc<AtomicU64>,
    pub(crate) seal: Arc<Seal>,
    pub(crate) shard: ShardId,
    /// The tables' knowledge of the journal when the file was opened.
    pub(crate) journal: JournalRecord,
    /// The newest time that the host has recorded.
    pub(crate) seen_at: Option<Timestamp>,
    /// Whether the file was closed in order the last time.
    pub(crate) was_clean: bool,
    schema: Schema,
    /// The upgrade that [`Db::upgrade`] makes, for a file of an older version.
    upgrade: Option<SchemaUpgrade>,
    pub(crate) file: PathBuf,
    /// The word of the key file when the file was opened.
    pub(crate) word: Word,
    /// Ends the copy of the file that is being made, if there is one.
    copy: RefCell<Thaw>,
    /// The space of the disk, for the bound of the write-ahead log during a copy.
    disk_space: Arc<DiskSpaceGauge>,
    /// The last field: it is closed after the connection.
    open_file: Arc<OpenFile>,
}

impl Db {
    /// Opens the directory's database, or creates one. `secrets_key` is the file with the
    /// encryption key, unless it is in the directory. `schema` has the versions of the tables that
    /// are read.
    pub(crate) fn open(
        dir: &Path,
        secrets_key: Option<&Path>,
        schema: Schema,
    ) -> Result<Self, OpenError> {
        if rusqlite::version_number() < SQLITE_VERSION_MIN {
            return Err(OpenError::SqliteTooOld { found: rusqlite::version() });
        }
        let in_dir = |source| OpenError::Directory { dir: dir.to_owned(), source };
        make_private_dir(dir).map_err(in_dir)?;
        let lock = DirLock::take(open_private_file(&dir.join(LOCK)).map_err(in_dir)?, dir)?;
        if dir.join(UNFINISHED).exists() {
            return Err(OpenError::Unfinished { dir: dir.to_owned() });
        }
        if dir.join(IMPORTED).exists() {
            return Err(OpenError::Imported { dir: dir.to_owned() });
        }
        let file = dir.join(DATABASE);
        if !file.exists() {
            refuse_remains(dir)?;
        }
        let open_file = OpenFile::new(open_private_file(&file).map_err(in_dir)?, lock);
        open_file.sync().map_err(in_dir)?;
        sync_log(dir).map_err(in_dir)?;
        let mut connection = Connection::open(&file)?;
        let found = identify(&connection, &file, &schema)?;
        if found == FileContent::New {
            refuse_remains(dir)?;
        }
        let in_dir_key = dir.join("secrets.key");
        let key_file = secrets_key.unwrap_or(&in_dir_key);
        let seal = Seal::open(key_file, found == FileContent::New)?;
        if found == FileContent::New {
            configure(&connection)?;
            create(&mut connection, &seal, &schema)?;
        }
        // The names of the files must survive as well as their content.
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(in_dir)?;
        let (shard, was_clean, word) = read_meta(&connection, &seal)?;
        if !was_clean {
            quick_check(&connection, &file)?;
        }
        let upgrade = found.upgrade(&schema);
        if let Some(upgrade) = upgrade {
            before_upgrade::keep(dir, upgrade, &open_file)?;
        }
        if found != FileContent::New {
            // Writes to the file.
            configure(&connection)?;
        }
        // After `configure`: the pragma `wal_autocheckpoint` removes the hook.
        let wal_pages = Arc::new(AtomicU64::new(0));
        let counter = wal_pages.clone();
        connection.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages: i32| {
            counter.store(u64::from(pages.unsigned_abs()), Ordering::Relaxed);
            Ok(())
        }))?;
        let (journal, seen_at) = read_journal_record(&connection)?;
        // From here on only the journal is synced for each change; see `transaction`.
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        let seal = Arc::new(seal);
        Ok(Self {
            connection,
            wal_pages,
            seal,
            shard,
            journal,
            seen_at,
            was_clean,
            schema,
            upgrade,
            file,
            word,
            copy: RefCell::default(),
            disk_space: Arc::default(),
            open_file,
        })
    }

    /// Bounds the write-ahead log by this space while the file is copied.
    pub(crate) fn watch_space(&mut self, disk_space: Arc<DiskSpaceGauge>) {
        self.disk_space = disk_space;
    }

    /// Brings a file of an older version to the newest one, durably. To be called once the journal
    /// is open: until then a start that fails must leave a directory of the old version.
    pub(crate) fn upgrade(&mut self) -> rusqlite::Result<Option<SchemaUpgrade>> {
        let Some(upgrade) = self.upgrade else { return Ok(None) };
        self.connection.pragma_update(None, "synchronous", "FULL")?;
        schema::migrate(&mut self.connection, &self.schema, upgrade.from)?;
        self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        Ok(Some(upgrade))
    }

    /// The connection, to read.
    pub(crate) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Runs `write` as one transaction. With [`Sync::Now`], it is on stable storage when this
    /// returns, together with all earlier commits.
    pub(crate) fn transaction<T>(
        &self,
        sync: Sync,
        write: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        if sync == Sync::Now {
            self.connection.pragma_update(None, "synchronous", "FULL")?;
        }
        let written = (|| {
            let transaction = self.connection.unchecked_transaction()?;
            let answer = write(&self.connection)?;
            transaction.commit()?;
            Ok(answer)
        })();
        let written = self.with_quota(written);
        // A transaction that found no space has ended, and others follow.
        if sync == Sync::Now {
            self.connection.pragma_update(None, "synchronous", "NORMAL")?;
        }
        written
    }

    /// Returns a write that exceeded a quota as one that found no space: SQLite reports it as a
    /// failed write, with the error number of the system. Nothing else differs: both end the
    /// transaction, and leave the file as it was.
    fn with_quota<T>(&self, written: rusqlite::Result<T>) -> rusqlite::Result<T> {
        written.map_err(|error| match &error {
            rusqlite::Error::SqliteFailure(failed, _)
                if failed.extended_code == ffi::SQLITE_IOERR_WRITE
                    && self.system_error() == Errno::DQUOT.raw_os_error() =>
            {
                let details = Some("the quota of the disk is used up".to_owned());
                rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_FULL), details)
            }
            _ => error,
        })
    }

    /// The system's number of the last input or output error.
    fn system_error(&self) -> i32 {
        // SAFETY: the connection is open, and only this thread uses it.
        #[allow(unsafe_code, reason = "the library has no such function")]
        unsafe {
            ffi::sqlite3_system_errno(self.connection.handle())
        }
    }

    /// Moves everything from the write-ahead log into the file, and empties the log.
    pub(crate) fn empty_log(&self) -> rusqlite::Result<()> {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        self.with_quota(self.connection.query_row(sql, (), |_| Ok(())))?;
        self.wal_pages.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Records that the journal up to `segment` is checkpointed. On stable storage when this
    /// returns, together with all data of the checkpoint.
    pub(crate) fn set_checkpointed(&self, segment: SegmentId) -> rusqlite::Result<()> {
        self.transaction(Sync::Now, |db| {
            db.prepare_cached("UPDATE meta SET checkpointed = ?1")?.execute([segment.0])?;
            Ok(())
        })
    }

    /// Records that a process uses the directory from now on, and the newest segment of the journal
    /// at that time. Until the orderly close, an end counts as a crash. Returns the epoch, which no
    /// earlier process had.
    pub(crate) fn begin_life(
        &self,
        last: SegmentId,
        now: Timestamp,
    ) -> rusqlite::Result<StoreEpoch> {
        self.transaction(Sync::Now, |db| {
            let sql = "UPDATE meta SET is_clean = 0, journal_last = ?1, journal_end = NULL, \
                       seen_at = ?2, starts = starts + 1 RETURNING starts";
            let now = sql::integer(now.as_millis());
            db.query_row(sql, params![last.0, now], |row| row.get(0).map(StoreEpoch))
        })
    }

    /// Records that a segment of the journal exists, and the time.
    pub(crate) fn note(&self, last: SegmentId, now: Timestamp) -> rusqlite::Result<()> {
        self.transaction(Sync::Now, |db| {
            let sql = "UPDATE meta SET journal_last = ?1, seen_at = ?2";
            db.prepare_cached(sql)?.execute(params![last.0, sql::integer(now.as_millis())])
        })?;
        Ok(())
    }

    /// Writes changes of the catalog, and marks the endpoints that they delete.
    pub(crate) fn write_catalog(
        &self,
        rows: &[CatalogRow],
        deleted: &[EndpointKey],
    ) -> rusqlite::Result<()> {
        self.transaction(Sync::Now, |db| {
            deleting::mark(db, deleted)?;
            for entry in rows {
                match &entry.body {
                    Some(body) => db
                        .prepare_cached(
                            "INSERT OR REPLACE INTO catalog (kind, name, body) VALUES (?1, ?2, ?3)",
                        )?
                        .execute(params![
                            entry.kind,
                            entry.name,
                            catalog::seal(&self.seal, entry, body)
                        ])?,
                    None => db
                        .prepare_cached("DELETE FROM catalog WHERE kind = ?1 AND name = ?2")?
                        .execute(params![entry.kind, entry.name])?,
                };
            }
            Ok(())
        })
    }

    /// Writes the word that shows which keys the directory needs. On stable storage when this
    /// returns, together with all earlier changes.
    pub(crate) fn write_word(&self, word: Word) -> rusqlite::Result<()> {
        self.transaction(Sync::Now, |db| {
            db.execute("UPDATE meta SET sealed = ?1", [self.seal.seal_word(word)])
        })?;
        Ok(())
    }

    /// Moves everything into the file and freezes it; `None` when it is frozen already. The inner
    /// error means that the file cannot be opened.
    pub(crate) fn freeze(&self) -> rusqlite::Result<Option<io::Result<FrozenFile>>> {
        if self.copy.borrow().is_awaited() {
            return Ok(None);
        }
        let sql = "PRAGMA wal_checkpoint(PASSIVE)";
        let moved = self.connection.query_row(sql, (), |row| Ok((row.get(1)?, row.get(2)?)));
        let (pages, moved): (i64, i64) = self.with_quota(moved)?;
        self.wal_pages.store(0, Ordering::Relaxed);
        if pages != moved {
            return Ok(Some(Err(io::Error::other("the write-ahead log cannot be emptied"))));
        }
        Ok(Some(FrozenFile::of(&self.open_file).map(|(file, thaw)| {
            self.copy.replace(thaw);
            file
        })))
    }

    /// Whether the file must not change.
    pub(crate) fn is_frozen(&self) -> bool {
        let pages_max = self.disk_space.bytes_above_reserve() / PAGE_BYTES;
        let pages_max = pages_max.clamp(CHECKPOINT_PAGES_TIGHT, FROZEN_PAGES_MAX);
        let is_short = self.wal_pages.load(Ordering::Relaxed) < pages_max;
        if is_short && self.copy.borrow().is_awaited() {
            return true;
        }
        self.copy.take().now();
        false
    }

    /// Moves pages from the write-ahead log into the database, if there are many; earlier while the
    /// disk `is_tight`.
    pub(crate) fn checkpoint_wal(&self, is_tight: bool) -> rusqlite::Result<()> {
        let pages_max = if is_tight { CHECKPOINT_PAGES_TIGHT } else { CHECKPOINT_PAGES };
        if self.wal_pages.load(Ordering::Relaxed) >= pages_max && !self.is_frozen() {
            self.checkpoint_wal_now()?;
        }
        Ok(())
    }

    /// Whether all commits are in the file, and none in the write-ahead log alone.
    pub(crate) fn is_moved(&self) -> bool {
        self.wal_pages.load(Ordering::Relaxed) == 0
    }

    /// Cleans up while the store is idle: empties the write-ahead log, and returns some unused
    /// space to the file system; all unused space, step by step, while the disk `is_tight`. Returns
    /// whether there is more to do.
    pub(crate) fn tidy(&self, is_tight: bool) -> rusqlite::Result<bool> {
        if self.is_frozen() {
            return Ok(true);
        }
        let number = |name| self.connection.pragma_query_value(None, name, |row| row.get(0));
        let (free, all): (i64, i64) = (number("freelist_count")?, number("page_count")?);
        // Free pages are reused, and a slightly oversized file does no harm.
        let is_wasteful = match is_tight {
            true => free > 0,
            false => free > VACUUM_PAGES && free > all / 4,
        };
        if is_wasteful {
            let pages = if is_tight { VACUUM_PAGES_TIGHT } else { VACUUM_PAGES };
            let sql = format!("PRAGMA incremental_vacuum({pages})");
            let mut vacuum = self.connection.prepare(&sql)?;
            // Each step returns one page.
            let mut rows = vacuum.query(())?;
            while self.with_quota(rows.next())?.is_some() {}
        }
        if is_tight {
            // The file of the log keeps its size otherwise.
            self.empty_log()?;
        } else if self.wal_pages.load(Ordering::Relaxed) > 0 {
            self.checkpoint_wal_now()?;
        }
        // A file that does not become smaller is not tried again at once.
        Ok(is_wasteful && number("freelist_count")? < free)
    }

    fn checkpoint_wal_now(&self) -> rusqlite::Result<()> {
        let sql = "PRAGMA wal_checkpoint(PASSIVE)";
        self.with_quota(self.connection.query_row(sql, (), |_| Ok(())))?;
        self.wal_pages.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Marks the file as closed in order, and records the end of the journal.
    pub(crate) fn close(self, end: JournalEnd, now: Timestamp) -> rusqlite::Result<()> {
        let JournalEnd { segment, at } = end;
        self.transaction(Sync::Now, |db| {
            let sql = "UPDATE meta SET is_clean = 1, journal_last = ?1, journal_end = ?2, \
                       seen_at = ?3";
            db.execute(sql, params![segment.0, at, sql::integer(now.as_millis())])
        })?;
        self.copy.borrow().now();
        self.connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", (), |_| Ok(()))?;
        self.connection.close().map_err(|(_, error)| error)
    }
}

/// Refuses to make a new store in a directory that has handlers, or the copy of an upgrade: its
/// tables were moved, and a host without records deletes all handlers.
pub(crate) fn refuse_remains(dir: &Path) -> Result<(), OpenError> {
    let in_dir = |source| OpenError::Directory { dir: dir.to_owned(), source };
    let is_handler = |name: &Path| name.extension().is_some_and(|it| it == "wasm");
    let is_copy = |name: &Path| name.to_str().is_some_and(|name| name.starts_with(COPY_PREFIX));
    let handler = find_in(&dir.join(COMPONENTS), is_handler).map_err(in_dir)?;
    let remains = match handler {
        None => find_in(dir, is_copy).map_err(in_dir)?,
        found => found,
    };
    match remains {
        None => Ok(()),
        Some(remains) => Err(OpenError::TablesMissing { dir: dir.to_owned(), remains }),
    }
}

/// The path of the first entry of a directory whose name is wanted; `None` when there is no such
/// directory.
fn find_in(dir: &Path, is_wanted: impl Fn(&Path) -> bool) -> io::Result<Option<PathBuf>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        if is_wanted(Path::new(&entry.file_name())) {
            return Ok(Some(entry.path()));
        }
    }
    Ok(None)
}

/// Makes the write-ahead log of an earlier process durable. After an orderly end the log is empty.
fn sync_log(dir: &Path) -> io::Result<()> {
    match OpenOptions::new().read(true).write(true).open(dir.join("store.db-wal")) {
        Ok(log) => durable::rewrite(&log, log.metadata()?.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// The content of a database file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileContent {
    /// New and empty: without tables, or without the row that is written once they exist.
    New,
    /// A job store of this version, which is read.
    Store { version: i64 },
}

impl FileContent {
    /// The upgrade that a file of an older version needs.
    fn upgrade(self, schema: &Schema) -> Option<SchemaUpgrade> {
        match self {
            Self::Store { version } if version < schema.newest => {
                Some(SchemaUpgrade { from: version, to: schema.newest })
            }
            _ => None,
        }
    }
}

/// Identifies the file. Any file that is neither empty nor a job store of a version that the schema
/// reads is refused, and not changed.
pub(crate) fn identify(
    db: &Connection,
    file: &Path,
    schema: &Schema,
) -> Result<FileContent, OpenError> {
    let not_a_store = || OpenError::NotAStore { file: file.to_owned() };
    // Without shared memory; must be set before the first access in WAL mode.
    db.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    // Dropping a store leaves the log as a crash would; `close` empties it. The log of a file that
    // is refused stays, too.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.pragma_update(None, "trusted_schema", false)?;
    db.pragma_update(None, "cell_size_check", true)?;
    let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let application =
        number("application_id").map_err(|error| match error.sqlite_error_code() {
            Some(ErrorCode::NotADatabase) => not_a_store(),
            _ => error.into(),
        })?;
    let found = number("user_version")?;
    // The library makes its table first, and a power failure may leave it alone.
    let sql = "SELECT count(*) FROM sqlite_schema WHERE tbl_name != ?1";
    let tables: i64 = db.query_row(sql, [schema::HISTORY], |row| row.get(0))?;
    match (application, found) {
        (0, 0) if tables == 0 => Ok(FileContent::New),
        (schema::APPLICATION_ID, found) if !schema.reads().contains(&found) => {
            let (file, reads) = (file.to_owned(), schema.reads());
            Err(OpenError::UnknownSchema { file, found, reads })
        }
        (schema::APPLICATION_ID, found) if found == schema.newest && is_unused(db)? => {
            Ok(FileContent::New)
        }
        (schema::APPLICATION_ID, version) => Ok(FileContent::Store { version }),
        _ => Err(not_a_store()),
    }
}

/// Reads the file's row that describes it, and checks that `seal` has the key of its secrets.
/// Returns the shard, whether the file was closed in order, and the word of the key.
fn read_meta(db: &Connection, seal: &Seal) -> Result<(ShardId, bool, Word), OpenError> {
    let sql = "SELECT shard, is_clean, sealed FROM meta";
    let (shard, was_clean, sealed): (_, _, Vec<u8>) =
        db.query_row(sql, (), |row| Ok((ShardId(row.get(0)?), row.get(1)?, row.get(2)?)))?;
    let word = seal.read_word(&sealed)?;
    Ok((shard, was_clean, word))
}

/// Sets the connection up to write. This may itself write to the file.
pub(crate) fn configure(db: &Connection) -> rusqlite::Result<()> {
    // The size of pages and the vacuum mode only matter for a new file.
    db.pragma_update(None, "page_size", 8_192)?;
    db.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    db.pragma_update_and_check(None, "journal_mode", "WAL", |row| {
        let mode: String = row.get(0)?;
        debug_assert_eq!(mode, "wal");
        Ok(())
    })?;
    db.pragma_update(None, "synchronous", "FULL")?;
    db.pragma_update(None, "fullfsync", true)?;
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    db.pragma_update(None, "journal_size_limit", 64 << 20)?;
    // 16 MiB: four times the size of a batch. A cache four times as large saved no measurable time.
    db.pragma_update(None, "cache_size", -16_384)?;
    db.pragma_update(None, "mmap_size", 0)?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    db.pragma_update(None, "trusted_schema", false)?;
    db.pragma_update(None, "cell_size_check", true)?;
    // Dropping a store leaves the log as a crash would; `close` empties it.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    db.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// The record of the journal, and the newest time that the host has recorded.
pub(crate) fn read_journal_record(
    db: &Connection,
) -> rusqlite::Result<(JournalRecord, Option<Timestamp>)> {
    let sql = "SELECT checkpointed, journal_last, journal_end, seen_at FROM meta";
    db.query_row(sql, (), |row| {
        let (checkpointed, last) = (SegmentId(row.get(0)?), SegmentId(row.get(1)?));
        let seen_at = row.get::<_, Option<i64>>(3)?.map(i64::unsigned_abs);
        let known = JournalRecord { checkpointed, last, end: row.get(2)? };
        Ok((known, seen_at.map(Timestamp::from_millis)))
    })
}

/// Whether the creation of the file was interrupted: it has tables and nothing in them.
fn is_unused(db: &Connection) -> rusqlite::Result<bool> {
    let sql = "SELECT NOT EXISTS (SELECT 1 FROM meta) AND NOT EXISTS (SELECT 1 FROM catalog) \
               AND NOT EXISTS (SELECT 1 FROM endpoint) AND NOT EXISTS (SELECT 1 FROM job)";
    db.query_row(sql, (), |row| row.get(0))
}

fn create(db: &mut Connection, seal: &Seal, schema: &Schema) -> rusqlite::Result<()> {
    // The last bytes of a UUIDv7 are random.
    let [.., high, low] = *Uuid::now_v7().as_bytes();
    let version = db.pragma_query_value(None, "user_version", |row| row.get(0))?;
    schema::migrate(db, schema, version)?;
    db.execute(
        "INSERT INTO meta (id, shard, sealed, is_clean, checkpointed, journal_last, starts) \
         VALUES (1, ?1, ?2, 1, 0, 0, 0)",
        params![u16::from_be_bytes([high, low]), seal.seal_word(Word::SETTLED)],
    )?;
    Ok(())
}

fn quick_check(db: &Connection, file: &Path) -> Result<(), OpenError> {
    let answer: String = db.query_row("PRAGMA quick_check(1)", (), |row| row.get(0))?;
    if answer == "ok" {
        return Ok(());
    }
    Err(Damage { file: file.to_owned(), offset: None, details: answer }.into())
}

#[cfg(test)]
#[path = "db_tests.rs"]
mod tests;
