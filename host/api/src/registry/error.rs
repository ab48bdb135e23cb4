//! Refusals of the registry: `{"errors":[{"code":"BLOB_UNKNOWN","message":"…"}]}`, as in the
//! specification.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use gristmill_control::{ControlError, TooManyUploads, UploadNotTaken};
use gristmill_core::runtime::AddComponentError;
use serde::Serialize;

use crate::answer::error::{ApiError, ErrorCode, status};
use crate::answer::refusal::Refusal;

/// A refusal with a code of the specification.
#[derive(Debug)]
pub(crate) struct RegistryError {
    code: OciCode,
    error: ApiError,
    /// Replaces the error's own status.
    status: Option<StatusCode>,
}

/// The specification's codes, and two of the reference implementation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub(super) enum OciCode {
    BlobUnknown,
    BlobUploadInvalid,
    BlobUploadUnknown,
    DigestInvalid,
    ManifestBlobUnknown,
    ManifestInvalid,
    ManifestUnknown,
    NameInvalid,
    NameUnknown,
    SizeInvalid,
    Unauthorized,
    Denied,
    Unsupported,
    #[serde(rename = "TOOMANYREQUESTS")]
    TooManyRequests,
    Unavailable,
    Unknown,
}

impl RegistryError {
    /// 404: the object does not exist.
    pub(super) fn unknown(code: OciCode, sentence: impl Into<String>) -> Self {
        Self { code, error: ApiError::not_found(sentence), status: None }
    }

    /// 400: the call is invalid.
    pub(super) fn invalid(code: OciCode, sentence: impl Into<String>) -> Self {
        Self { code, error: ApiError::bad_request(sentence), status: None }
    }

    /// 416: a piece that does not begin at the end of the previous one.
    pub(super) fn out_of_order(sentence: impl Into<String>) -> Self {
        let status = Some(StatusCode::RANGE_NOT_SATISFIABLE);
        Self { status, ..Self::invalid(OciCode::BlobUploadInvalid, sentence) }
    }

    /// 400: an optional part of the specification that is not supported.
    pub(super) fn unsupported(sentence: impl Into<String>) -> Self {
        Self::invalid(OciCode::Unsupported, sentence)
    }

    /// Whether the same call may succeed later, without another change by its client.
    pub(super) fn may_pass(&self) -> bool {
        let status = self.status.unwrap_or_else(|| status(self.error.code()));
        status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
    }

    /// The same with another code.
    pub(super) fn with_code(self, code: OciCode) -> Self {
        Self { code, ..self }
    }

    /// The refusal of a name with several parts.
    pub(crate) fn name_of_several_parts() -> Self {
        let sentence = "a handler's name has one part: push to `host/name:tag`";
        Self::unknown(OciCode::NameInvalid, sentence)
    }
}

impl From<ApiError> for RegistryError {
    fn from(error: ApiError) -> Self {
        let code = match error.code() {
            ErrorCode::Unauthorized => OciCode::Unauthorized,
            ErrorCode::NotFound => OciCode::NameUnknown,
            ErrorCode::MethodNotAllowed
            | ErrorCode::UnsupportedMediaType
            | ErrorCode::NotImplemented => OciCode::Unsupported,
            ErrorCode::PayloadTooLarge => OciCode::SizeInvalid,
            ErrorCode::RequestTimeout => OciCode::BlobUploadInvalid,
            ErrorCode::Forbidden | ErrorCode::Conflict | ErrorCode::QuotaExceeded => {
                OciCode::Denied
            }
            ErrorCode::QueueFull | ErrorCode::RateLimited | ErrorCode::ConcurrencyLimited => {
                OciCode::TooManyRequests
            }
            ErrorCode::Unavailable | ErrorCode::DiskFull => OciCode::Unavailable,
            ErrorCode::BadRequest
            | ErrorCode::IdempotencyMismatch
            | ErrorCode::RangeNotSatisfiable
            | ErrorCode::JobFailed
            | ErrorCode::JobTimedOut
            | ErrorCode::JobCancelled
            | ErrorCode::WaitOver
            | ErrorCode::HandlerFailed
            | ErrorCode::HandlerTimedOut
            | ErrorCode::InvalidAnswer
            | ErrorCode::Internal => OciCode::Unknown,
        };
        Self { code, error, status: None }
    }
}

impl From<ControlError> for RegistryError {
    fn from(error: ControlError) -> Self {
        let is_manifests =
            matches!(&error, ControlError::Component(AddComponentError::Rejected(_)));
        let refused = Self::from(ApiError::from(error));
        if is_manifests { refused.with_code(OciCode::ManifestInvalid) } else { refused }
    }
}

impl From<TooManyUploads> for RegistryError {
    fn from(refused: TooManyUploads) -> Self {
        let error = ApiError::new(ErrorCode::ConcurrencyLimited, refused.to_string());
        let refusal = Refusal::at_one_time("uploads", refused.share).after(refused.wait);
        error.with_refusal(refusal).into()
    }
}

impl From<UploadNotTaken> for RegistryError {
    fn from(error: UploadNotTaken) -> Self {
        let sentence = error.to_string();
        match error {
            UploadNotTaken::Unknown(_) => Self::unknown(OciCode::BlobUploadUnknown, sentence),
            UploadNotTaken::InUse => Self::invalid(OciCode::BlobUploadInvalid, sentence),
        }
    }
}

#[derive(Serialize)]
struct Errors<'a> {
    errors: [ErrorText<'a>; 1],
}

#[derive(Serialize)]
struct ErrorText<'a> {
    code: OciCode,
    message: &'a str,
}

impl IntoResponse for RegistryError {
    fn into_response(self) -> Response {
        let Self { code, error, status } = self;
        let errors = [ErrorText { code, message: error.sentence() }];
        let text = serde_json::to_string(&Errors { errors }).expect("the body is plain data");
        let mut response = error.into_response();
        response.extensions_mut().remove::<ApiError>();
        *response.body_mut() = Body::from(text);
        if let Some(status) = status {
            *response.status_mut() = status;
        }
        let headers = response.headers_mut();
        headers.remove(header::CONTENT_LENGTH);
        if code == OciCode::Unauthorized {
            // Clients send their user name and password only after this challenge.
            let challenge = HeaderValue::from_static("Basic realm=\"gristmill\"");
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// Converts a refusal from elsewhere to the specification's format. Its headers stay.
pub(crate) async fn reshape_refusal(mut response: Response) -> Response {
    let Some(error) = response.extensions_mut().remove::<ApiError>() else { return response };
    let mut reshaped = RegistryError::from(error).into_response();
    if let Some(allow) = response.headers_mut().remove(header::ALLOW) {
        reshaped.headers_mut().insert(header::ALLOW, allow);
    }
    reshaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_written_as_the_specification_has_them() {
        let written = |code| serde_json::to_value(code).unwrap();
        assert_eq!(written(OciCode::BlobUploadUnknown), "BLOB_UPLOAD_UNKNOWN");
        assert_eq!(written(OciCode::TooManyRequests), "TOOMANYREQUESTS");
    }

    #[test]
    fn a_refusal_may_pass_when_it_is_not_of_the_call() {
        let refused = |code| RegistryError::from(ApiError::new(code, "")).may_pass();
        for code in [
            ErrorCode::ConcurrencyLimited,
            ErrorCode::RateLimited,
            ErrorCode::DiskFull,
            ErrorCode::Unavailable,
            ErrorCode::Internal,
        ] {
            assert!(refused(code), "{code:?}");
        }
        for code in [ErrorCode::BadRequest, ErrorCode::QuotaExceeded, ErrorCode::Unauthorized] {
            assert!(!refused(code), "{code:?}");
        }
    }
}
