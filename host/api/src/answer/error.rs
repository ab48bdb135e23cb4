//! The only form of a refusal: `{"error":"<sentence>","code":"<snake_case>"}`; the management API
//! adds the sentence as `"message"`, and routes under `/openai` use OpenAI's format.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gristmill_core::jobs::operations::SubmitError;
use gristmill_core::store::{StoreError, StoreFull};
use gristmill_wire::ErrorBody;

pub(crate) use gristmill_wire::ErrorCode;

use crate::answer::refusal::Refusal;

/// Most bytes of the sentence about a wrong call.
const SENTENCE_BYTES_MAX: usize = 2 << 10;

/// Why a call was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    code: ErrorCode,
    /// For the client: the fault, and what is allowed.
    sentence: String,
    /// For a call beyond its rate limit.
    refusal: Option<Refusal>,
}

/// The status code of the answer.
pub(crate) fn status(code: ErrorCode) -> StatusCode {
    match code {
        ErrorCode::BadRequest | ErrorCode::Conflict | ErrorCode::QuotaExceeded => {
            StatusCode::BAD_REQUEST
        }
        ErrorCode::Unauthorized => StatusCode::UNAUTHORIZED,
        ErrorCode::Forbidden => StatusCode::FORBIDDEN,
        ErrorCode::NotFound => StatusCode::NOT_FOUND,
        ErrorCode::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
        ErrorCode::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        ErrorCode::UnsupportedMediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ErrorCode::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        ErrorCode::RangeNotSatisfiable => StatusCode::RANGE_NOT_SATISFIABLE,
        ErrorCode::IdempotencyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
        ErrorCode::QueueFull | ErrorCode::RateLimited | ErrorCode::ConcurrencyLimited => {
            StatusCode::TOO_MANY_REQUESTS
        }
        ErrorCode::JobCancelled => StatusCode::GONE,
        ErrorCode::JobFailed | ErrorCode::HandlerFailed | ErrorCode::Internal => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
        ErrorCode::InvalidAnswer => StatusCode::BAD_GATEWAY,
        ErrorCode::JobTimedOut | ErrorCode::HandlerTimedOut | ErrorCode::WaitOver => {
            StatusCode::GATEWAY_TIMEOUT
        }
        ErrorCode::NotImplemented => StatusCode::NOT_IMPLEMENTED,
        ErrorCode::Unavailable | ErrorCode::DiskFull => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// Seconds after which the client should try again.
fn retry_after_s(code: ErrorCode) -> Option<u32> {
    match code {
        ErrorCode::QueueFull => Some(5),
        ErrorCode::Unavailable => Some(2),
        ErrorCode::DiskFull => Some(10),
        ErrorCode::BadRequest
        | ErrorCode::Unauthorized
        | ErrorCode::Forbidden
        | ErrorCode::NotFound
        | ErrorCode::MethodNotAllowed
        | ErrorCode::PayloadTooLarge
        | ErrorCode::UnsupportedMediaType
        | ErrorCode::RequestTimeout
        | ErrorCode::Conflict
        | ErrorCode::QuotaExceeded
        | ErrorCode::IdempotencyMismatch
        | ErrorCode::RangeNotSatisfiable
        // The limiter computes the time.
        | ErrorCode::RateLimited
        | ErrorCode::ConcurrencyLimited
        | ErrorCode::JobFailed
        | ErrorCode::JobTimedOut
        | ErrorCode::JobCancelled
        | ErrorCode::WaitOver
        | ErrorCode::HandlerFailed
        | ErrorCode::HandlerTimedOut
        | ErrorCode::InvalidAnswer
        | ErrorCode::Internal
        | ErrorCode::NotImplemented => None,
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

    /// The sentence may end with the client's own value, which is cut.
    pub(crate) fn bad_request(sentence: impl Into<String>) -> Self {
        let mut sentence = sentence.into();
        if sentence.len() > SENTENCE_BYTES_MAX {
            sentence.truncate(sentence.floor_char_boundary(SENTENCE_BYTES_MAX));
            sentence.push('…');
        }
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

impl ApiError {
    fn body(&self, message: Option<String>) -> Response {
        let body = ErrorBody { error: self.sentence.clone(), code: self.code, message };
        axum::Json(body).into_response()
    }

    /// On the management API the sentence is also there as `message`, its documented name.
    pub(crate) async fn add_message(mut response: Response) -> Response {
        if let Some(error) = response.extensions_mut().remove::<Self>() {
            let body = error.body(Some(error.sentence.clone())).into_body();
            response.headers_mut().remove(header::CONTENT_LENGTH);
            *response.body_mut() = body;
        }
        response
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.body(None);
        *response.status_mut() = status(self.code);
        let headers = response.headers_mut();
        if let Some(seconds) = retry_after_s(self.code) {
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
            StoreError::Unavailable => Self::new(ErrorCode::Unavailable, error.to_string()),
            StoreError::Damaged(_) => Self::new(ErrorCode::Internal, error.to_string()),
        }
    }
}

impl From<SubmitError> for ApiError {
    fn from(error: SubmitError) -> Self {
        match error {
            SubmitError::Policy(error) => Self::bad_request(error.to_string()),
            SubmitError::Input(error) => Self::bad_request(error.to_string()),
            SubmitError::Store(error) => error.into(),
            SubmitError::KeyReused => Self::new(ErrorCode::IdempotencyMismatch, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_of_the_client_is_cut() {
        let short = ApiError::bad_request("`a` must be 1, not `ä`");
        assert_eq!(short.sentence(), "`a` must be 1, not `ä`");
        let long = ApiError::bad_request(format!("`a` must be 1, not `{}`", "ä".repeat(1 << 20)));
        assert!(
            long.sentence().starts_with("`a` must be 1, not `ä") && long.sentence().ends_with("ä…")
        );
        assert!(long.sentence().len() <= SENTENCE_BYTES_MAX + '…'.len_utf8());
    }
}
