//! `POST /v1/secrets/rotate`: replaces the key that the stored secrets are encrypted with. Only for
//! keys with the scope `admin`.
//!
//! **Bounds.** One replacement at a time; the call waits for its end, and the replacement continues
//! without the call.

use axum::Json;
use gristmill_core::access::secrets::{RotateError, Rotated};
use gristmill_wire::management::RotatedSecrets;

use crate::answer::error::{ApiError, ErrorCode};
use crate::identity::caller::{Admin, Caller};
use crate::openapi::refusals::RotationRefused;
use crate::openapi::tag;

/// Replaces the key of stored secrets, and encrypts them with the new key.
///
/// The host works meanwhile. The answer comes when no stored secret needs the old key any more. If
/// the call ends before, or the host restarts, the host completes the change. Refused with
/// `conflict` while the key is being replaced, or when its file cannot be replaced, and with 501 if
/// the data is in a database; nothing has changed then.
#[utoipa::path(
    post, path = "/secrets/rotate", operation_id = "RotateSecretsKey", tag = tag::HOST,
    responses((status = 200, description = "The secrets that were encrypted again", body = RotatedSecrets), RotationRefused),
)]
pub(crate) async fn rotate(
    Caller { state, .. }: Caller<Admin>,
) -> Result<Json<RotatedSecrets>, ApiError> {
    let Rotated { records, jobs } = state.secrets.rotate_secrets_key().await?;
    Ok(Json(RotatedSecrets { records, jobs }))
}

impl From<RotateError> for ApiError {
    fn from(error: RotateError) -> Self {
        let code = match error {
            RotateError::Busy | RotateError::KeyFile(_) => ErrorCode::Conflict,
            RotateError::Shared(_) => ErrorCode::NotImplemented,
            RotateError::DiskFull => ErrorCode::DiskFull,
            RotateError::OldKeyStays(_) => ErrorCode::Internal,
            RotateError::Closed => {
                let sentence = "the host is shutting down; if the replacement has begun, the next start \
                                completes it";
                return Self::new(ErrorCode::Unavailable, sentence);
            }
        };
        Self::new(code, error.to_string())
    }
}
