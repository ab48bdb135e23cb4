//! The durable job store of Gristmill: one engine that decides, over a [medium] that makes its
//! batches durable.
//!
//! [`Store`] keeps jobs and the catalog in a data directory, a journal in front of SQLite. With the
//! feature `testing` it also works without a disk.
//!
//! # The way of a change
//! * [`store`] has the public calls. Each of them decides at once, in memory, under one lock
//!   ([`state`]): it applies `JobState::apply` to the newest decided state, whether that is on disk
//!   or not.
//! * [`commit`] is the writer thread. It takes the newest state of each job that has changed since
//!   the last commit, so a job that arrived, ran and ended since then is one entry. It encodes them
//!   ([`format`](mod@format)), writes them to the [`journal`] as one frame with one sync, makes
//!   them visible, and answers the waiting callers. The journal is one [medium]; [`postgres`] is
//!   another, and in tests the rows in memory.
//! * Changes that a caller waits for reach the disk in the order in which they were decided, but
//!   small and large ones take turns; other changes may be delayed by up to 2 ms
//!   ([`state::backlog`]). A call that loses a race, say
//!   cancel against finish, returns only after the winning change is on disk.
//! * The journal overwrites its files. Before it overwrites the oldest, the thread of
//!   [`checkpoint`] copies the live data of that file into the [`tables`]; most jobs are deleted by
//!   then. Large payloads stay in the journal's files as long as their job, and are moved when they
//!   keep too many files alive.
//! * The usage of an attempt is in the frame of its result, added to the sums of the hour
//!   ([`state::meters`]); the sums are written to the tables when a caller reads them, or when the
//!   hour is over.
//! * Opening the store scans the tables into memory, applies the rest of the journal, and repairs
//!   the state that the end of the last process left behind ([`recover`]). A start refuses damage
//!   ([`Damage`]).
//! * [`offline`] has the programs for directories that no host has open: [`check`](fn@check) lists
//!   all damage, [`repair`](fn@repair) copies the undamaged data into a new directory, and
//!   [`import`](fn@import) moves all data into a database.
//!
//! **Bounds.** Every queue is bounded: payloads by [`Settings::write_buffer_bytes`], large ones
//! with shares of owners; changes of jobs by one for each job, other changes by one for each
//! caller, the journal by [`Settings::journal_bytes`].
//!
//! **Layers.** `store` and `recover` use all others but `offline`; `checkpoint`, `commit` and
//! `offline` use `state`, `tables`, `format` and `journal`, and `offline` also `postgres`,
//! `checkpoint` and `recover`; `postgres` uses `commit`, `state`, `tables`, `format` and the expiry
//! of bills in `checkpoint`; `tables` uses `format` and `journal`, and `state` only `format`;
//! `format` uses `journal`; all use `medium`. No two files import each other, directly or around.
//!
//! **Invariants.** The state is that of the tables plus all segments of the journal that are not
//! checkpointed. SQL is in `tables`, `checkpoint`, `recover`, `offline` and `postgres` only. Only
//! `state/decide.rs` changes a job's state. With a data directory, the store starts a tokio task
//! only to read a large payload. After a failed commit the store ends, since memory then has
//! changes that are not on disk.

mod cache_dir;
mod checkpoint;
mod commit;
mod damage;
mod dir_lock;
mod durable;
mod error;
mod failure;
mod format;
mod journal;
mod medium;
mod offline;
mod postgres;
mod private;
mod recover;
mod seal;
mod settings;
mod shared;
mod state;
mod store;
mod sync;
mod tables;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;

pub use cache_dir::CacheDir;
pub use damage::Damage;
pub use error::{OpenError, Recovery, SchemaUpgrade};
pub use offline::check::{Report, check};
pub use offline::import::{ImportStep, Imported, import};
pub use offline::repair::{Repaired, repair};
pub use postgres::active_state::ActiveState;
pub use postgres::candidate::Candidate;
pub use postgres::observation::{ActiveHost, Seen, Vacancy};
pub use postgres::outage::Outage;
pub use seal::read_keys;
pub use settings::{OnFatal, Settings};
pub use store::Store;
pub use store::postgres::{NotTaken, TakenOver};
pub use tables::schema::Schema;
