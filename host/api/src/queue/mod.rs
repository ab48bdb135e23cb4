//! The queue API of an endpoint: one route per file, wire shapes in [`dto`].

pub(crate) mod dto;
pub(crate) mod idempotency;
pub(crate) mod openai;
pub(crate) mod results;
pub(crate) mod sse;
mod streaming_body;
mod submission;
pub(crate) mod waiting;

/// The routes, one per file.
pub(crate) mod routes {
    pub(crate) mod cancel;
    pub(crate) mod health;
    pub(crate) mod openai;
    pub(crate) mod purge_queue;
    pub(crate) mod requests;
    pub(crate) mod retry;
    pub(crate) mod run;
    pub(crate) mod run_sync;
    pub(crate) mod status;
    pub(crate) mod stream;
    pub(crate) mod timeline;
}
