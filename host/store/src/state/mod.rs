//! The store's state in memory. Every call decides here, under one lock, before anything is
//! written.
//!
//! [`index`] has all jobs ([`job`]) and endpoints. [`decide`] changes a job's state, [`claim`]
//! chooses the next job, [`query`] reads, and [`restore`] puts back the jobs of an earlier process.
//! [`batch`] takes the changes for the disk and publishes them after the commit.

pub(crate) mod archived;
pub(crate) mod backlog;
pub(crate) mod batch;
pub(crate) mod bulk_removal;
pub(crate) mod caches;
mod calendar;
pub(crate) mod claim;
pub(crate) mod decide;
pub(crate) mod disk_usage;
mod entries;
pub(crate) mod found_row;
pub(crate) mod history;
pub(crate) mod hit;
pub(crate) mod idempotency;
mod ids;
pub(crate) mod index;
pub(crate) mod job;
mod lane;
pub(crate) mod meters;
pub(crate) mod newest_usage;
mod order;
pub(crate) mod outbox;
pub(crate) mod owners;
mod pending_bytes;
mod positions;
pub(crate) mod query;
mod queue_changes;
mod ready;
pub(crate) mod relay;
mod remove_slice;
pub(crate) mod requests;
mod restore;
pub(crate) mod room;
pub(crate) mod search;
pub(crate) mod slab;
pub(crate) mod starts;
mod turns;
mod urls;
