//! The queue API of an endpoint: one route per file, wire shapes in [`dto`].

pub(crate) mod dto;
mod idempotency;
mod pieces;
mod query;
mod sse;
mod submission;

/// The routes, one per file.
pub(crate) mod routes {
    mod cancel;
    mod health;
    mod purge_queue;
    mod requests;
    mod retry;
    mod run;
    mod run_sync;
    mod status;
    mod stream;

    pub(crate) use cancel::cancel;
    pub(crate) use health::health;
    pub(crate) use purge_queue::purge_queue;
    pub(crate) use requests::requests;
    pub(crate) use retry::retry;
    pub(crate) use run::run;
    pub(crate) use run_sync::run_sync;
    pub(crate) use status::{status, status_sync};
    pub(crate) use stream::stream;
}

/// How `/stream` answers: the one thing in which the two mounts of the queue API differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamShape {
    /// The documented array.
    Array,
    /// `{"status":…,"stream":[…]}`, which the official SDKs read.
    Object,
}
