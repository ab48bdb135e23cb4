//! The header `Idempotency-Key`: a submission that is sent again refers to the job of the first
//! one.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use gristmill_core::id::OwnerId;
use gristmill_core::job::idempotency::Idempotency;
use gristmill_wire::bounds::{IDEMPOTENCY_KEY_CHARS_MAX, is_idempotency_key};

use crate::answer::error::ApiError;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// The value of the header; `None` without it.
#[derive(Debug, Clone)]
pub(crate) struct Key(Option<HeaderValue>);

impl Key {
    /// The hashes by which a duplicate of `owner`'s submission of `body` is recognised; `None`
    /// without the header.
    pub(crate) fn record(
        &self,
        owner: &OwnerId,
        operation: &str,
        body: &[u8],
    ) -> Option<Idempotency> {
        let text = self.0.as_ref()?.to_str().ok()?;
        Some(Idempotency::new(owner, text, operation, body))
    }
}

/// The key of a submission.
///
/// # Errors
/// 400 when the key is empty, too long, or not printable ASCII.
pub(crate) fn key(headers: &HeaderMap) -> Result<Key, ApiError> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return Ok(Key(None)) };
    match (is_idempotency_key(key.as_bytes()), keys.next()) {
        (true, None) => Ok(Key(Some(key.clone()))),
        (_, _) => Err(ApiError::bad_request(format!(
            "the header Idempotency-Key must be given once, with 1 to {IDEMPOTENCY_KEY_CHARS_MAX} printable \
             ASCII characters"
        ))),
    }
}

/// Adds the header of a repeated submission.
pub(crate) fn add_replayed_header(is_repeated: bool, response: &mut Response) {
    if is_repeated {
        let headers = response.headers_mut();
        headers.insert("idempotent-replayed", HeaderValue::from_static("true"));
    }
}
