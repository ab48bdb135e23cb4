//! The tables: all SQL of a running store. They have the data that outlives the journal's segments,
//! the catalog and the usage.
//!
//! A table has one module. Rows are read and written as [records](crate::format); the tables do not
//! know the state in memory.

pub(crate) mod archived;
pub(crate) mod before_upgrade;
pub(crate) mod catalog;
pub(crate) mod chunks;
pub(crate) mod db;
pub(crate) mod deleting;
pub(crate) mod delivery;
pub(crate) mod endpoints;
pub(crate) mod found_by;
pub(crate) mod frozen;
pub(crate) mod idempotency;
pub(crate) mod job_action;
pub(crate) mod jobs;
pub(crate) mod payloads;
pub(crate) mod renew;
pub(crate) mod schedules;
pub(crate) mod schema;
pub(crate) mod search;
pub(crate) mod sql;
pub(crate) mod usage;
