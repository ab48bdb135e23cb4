//! The durable job store of Gristmill: a journal in front of SQLite.
//!
//! [`SqliteStore`] keeps jobs and the catalog in one data directory, with group commit.
//! [`MemoryStore`] keeps the same promises without a disk, for tests.
//!
//! # How it works
//! * Every call decides at once, in memory, under one lock ([`index`], [`decide`], [`claim`]): it
//!   applies `JobState::apply` to the newest decided state, whether that is on disk or not.
//! * The writer thread ([`writer`]) takes the newest state of each job that has changed since the
//!   last commit ([`batch`]), so a job that arrived, ran and ended since then is one entry. It
//!   writes them to the [`journal`] as one frame with one sync, makes them visible, and answers the
//!   waiting callers.
//! * Changes that a caller waits for reach the disk in the order in which they were decided; other
//!   changes may be delayed by up to 2 ms ([`backlog`]). A call that loses a race, say cancel
//!   against finish, returns only after the winning change is on disk.
//! * The journal overwrites its files. Before it overwrites the oldest, the database's thread
//!   ([`database`]) copies the live data of that file into the tables ([`checkpoint`]); most jobs
//!   are deleted by then. Large payloads stay in the journal's files as long as their job, and
//!   [`compaction`] moves them when they keep too many files alive.
//! * Every queue is bounded: payloads by [`Settings::write_buffer_bytes`], changes of jobs by one
//!   for each job, other changes by one for each caller, the journal by
//!   [`Settings::journal_bytes`].
//! * A [`backup`] copies the journal's files, and the database's file, which does not change while
//!   it is read ([`frozen`]).
//! * The usage of an attempt is in the frame of its result, added to the sums of the hour
//!   ([`meters`]); the sums are written to the database when a caller reads them, or when the hour
//!   is over ([`usage_rows`]).
//! * A start refuses damage ([`Damage`]); [`check`](fn@check) lists all damage, and
//!   [`repair`](fn@repair) copies the undamaged data into a new directory.
//! * Opening the store scans the tables into memory, applies the rest of the journal, and repairs
//!   the state that the end of the last process left behind ([`recover`]).
//!
//! **Invariants.** The state is that of the tables plus all segments of the journal that are not
//! checkpointed. Only these files use SQL: `schema.rs`, `db.rs`, `row.rs`, `payloads.rs`,
//! `chunks.rs`, `deleting.rs`, `delivery.rs`, `idempotency_rows.rs`, `usage_rows.rs`, `catalog.rs`,
//! `checkpoint.rs`, `database.rs`, `recover.rs`, `inspect.rs`, `check.rs`, `repair.rs` and
//! `placeholders.rs`. Only `decide.rs` changes a job's state. The store starts a tokio task only to
//! read a large payload. After a failed commit the store ends, since memory then has changes that
//! are not on disk.

mod backlog;
mod backup;
mod batch;
mod bulk_removal;
mod catalog;
mod check;
mod checkpoint;
mod chunks;
mod claim;
mod compaction;
mod compose;
mod damage;
mod database;
mod db;
mod decide;
mod deleting;
mod delivery;
mod disk_usage;
mod durable;
mod entry;
mod error;
mod expiry;
mod failure;
mod frozen;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod idempotency_index;
mod idempotency_rows;
mod ids;
mod index;
mod inspect;
mod journal;
mod memory;
mod meters;
mod newest_usage;
mod order;
mod outbox;
mod owners;
mod payloads;
mod placeholders;
mod ready;
mod recover;
mod repair;
mod requests;
mod row;
mod schema;
mod seal;
mod settings;
mod shared;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod shuttle_tests;
mod slab;
mod store;
mod sync;
mod urls;
mod usage_rows;
mod writer;

pub use check::{Report, check};
pub use damage::Damage;
pub use error::{OpenError, Recovery};
pub use memory::MemoryStore;
pub use repair::{Repaired, repair};
pub use settings::{OnFatal, Settings};
pub use store::SqliteStore;
