//! The durable job store of Gristmill: a journal in front of SQLite.
//!
//! [`SqliteStore`] keeps jobs and the catalog in one data directory, with group commit.
//! [`MemoryStore`] keeps the same promises without a disk, for tests.
//!
//! # How it works
//! * Every call decides at once, in memory, under one lock ([`index`], [`decide`], [`claim`]): by
//!   `JobState::apply`, on the state that has been decided, on disk or not.
//! * The writer thread ([`writer`]) takes the newest state of each job that has changed since the
//!   last commit ([`batch`]), so that a job that came, ran and ended meanwhile is one entry. It
//!   writes them into the [`journal`], as one frame with one sync, makes them visible, and answers
//!   those who wait.
//! * Of what somebody waits for, what was decided first is on disk no later than what was decided
//!   after it; the rest may linger ([`backlog`]). Whoever loses a race is answered once the winner's
//!   change is on disk.
//! * The journal's files are used again and again. Before that, the database's thread ([`database`])
//!   takes over what is still needed of the oldest ([`checkpoint`]); most jobs are gone by then.
//!   Large payloads stay in the journal's files as long as their job ([`compaction`] sees to it
//!   that they do not keep too many).
//! * Everything that waits is bounded: payloads by [`Settings::write_buffer_bytes`], changes of
//!   jobs by one for each job, the rest by one for each caller, the journal by
//!   [`Settings::journal_bytes`].
//! * A [`backup`] takes the journal's files as they are, and the database's file, which stays as it
//!   is while it is read ([`frozen`]).
//! * What an attempt used is in the frame of its result, as sums of the hour ([`meters`]); the
//!   database has them when somebody asks, or when the hour is over ([`usage_rows`]).
//! * A start refuses damage ([`Damage`]); [`check`](fn@check) lists all of it, and [`repair`] saves the rest
//!   into a new directory.
//! * When the store is opened, a scan of the tables fills the memory, the rest of the journal is
//!   played over it, and what the end of the last process has left behind is repaired
//!   ([`recover`]).
//!
//! **Invariants.** The tables, and over them the journal from the last settled segment on, are the
//! truth. `schema.rs`, `db.rs`, `row.rs`, `payloads.rs`, `chunks.rs`, `delivery.rs`,
//! `repeat_rows.rs`, `usage_rows.rs`, `catalog.rs`, `checkpoint.rs`, `recover.rs`, `inspect.rs`,
//! `check.rs` and `salvage.rs` are the only files that speak SQL. A job's state changes in `decide.rs` only. Nothing here starts a tokio task, but to read a
//! large payload. After a failed commit nothing in memory is believed any more.

mod asks;
mod backlog;
mod backup;
mod batch;
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
mod delivery;
mod durable;
mod entry;
mod error;
mod expiry;
mod failure;
mod frozen;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod ids;
mod index;
mod inspect;
mod journal;
mod memory;
mod meters;
mod order;
mod outbox;
mod owners;
mod payloads;
mod ready;
mod recover;
mod repeat_rows;
mod repeats;
mod row;
mod salvage;
mod schema;
mod seal;
mod settings;
mod shared;
#[cfg(test)]
#[cfg(feature = "shuttle")]
mod shuttle_tests;
mod slab;
mod stand_in;
mod store;
mod sweep;
mod sync;
mod usage_rows;
mod weight;
mod writer;

pub use check::{Report, check};
pub use damage::Damage;
pub use error::{OpenError, Recovery};
pub use memory::MemoryStore;
pub use salvage::{Salvaged, repair};
pub use settings::{OnFatal, Settings};
pub use store::SqliteStore;
