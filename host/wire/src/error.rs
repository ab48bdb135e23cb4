//! Refusals.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// A field, a parameter or the body is invalid.
    BadRequest,
    /// The key is missing, wrong, or without permission.
    Unauthorized,
    /// The call may not come from a page of a browser.
    Forbidden,
    /// The path, or the object that it names, does not exist.
    NotFound,
    /// The path exists, but not for this method.
    MethodNotAllowed,
    /// The body is larger than its limit.
    PayloadTooLarge,
    /// The body is encoded in a way that the host does not read.
    UnsupportedMediaType,
    /// The body arrived too slowly.
    RequestTimeout,
    /// The object is in a state, or in use, so that the call is impossible.
    Conflict,
    /// The owner has as much of the catalog as one owner may have.
    QuotaExceeded,
    /// The `Idempotency-Key` was used with another body.
    IdempotencyMismatch,
    /// The queue, or the bytes of waiting jobs, are at their bound.
    QueueFull,
    /// More calls than the limit in ten seconds.
    RateLimited,
    /// More calls at one time than the limit.
    ConcurrencyLimited,
    /// The job of a call that answers with the handler's output alone is FAILED.
    JobFailed,
    /// This job is TIMED_OUT.
    JobTimedOut,
    /// This job is CANCELLED.
    JobCancelled,
    /// This job did not end within the longest wait of a call.
    WaitOver,
    /// The handler failed before it had answered a request.
    HandlerFailed,
    /// The handler did not answer a request in its time.
    HandlerTimedOut,
    /// The handler's answer to a request has no valid form.
    InvalidAnswer,
    /// The host failed.
    Internal,
    /// The content does not have the bytes of the range.
    RangeNotSatisfiable,
    /// The host does not offer this.
    NotImplemented,
    /// The host stops, or is overloaded.
    Unavailable,
    /// The disk has no room for new work.
    DiskFull,
}

impl ErrorCode {
    /// All codes.
    pub const ALL: [Self; 26] = [
        Self::BadRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::MethodNotAllowed,
        Self::PayloadTooLarge,
        Self::UnsupportedMediaType,
        Self::RequestTimeout,
        Self::Conflict,
        Self::QuotaExceeded,
        Self::IdempotencyMismatch,
        Self::QueueFull,
        Self::RateLimited,
        Self::ConcurrencyLimited,
        Self::JobFailed,
        Self::JobTimedOut,
        Self::JobCancelled,
        Self::WaitOver,
        Self::HandlerFailed,
        Self::HandlerTimedOut,
        Self::InvalidAnswer,
        Self::Internal,
        Self::RangeNotSatisfiable,
        Self::NotImplemented,
        Self::Unavailable,
        Self::DiskFull,
    ];

    /// The code as bodies have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::PayloadTooLarge => "payload_too_large",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::RequestTimeout => "request_timeout",
            Self::Conflict => "conflict",
            Self::QuotaExceeded => "quota_exceeded",
            Self::IdempotencyMismatch => "idempotency_mismatch",
            Self::QueueFull => "queue_full",
            Self::RateLimited => "rate_limited",
            Self::ConcurrencyLimited => "concurrency_limited",
            Self::JobFailed => "job_failed",
            Self::JobTimedOut => "job_timed_out",
            Self::JobCancelled => "job_cancelled",
            Self::WaitOver => "wait_over",
            Self::HandlerFailed => "handler_failed",
            Self::HandlerTimedOut => "handler_timed_out",
            Self::InvalidAnswer => "invalid_answer",
            Self::Internal => "internal",
            Self::RangeNotSatisfiable => "range_not_satisfiable",
            Self::NotImplemented => "not_implemented",
            Self::Unavailable => "unavailable",
            Self::DiskFull => "disk_full",
        }
    }

    /// Whether the host refused the call before it changed anything, for a reason that passes: the
    /// same call can be made again.
    pub fn is_retry_safe(self) -> bool {
        matches!(
            self,
            Self::RequestTimeout
                | Self::QueueFull
                | Self::RateLimited
                | Self::ConcurrencyLimited
                | Self::DiskFull
        )
    }
}

/// The error for a text that is not a code of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a known error code")]
pub struct UnknownErrorCode;

impl FromStr for ErrorCode {
    type Err = UnknownErrorCode;

    fn from_str(text: &str) -> Result<Self, UnknownErrorCode> {
        Self::ALL.into_iter().find(|code| code.as_str() == text).ok_or(UnknownErrorCode)
    }
}

/// The body of every answer that is not 2xx.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Error))]
pub struct ErrorBody {
    /// One sentence: the mistake, and what is allowed.
    pub error: String,
    /// The kind of refusal.
    pub code: ErrorCode,
    /// The same sentence; always present on the management API.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub message: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_written_as_the_document_has_them() {
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert_eq!(code.as_str().parse(), Ok(code));
        }
    }
}
