//! From the journal to the tables, on the one thread that uses the database ([`database`]): the
//! live data of the oldest segment is copied ([`segment`]), long-lived payloads are moved
//! ([`compaction`]), the usage of an hour is written ([`usage`]), ended jobs leave memory
//! ([`archive`], [`sweep`]), and the key of stored secrets is replaced ([`rotation`]).

pub(crate) mod archive;
mod backup;
pub(crate) mod bill_expiry;
mod compaction;
pub(crate) mod database;
mod rotate;
pub(crate) mod rotation;
pub(crate) mod search;
pub(crate) mod segment;
mod sweep;
mod usage;
