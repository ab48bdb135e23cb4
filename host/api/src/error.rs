//! The only form of a refusal: `{"error":"<sentence>","code":"<snake_case>"}`; the management API
//! adds the sentence as `"message"`, and routes under `/openai` use OpenAI's format.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gristmill_core::jobs::SubmitError;
use gristmill_core::store::{StoreError, StoreFull};
use serde::Serialize;
use utoipa::ToSchema;

use crate::refusal::Refusal;

/// Why a call was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    code: ErrorCode,
    /// For the client: the fault, and what is allowed.
    sentence: String,
    /// For a call beyond its rate limit.
    refusal: Option<Refusal>,
}

/// The kinds of refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ErrorCode {
    BadRequest,
    Unauthorized,
    NotFound,
    MethodNotAllowed,
    PayloadTooLarge,
    UnsupportedMediaType,
    RequestTimeout,
    Conflict,
    /// The owner has as much of the catalog as one owner may have.
    QuotaExceeded,
    IdempotencyMismatch,
    QueueFull,
    RateLimited,
    ConcurrencyLimited,
    /// The job of a call that answers with the handler's output alone is FAILED.
    JobFailed,
    /// This job is TIMED_OUT.
    JobTimedOut,
    /// This job is CANCELLED.
    JobCancelled,
    /// This job did not end within the longest wait of a call.
    WaitOver,
    Internal,
    NotImplemented,
    Unavailable,
    /// The disk has no room for new work.
    DiskFull,
}

impl ErrorCode {
    /// All codes.
    pub(crate) const ALL: [Self; 21] = [
        Self::BadRequest,
        Self::Unauthorized,
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
        Self::Internal,
        Self::NotImplemented,
        Self::Unavailable,
        Self::DiskFull,
    ];

    /// The status code of the answer.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::BadRequest | Self::Conflict | Self::QuotaExceeded => StatusCode::BAD_REQUEST,
            Self::Unauthorized => StatusCode::UNAUTHORIZED,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
            Self::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::QueueFull | Self::RateLimited | Self::ConcurrencyLimited => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::JobCancelled => StatusCode::GONE,
            Self::JobFailed | Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
            Self::JobTimedOut | Self::WaitOver => StatusCode::GATEWAY_TIMEOUT,
            Self::NotImplemented => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable | Self::DiskFull => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::Unauthorized => "unauthorized",
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
            Self::Internal => "internal",
            Self::NotImplemented => "not_implemented",
            Self::Unavailable => "unavailable",
            Self::DiskFull => "disk_full",
        }
    }

    /// Seconds after which the client should try again.
    fn retry_after_s(self) -> Option<u32> {
        match self {
            Self::QueueFull => Some(5),
            Self::Unavailable => Some(2),
            Self::DiskFull => Some(10),
            Self::BadRequest
            | Self::Unauthorized
            | Self::NotFound
            | Self::MethodNotAllowed
            | Self::PayloadTooLarge
            | Self::UnsupportedMediaType
            | Self::RequestTimeout
            | Self::Conflict
            | Self::QuotaExceeded
            | Self::IdempotencyMismatch
            // The limiter computes the time.
            | Self::RateLimited
            | Self::ConcurrencyLimited
            | Self::JobFailed
            | Self::JobTimedOut
            | Self::JobCancelled
            | Self::WaitOver
            | Self::Internal
            | Self::NotImplemented => None,
        }
    }
}

impl ApiError {
    pub(crate) fn new(code: ErrorCode, sentence: impl Into<String>) -> Self {
        Self { code, sentence: sentence.into(), refusal: None }
    }

    /// Adds the headers of a rate-limited call.
    pub(crate) fn with_refusal(self, refusal: Refusal) -> Self {
        Self { refusal: Some(refusal), ..self }
    }

    pub(crate) fn code(&self) -> ErrorCode {
        self.code
    }

    pub(crate) fn sentence(&self) -> &str {
        &self.sentence
    }

    pub(crate) fn bad_request(sentence: impl Into<String>) -> Self {
        Self::new(ErrorCode::BadRequest, sentence)
    }

    pub(crate) fn not_found(sentence: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotFound, sentence)
    }

    /// The answer about a job that is unknown, expired, or another endpoint's.
    pub(crate) fn job_not_found() -> Self {
        Self::not_found("job not found: its id is wrong, or its ttl or retention is over")
    }
}

/// The body of every answer that is not 2xx.
#[derive(Serialize, ToSchema)]
#[schema(as = Error)]
pub(crate) struct Body<'a> {
    /// One sentence: the mistake, and what is allowed.
    error: &'a str,
    code: ErrorCode,
    /// The same sentence; always present on the management API.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    message: Option<&'a str>,
}

impl ApiError {
    fn body(&self, message: Option<&str>) -> Response {
        axum::Json(Body { error: &self.sentence, code: self.code, message }).into_response()
    }

    /// On the management API the sentence is also there as `message`, its documented name.
    pub(crate) async fn add_message(mut response: Response) -> Response {
        if let Some(error) = response.extensions_mut().remove::<Self>() {
            let body = error.body(Some(&error.sentence)).into_body();
            response.headers_mut().remove(header::CONTENT_LENGTH);
            *response.body_mut() = body;
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.body(None);
        *response.status_mut() = self.code.status();
        let headers = response.headers_mut();
        if let Some(seconds) = self.code.retry_after_s() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.code == ErrorCode::UnsupportedMediaType {
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        }
        if self.code == ErrorCode::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(refusal) = self.refusal {
            refusal.write(headers);
        }
        response.extensions_mut().insert(self);
        response
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::EndpointDeleted => Self::not_found(error.to_string()),
            StoreError::UnknownCursor => Self::bad_request(error.to_string()),
            StoreError::Full(StoreFull::Disk(_)) => {
                Self::new(ErrorCode::DiskFull, error.to_string())
            }
            StoreError::Full(_) => Self::new(ErrorCode::QueueFull, error.to_string()),
            StoreError::QuotaExceeded(_) => Self::new(ErrorCode::QuotaExceeded, error.to_string()),
            StoreError::Closed => {
                Self::new(ErrorCode::Unavailable, "the host is shutting down; try again shortly")
            }
            StoreError::Damaged(_) => Self::new(ErrorCode::Internal, error.to_string()),
        }
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Policy(error) => Self::bad_request(error.to_string()),
            SubmitError::Store(error) => error.into(),
            SubmitError::KeyReused => Self::new(ErrorCode::IdempotencyMismatch, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_written_as_the_document_has_them() {
        for code in ErrorCode::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
