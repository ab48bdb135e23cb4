//! The errors of calls of other endpoints.

use std::fmt;

/// Why a call of another endpoint has no result. It is a [`std::error::Error`], so `?` ends the job
/// with its message.
///
/// ```
/// use gristmill_sdk::{CallError, Context, Error};
///
/// /// Uses another endpoint if that is allowed and has room.
/// fn summary(ctx: &Context, text: String) -> Result<String, Error> {
///     match ctx.call("summarize", &serde_json::json!({ "text": text })) {
///         Ok(summary) => Ok(summary),
///         Err(CallError::LimitReached(_)) => Ok(text),
///         Err(error) => Err(error.into()),
///     }
/// }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The endpoint's `callEndpoints` does not have the other endpoint, or this does not exist.
    Denied(String),
    /// The endpoint's id, the input or the idempotency key is malformed, or the key was used for
    /// another input.
    InvalidRequest(String),
    /// The attempt has made as many calls as it may, the chain of calls is too long, or the other
    /// endpoint's queue is full.
    LimitReached(String),
    /// The job ended without an output.
    Failed(FailedJob),
    /// The attempt has no time left to wait. The job continues.
    Timeout(String),
    /// The output does not have the structure of the type that the handler wants.
    InvalidOutput(String),
    /// Any other reason; the text is one sentence.
    Other(String),
}

/// A job of another endpoint that ended without an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedJob {
    /// The job's id.
    pub id: String,
    /// `FAILED`, `TIMED_OUT` or `CANCELLED`.
    pub status: String,
    /// Its error.
    pub error: String,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(why)
            | Self::InvalidRequest(why)
            | Self::LimitReached(why)
            | Self::Timeout(why)
            | Self::Other(why) => f.write_str(why),
            Self::Failed(FailedJob { id, status, error }) => {
                write!(f, "job `{id}` is {status}: {error}")
            }
            Self::InvalidOutput(why) => write!(f, "the output of the called job: {why}"),
        }
    }
}

impl std::error::Error for CallError {}
