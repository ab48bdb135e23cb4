//! A medium on PostgreSQL: each batch becomes rows, in one transaction.
//!
//! A database belongs to one open store at a time, its *session*. Every transaction of the store
//! checks in its last statement that its session is the newest one ([`session`]), so a host that
//! was replaced, paused or cut off cannot change anything any more, whatever it or a clock
//! believes. All jobs that a client can see are rows, which other programs may read ([`schema`]).
//!
//! No payload has a location: a batch is read back by the number of its row. The engine keeps every
//! job in memory until it is deleted, also ended ones.
//!
//! Hosts that share a database are [candidates](candidate) until one of them begins a session, by
//! the rules of [`observation`]. It shows signs of life ([`beat`]), and answers from memory only
//! while they succeed ([`active_state`]). Components are in the database too ([`depot`]).
//!
//! **Threads.** The writer thread commits on a connection of its own ([`log`]); a second one
//! answers everything else, and watches the database ([`reader`]); a third one shows the signs of
//! life. A lost connection is opened again, and the writer finds out whether its last transaction
//! was committed. Meanwhile new work is refused with
//! [`StoreError::Unavailable`](gristmill_core::store::StoreError), and results wait in the write
//! buffer.
//!
//! **Costs.** One commit for each batch, and some 20 µs of the server's processor time for each
//! job; see `docs/internals/adr/0004-postgresql.md`. A start reads the row of each job.

pub(crate) mod active_state;
pub(crate) mod beat;
pub(crate) mod candidate;
pub(crate) mod depot;
#[cfg(test)]
mod fence_tests;
pub(crate) mod load;
pub(crate) mod log;
mod meta;
pub(crate) mod numbered;
pub(crate) mod numbers;
pub(crate) mod observation;
pub(crate) mod outage;
pub(crate) mod reader;
mod rows;
pub(crate) mod schema;
#[cfg(test)]
#[allow(dead_code, reason = "the integration tests use the rest")]
#[path = "../../tests/support/postgres.rs"]
mod server_of_tests;
pub(crate) mod session;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gristmill_postgres::DatabaseError;

use self::active_state::ActiveState;
use self::numbers::Confirmed;
use self::session::NotBegun;
use crate::error::OpenError;
use crate::medium::Medium;

/// State that the medium's two threads and the callers share.
#[derive(Debug)]
pub(crate) struct Postgres {
    active_state: ActiveState,
    /// The greatest number of a job that has been committed.
    committed_seq: AtomicU64,
    confirmed: Confirmed,
    /// Whether the reader has lost the database; that of the writer is in the state, for calls.
    is_reader_cut_off: AtomicBool,
}

/// A thread with a connection of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum User {
    Writer,
    Reader,
}

impl Postgres {
    pub(crate) fn new(active_state: ActiveState) -> Self {
        Self {
            active_state,
            committed_seq: AtomicU64::new(0),
            confirmed: Confirmed::default(),
            is_reader_cut_off: AtomicBool::new(false),
        }
    }

    /// Records that the session is about to end.
    fn end(&self) {
        self.active_state.end();
    }

    /// Records that the connection of `user` is lost, or works again.
    fn set_cut_off(&self, user: User, is_cut_off: bool) {
        match user {
            User::Writer => self.active_state.set_refuses_commits(is_cut_off),
            User::Reader => self.is_reader_cut_off.store(is_cut_off, Ordering::Relaxed),
        }
    }

    fn commit_up_to(&self, seq: u64) {
        self.committed_seq.fetch_max(seq, Ordering::Relaxed);
    }

    fn committed_seq(&self) -> u64 {
        self.committed_seq.load(Ordering::Relaxed)
    }
}

impl Medium for Postgres {
    fn is_available(&self) -> bool {
        !self.active_state.refuses_commits() && !self.is_reader_cut_off.load(Ordering::Relaxed)
    }
}

impl From<DatabaseError> for OpenError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Unavailable(_) | DatabaseError::Late => {
                Self::DatabaseUnavailable(error.to_string())
            }
            DatabaseError::Fenced => Self::DatabaseInUse,
            DatabaseError::NoSpace(_) | DatabaseError::Duplicate(_) | DatabaseError::Refused(_) => {
                Self::Database(error.to_string())
            }
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
