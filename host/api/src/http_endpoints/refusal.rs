//! The refusal of a request that has no answer of its handler.

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Response};
use axum::response::IntoResponse as _;
use gristmill_core::http_call::NoResponse;
use gristmill_core::http_calls::NoAnswer;

use crate::answer::browser_headers::with_security_headers;
use crate::answer::error::{ApiError, ErrorCode};

/// Its code, by which a client distinguishes a refusal of the host from an answer of the handler.
pub(super) const ERROR: HeaderName = HeaderName::from_static("x-gristmill-error");

impl From<NoAnswer> for ApiError {
    fn from(none: NoAnswer) -> Self {
        let code = match &none {
            NoAnswer::Busy
            | NoAnswer::CannotRun(_)
            | NoAnswer::Stopped
            | NoAnswer::NoMemory
            | NoAnswer::NoResponse(NoResponse::InstanceBusy) => ErrorCode::Unavailable,
            NoAnswer::NoResponse(NoResponse::InstanceGone) => ErrorCode::NotFound,
            NoAnswer::TimedOut(_) => ErrorCode::HandlerTimedOut,
            NoAnswer::Failed { .. } => ErrorCode::HandlerFailed,
            NoAnswer::NoResponse(NoResponse::Invalid(_)) => ErrorCode::InvalidAnswer,
        };
        Self::new(code, none.to_string())
    }
}

/// The answer of a refusal.
pub(crate) fn refuse(refused: ApiError) -> Response<Body> {
    let code = refused.code().as_str();
    let mut answer = refused.into_response();
    answer.headers_mut().insert(ERROR, HeaderValue::from_static(code));
    with_security_headers(answer)
}
