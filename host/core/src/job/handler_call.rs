//! A call of another endpoint by a handler, and the reasons why it has no result.

use crate::id::JobId;
use crate::job::payload::Json;
use crate::job::state::JobStatus;

/// A call of a handler.
#[derive(Debug, Clone)]
pub struct HandlerCall {
    /// The id of the other endpoint, as the handler wrote it.
    pub endpoint: String,
    /// The input of the job: an object.
    pub input: Json,
    /// By which a repeated call finds the job of the first one.
    pub idempotency_key: Option<String>,
    /// The id of the job, if the calling host has chosen it: when that host sends the call again,
    /// the id finds the job of the first time.
    pub job: Option<JobId>,
}

/// Why a handler's call has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The calling endpoint may not call this one, or there is none.
    #[error("{0}")]
    Denied(String),
    /// The id, the input or the key is malformed, or the key was used for another input.
    #[error("{0}")]
    InvalidRequest(String),
    /// A bound is reached: of the depth, of the calls of an attempt, or of the other endpoint's
    /// queue.
    #[error("{0}")]
    LimitReached(String),
    /// The job ended without an output.
    #[error("job `{id}` is {status}: {error}")]
    Failed {
        /// The job.
        id: JobId,
        /// FAILED, TIMED_OUT or CANCELLED.
        status: JobStatus,
        /// Its error.
        error: String,
    },
    /// The attempt has no time left to wait; the job continues.
    #[error("{0}")]
    Timeout(String),
    /// The host could not store the job, or has no result of it.
    #[error("{0}")]
    Other(String),
}
