//! A medium on PostgreSQL: each batch becomes rows, in one transaction.
//!
//! A database belongs to one open store at a time, its *session*. Every transaction of the store checks in
//! its last statement that its session is the newest one ([`session`]), so a host that was replaced, paused or
//! cut off cannot change anything any more, whatever it or a clock believes. All jobs that a client can see
//! are rows, which other programs may read ([`schema`]).
//!
//! No payload has a location: a batch is read back by the number of its row. The engine keeps every job in
//! memory until it is deleted, also ended ones.
//!
//! **Threads.** The writer thread commits on a connection of its own ([`log`]); one further thread answers
//! everything else, and watches the database ([`reader`]). A lost connection is opened again, and the writer
//! finds out whether its last transaction was committed. Meanwhile new work is refused with
//! [`StoreError::Unavailable`](gristmill_core::store::StoreError), and results wait in the write buffer.
//!
//! **Costs.** One commit for each batch, and some 20 µs of the server's processor time for each job; see
//! `docs/adr/0004-postgresql.md`. A start reads the row of each job.

pub(crate) mod connection;
pub(crate) mod load;
pub(crate) mod log;
pub(crate) mod reader;
mod rows;
pub(crate) mod schema;
pub(crate) mod session;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bytes::Bytes;
use gristmill_core::id::ShardId;
use tokio_postgres::Config;

use self::connection::{Call, Connection, DatabaseError};
use self::schema::NotReady;
use self::session::{NotBegun, Session};
use crate::error::OpenError;
use crate::medium::{Medium, PayloadLocation};
use crate::seal::{Seal, Word};

/// State that the medium's two threads and the callers share.
#[derive(Debug, Default)]
pub(crate) struct Postgres {
    /// The greatest number of a job that has been committed.
    committed_seq: AtomicU64,
    /// Whether the writer, or the reader, has lost the database.
    is_writer_cut_off: AtomicBool,
    is_reader_cut_off: AtomicBool,
}

/// A thread with a connection of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum User {
    Writer,
    Reader,
}

impl Postgres {
    fn flag(&self, user: User) -> &AtomicBool {
        match user {
            User::Writer => &self.is_writer_cut_off,
            User::Reader => &self.is_reader_cut_off,
        }
    }

    /// Records that the connection of `user` is lost, or works again. Returns whether this is news.
    fn set_cut_off(&self, user: User, is_cut_off: bool) -> bool {
        self.flag(user).swap(is_cut_off, Ordering::Relaxed) != is_cut_off
    }

    fn commit_up_to(&self, seq: u64) {
        self.committed_seq.fetch_max(seq, Ordering::Relaxed);
    }

    fn committed_seq(&self) -> u64 {
        self.committed_seq.load(Ordering::Relaxed)
    }
}

impl Medium for Postgres {
    fn read(&self, _: PayloadLocation) -> io::Result<Option<Bytes>> {
        Ok(None)
    }

    fn hold(&self, _: &mut dyn Iterator<Item = PayloadLocation>) {}

    fn release(&self, _: &mut dyn Iterator<Item = PayloadLocation>) {}

    fn backlog_bytes(&self) -> u64 {
        0
    }

    fn is_available(&self) -> bool {
        !self.is_writer_cut_off.load(Ordering::Relaxed)
            && !self.is_reader_cut_off.load(Ordering::Relaxed)
    }

    fn close(&self) {}
}

/// A database whose session has begun.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shard: ShardId,
    pub(crate) seal: Arc<Seal>,
    pub(crate) session: Session,
    pub(crate) was_clean: bool,
    /// Not connected yet.
    pub(crate) writer: Connection,
    /// Holds the session's lock.
    pub(crate) reader: Connection,
}

/// Connects to a database, makes or upgrades its tables, and begins a session.
pub(crate) fn open(url: &str, secrets_key: Option<&Path>) -> Result<Opened, OpenError> {
    let key_file = secrets_key.ok_or_else(|| {
        OpenError::Database("it needs the file of a key, which all of its hosts share".to_owned())
    })?;
    let config = url.parse().ok().filter(|config: &Config| {
        !config.get_hosts().is_empty() || !config.get_hostaddrs().is_empty()
    });
    let config = config.ok_or_else(|| OpenError::DatabaseUrl(redacted(url)))?;
    let mut reader = Connection::new(&config).map_err(OpenError::Thread)?;
    let writer = Connection::new(&config).map_err(OpenError::Thread)?;
    schema::prepare(&mut reader)?;
    let begun = Session::begin(&mut reader)?;
    let (shard, seal) = read_meta(&mut reader, key_file)?;
    let seal = Arc::new(seal);
    Ok(Opened { shard, seal, session: begun.session, was_clean: begun.was_clean, writer, reader })
}

/// Reads the row that describes the database, and checks that the key file has the key of its secrets. A new
/// database gets the row.
fn read_meta(connection: &mut Connection, key_file: &Path) -> Result<(ShardId, Seal), OpenError> {
    let rows = connection.query(&Call::new("SELECT shard, sealed FROM meta", Vec::new()))?;
    let seal = Seal::open(key_file, rows.is_empty())?;
    if let Some(row) = rows.first() {
        seal.read_word(row.get(1))?;
        let shard = u16::try_from(row.get::<_, i32>(0)).map_err(|_| {
            OpenError::Database(
                "the shard in the table `meta` is not a number of 16 bits".to_owned(),
            )
        })?;
        return Ok((ShardId(shard), seal));
    }
    let shard: u16 = rand::random();
    let insert = "INSERT INTO meta (id, shard, sealed) VALUES (1, $1, $2)";
    let values: Vec<connection::Value<'_>> =
        vec![Box::new(i32::from(shard)), Box::new(seal.seal_word(Word::SETTLED))];
    connection.transaction(&[Call::new(insert, values)])?;
    Ok((ShardId(shard), seal))
}

/// A URL without the user and the password.
fn redacted(url: &str) -> String {
    match (url.find("://"), url.rfind('@')) {
        (Some(scheme), Some(at)) if scheme + 3 < at => {
            [url.get(..scheme + 3), Some("…"), url.get(at..)].into_iter().flatten().collect()
        }
        _ => url.to_owned(),
    }
}

impl From<DatabaseError> for OpenError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Unavailable(_) => Self::DatabaseUnavailable(error.to_string()),
            DatabaseError::Fenced => Self::DatabaseInUse,
            DatabaseError::NoSpace(_) | DatabaseError::Refused(_) => {
                Self::Database(error.to_string())
            }
        }
    }
}

impl From<NotReady> for OpenError {
    fn from(error: NotReady) -> Self {
        match error {
            NotReady::Newer { found } => {
                Self::UnknownDatabaseVersion { found, expected: schema::VERSION }
            }
            NotReady::Unsuitable(reason) => Self::Database(reason),
            NotReady::Failed(error) => error.into(),
        }
    }
}

impl From<NotBegun> for OpenError {
    fn from(error: NotBegun) -> Self {
        match error {
            NotBegun::InUse => Self::DatabaseInUse,
            NotBegun::Failed(error) => error.into(),
        }
    }
}
