//! The peers: each keeps a job's state, input and output under separate keys.
//!
//! No engine compresses. Each has the same bound of its log, and keeps values of 16 KiB and more
//! outside of its tree where it can, as our store does.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use crate::peer::Change;

/// Bytes of the log that may wait for a checkpoint or flush; the smallest that fjall accepts.
pub const LOG_BYTES: u64 = 64 << 20;
/// Of a table in memory, where an engine has it: two of them fill the log.
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
const TABLE_BYTES: usize = 32 << 20;
#[cfg(any(feature = "fjall", feature = "rocksdb"))]
const SEPARATE_BYTES: u32 = 16 << 10;

/// A store of jobs.
pub trait Engine: Send {
    /// Writes all changes at once; they are on stable storage when this returns.
    fn write(&mut self, changes: &[Change]);
    /// The waiting jobs, oldest first.
    fn waiting(&self) -> Vec<u64>;
}

pub fn open(engine: &str, dir: &Path) -> Box<dyn Engine> {
    match engine {
        "bare" => Box::new(Bare::open(dir)),
        #[cfg(feature = "fjall")]
        "fjall" => Box::new(Fjall::open(dir)),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => Box::new(Rocks::open(dir)),
        #[cfg(feature = "sqlite")]
        "sqlite" => Box::new(Sqlite::open(dir)),
        #[cfg(feature = "postgres")]
        _ if engine.starts_with("pg-") => crate::postgres::open(engine, dir),
        _ => panic!("no engine {engine}"),
    }
}

pub const WAITING: u8 = 0;
pub const COMPLETED: u8 = 1;

/// A job's row, of about the size of our own: identifiers, times, limits, status and claim.
pub fn state(id: u64, status: u8) -> [u8; 80] {
    let mut row = [0x5a; 80];
    row[..8].copy_from_slice(&id.to_le_bytes());
    row[8] = status;
    row
}

#[cfg(any(feature = "fjall", feature = "rocksdb"))]
fn key(kind: u8, id: u64) -> [u8; 9] {
    let mut key = [kind; 9];
    key[1..].copy_from_slice(&id.to_be_bytes());
    key
}

#[cfg(any(feature = "fjall", feature = "rocksdb"))]
fn id_of(key: &[u8]) -> u64 {
    u64::from_be_bytes(key[1..].try_into().unwrap())
}

/// No engine: the bytes of each batch at the end of a file that is overwritten again and again.
/// This is the limit that the disk sets.
struct Bare {
    file: File,
    direct: File,
    at: u64,
    buffer: Vec<u8>,
}

impl Bare {
    fn open(dir: &Path) -> Self {
        let path = dir.join("log");
        let file = File::options().create(true).truncate(false).read(true).write(true).open(&path);
        let file = file.unwrap();
        let zeros = vec![0; 1 << 20];
        for at in 0..LOG_BYTES >> 20 {
            file.write_all_at(&zeros, at << 20).unwrap();
        }
        file.sync_all().unwrap();
        let direct = File::options().write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        Self { file, direct, at: 0, buffer: Vec::with_capacity(8 << 20) }
    }
}

impl Engine for Bare {
    fn write(&mut self, changes: &[Change]) {
        let bytes = |change: &Change| match change {
            Change::Submit(_, payload) | Change::Finish(_, payload) => 88 + payload.len(),
            Change::Delete(ids) => 9 * ids.len(),
        };
        let len: usize = changes.iter().map(bytes).sum();
        let is_large = len >= 64 << 10;
        self.buffer.clear();
        self.buffer.resize(4_096, 0);
        let aligned = self.buffer.as_ptr().align_offset(4_096);
        self.buffer.truncate(aligned);
        for change in changes {
            match change {
                Change::Submit(id, payload) | Change::Finish(id, payload) => {
                    self.buffer.extend_from_slice(&state(*id, WAITING));
                    self.buffer.extend_from_slice(&id.to_le_bytes());
                    self.buffer.extend_from_slice(payload);
                }
                Change::Delete(ids) => {
                    for id in ids {
                        self.buffer.extend_from_slice(&id.to_le_bytes());
                        self.buffer.push(2);
                    }
                }
            }
        }
        if is_large {
            self.at = self.at.next_multiple_of(4_096);
            let padded = len.next_multiple_of(4_096);
            self.buffer.resize(aligned + padded, 0);
        }
        let bytes = &self.buffer[aligned..];
        if self.at + bytes.len() as u64 > LOG_BYTES {
            self.at = 0;
        }
        let file = if is_large { &self.direct } else { &self.file };
        file.write_all_at(bytes, self.at).unwrap();
        self.at += bytes.len() as u64;
        self.file.sync_data().unwrap();
    }

    fn waiting(&self) -> Vec<u64> {
        Vec::new()
    }
}

#[cfg(feature = "fjall")]
struct Fjall {
    db: fjall::Database,
    jobs: fjall::Keyspace,
}

#[cfg(feature = "fjall")]
impl Fjall {
    fn open(dir: &Path) -> Self {
        let db = fjall::Database::builder(dir).max_journaling_size(LOG_BYTES).open().unwrap();
        let separate = fjall::KvSeparationOptions::default().separation_threshold(SEPARATE_BYTES);
        let options = || {
            fjall::KeyspaceCreateOptions::default()
                .max_memtable_size(TABLE_BYTES as u64)
                .with_kv_separation(Some(separate))
        };
        let jobs = db.keyspace("jobs", options).unwrap();
        Self { db, jobs }
    }
}

#[cfg(feature = "fjall")]
impl Engine for Fjall {
    fn write(&mut self, changes: &[Change]) {
        let mut batch = self.db.batch().durability(Some(fjall::PersistMode::SyncData));
        for change in changes {
            match change {
                Change::Submit(id, payload) => {
                    batch.insert(&self.jobs, key(b'j', *id), state(*id, WAITING));
                    batch.insert(&self.jobs, key(b'i', *id), &payload[..]);
                }
                Change::Finish(id, payload) => {
                    batch.insert(&self.jobs, key(b'j', *id), state(*id, COMPLETED));
                    batch.remove_weak(&self.jobs, key(b'i', *id));
                    batch.insert(&self.jobs, key(b'o', *id), &payload[..]);
                }
                Change::Delete(ids) => {
                    for id in ids {
                        batch.remove(&self.jobs, key(b'j', *id));
                        batch.remove_weak(&self.jobs, key(b'o', *id));
                    }
                }
            }
        }
        batch.commit().unwrap();
    }

    fn waiting(&self) -> Vec<u64> {
        let rows = self.jobs.prefix(b"j").map(|row| row.into_inner().unwrap());
        rows.filter(|(_, row)| row[8] == WAITING).map(|(key, _)| id_of(&key)).collect()
    }
}

#[cfg(feature = "rocksdb")]
struct Rocks {
    db: rocksdb::DB,
    options: rocksdb::WriteOptions,
}

#[cfg(feature = "rocksdb")]
impl Rocks {
    fn open(dir: &Path) -> Self {
        let mut options = rocksdb::Options::default();
        options.create_if_missing(true);
        options.set_write_buffer_size(TABLE_BYTES);
        options.set_max_total_wal_size(LOG_BYTES);
        // Logs that are overwritten sync faster, as our segments do.
        options.set_recycle_log_file_num(4);
        options.set_compression_type(rocksdb::DBCompressionType::None);
        options.set_enable_blob_files(true);
        options.set_min_blob_size(SEPARATE_BYTES.into());
        options.set_blob_file_size(TABLE_BYTES as u64);
        options.set_enable_blob_gc(true);
        options.set_blob_gc_force_threshold(0.5);
        let db = rocksdb::DB::open(&options, dir).unwrap();
        let mut options = rocksdb::WriteOptions::default();
        options.set_sync(true);
        Self { db, options }
    }
}

/// Deletes a key that was written once: cheaper than `delete`, and missing in this version of the
/// binding, whose batch is one pointer.
#[cfg(feature = "rocksdb")]
fn single_delete(batch: &mut rocksdb::WriteBatch, key: &[u8]) {
    use std::ffi::{c_char, c_void};
    unsafe extern "C" {
        fn rocksdb_writebatch_singledelete(batch: *mut c_void, key: *const c_char, len: usize);
    }
    const { assert!(size_of::<rocksdb::WriteBatch>() == size_of::<*mut c_void>()) };
    unsafe {
        let raw = *std::ptr::from_mut(batch).cast::<*mut c_void>();
        rocksdb_writebatch_singledelete(raw, key.as_ptr().cast(), key.len());
    }
}

#[cfg(feature = "rocksdb")]
impl Engine for Rocks {
    fn write(&mut self, changes: &[Change]) {
        let mut batch = rocksdb::WriteBatch::default();
        for change in changes {
            match change {
                Change::Submit(id, payload) => {
                    batch.put(key(b'j', *id), state(*id, WAITING));
                    batch.put(key(b'i', *id), payload);
                }
                Change::Finish(id, payload) => {
                    batch.put(key(b'j', *id), state(*id, COMPLETED));
                    single_delete(&mut batch, &key(b'i', *id));
                    batch.put(key(b'o', *id), payload);
                }
                Change::Delete(ids) => {
                    for id in ids {
                        batch.delete(key(b'j', *id));
                        single_delete(&mut batch, &key(b'o', *id));
                    }
                }
            }
        }
        self.db.write_opt(batch, &self.options).unwrap();
    }

    fn waiting(&self) -> Vec<u64> {
        let from = rocksdb::IteratorMode::From(b"j", rocksdb::Direction::Forward);
        let rows = self.db.iterator(from).map(Result::unwrap);
        let rows = rows.take_while(|(key, _)| key[0] == b'j');
        rows.filter(|(_, row)| row[8] == WAITING).map(|(key, _)| id_of(&key)).collect()
    }
}

#[cfg(feature = "sqlite")]
struct Sqlite {
    db: rusqlite::Connection,
}

#[cfg(feature = "sqlite")]
impl Sqlite {
    fn open(dir: &Path) -> Self {
        let db = rusqlite::Connection::open(dir.join("jobs.db")).unwrap();
        // The page size of our own tables.
        const PAGE_BYTES: i64 = 8_192;
        db.pragma_update(None, "page_size", PAGE_BYTES).unwrap();
        db.pragma_update(None, "locking_mode", "EXCLUSIVE").unwrap();
        db.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(())).unwrap();
        db.pragma_update(None, "synchronous", "FULL").unwrap();
        db.pragma_update(None, "wal_autocheckpoint", LOG_BYTES as i64 / PAGE_BYTES).unwrap();
        db.pragma_update(None, "cache_size", -65_536).unwrap();
        let tables = "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY, state BLOB);
            CREATE TABLE IF NOT EXISTS input (id INTEGER PRIMARY KEY, body BLOB);
            CREATE TABLE IF NOT EXISTS output (id INTEGER PRIMARY KEY, body BLOB);";
        db.execute_batch(tables).unwrap();
        Self { db }
    }

    fn run(&self, sql: &str, values: impl rusqlite::Params) {
        self.db.prepare_cached(sql).unwrap().execute(values).unwrap();
    }
}

#[cfg(feature = "sqlite")]
impl Engine for Sqlite {
    fn write(&mut self, changes: &[Change]) {
        self.run("BEGIN IMMEDIATE", ());
        for change in changes {
            match change {
                Change::Submit(id, payload) => {
                    let id = *id as i64;
                    let row = state(id as u64, WAITING);
                    self.run("INSERT INTO job VALUES (?1, ?2)", (id, &row[..]));
                    self.run("INSERT INTO input VALUES (?1, ?2)", (id, &payload[..]));
                }
                Change::Finish(id, payload) => {
                    let id = *id as i64;
                    let row = state(id as u64, COMPLETED);
                    self.run("UPDATE job SET state = ?2 WHERE id = ?1", (id, &row[..]));
                    self.run("DELETE FROM input WHERE id = ?1", (id,));
                    self.run("INSERT INTO output VALUES (?1, ?2)", (id, &payload[..]));
                }
                Change::Delete(ids) => {
                    for id in ids {
                        let id = *id as i64;
                        self.run("DELETE FROM job WHERE id = ?1", (id,));
                        self.run("DELETE FROM output WHERE id = ?1", (id,));
                    }
                }
            }
        }
        self.run("COMMIT", ());
    }

    fn waiting(&self) -> Vec<u64> {
        let mut rows = self.db.prepare("SELECT id, state FROM job ORDER BY id").unwrap();
        let rows = rows.query_map((), |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)));
        let rows = rows.unwrap().map(Result::unwrap);
        rows.filter(|(_, row)| row[8] == WAITING).map(|(id, _)| id as u64).collect()
    }
}
