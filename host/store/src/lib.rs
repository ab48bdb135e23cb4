//! The durable job store of Gristmill, on SQLite.
//!
//! [`SqliteStore`] keeps jobs and the catalog in one file that one thread writes, with group
//! commit. [`MemoryStore`] keeps the same promises without a disk, for tests.
//!
//! # How it works
//! * Every call decides at once, in memory, under one lock ([`index`], [`decide`], [`claim`]): by
//!   `JobState::apply`, on the state that has been decided, on disk or not.
//! * The writer thread ([`writer`]) takes the newest state of each job that has changed since the
//!   last commit ([`batch`]), so that a job that came, ran and ended meanwhile is one row. It
//!   writes them as one transaction ([`db`]), makes them visible, and answers those who wait.
//! * What was decided first is on disk no later than what was decided after it. Whoever loses a
//!   race is answered once the winner's change is on disk.
//! * Everything that waits is bounded: payloads by [`Settings::write_buffer_bytes`], changes of
//!   jobs by one for each job, the rest by one for each caller.
//! * When the store is opened, one scan fills the memory, and what the end of the last process
//!   has left behind is repaired ([`recover`]).
//!
//! **Invariants.** `schema.rs`, `db.rs`, `row.rs`, `payloads.rs`, `chunks.rs`, `delivery.rs`,
//! `repeat_rows.rs`, `catalog.rs` and `recover.rs` are the only files that speak SQL. A job's state
//! changes in `decide.rs` only. Nothing here
//! starts a tokio task. After a failed commit nothing in memory is believed any more.

mod asks;
mod backlog;
mod batch;
mod catalog;
mod chunks;
mod claim;
mod db;
mod decide;
mod delivery;
mod entry;
mod error;
mod expiry;
mod index;
mod memory;
mod outbox;
mod payloads;
mod ready;
mod recover;
mod repeat_rows;
mod repeats;
mod row;
mod schema;
mod seal;
mod settings;
mod shared;
mod slab;
mod store;
mod sweep;
mod writer;

pub use error::{OpenError, Recovery};
pub use memory::MemoryStore;
pub use settings::{OnFatal, Settings};
pub use store::SqliteStore;
