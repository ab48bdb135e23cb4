//! From the journal to the tables, on the one thread that uses the database ([`database`]): the live data of the
//! oldest segment is copied ([`segment`]), long-lived payloads are moved ([`compaction`]), and the usage of an
//! hour is written ([`usage`]).

mod backup;
mod bill_expiry;
mod compaction;
pub(crate) mod database;
pub(crate) mod segment;
mod usage;
