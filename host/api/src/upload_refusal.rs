//! The refusals of components that are uploaded, pushed or fetched.

use std::time::Duration;

use gristmill_core::limits::UPLOADS_WAITING_MAX;
use gristmill_core::runtime::AddComponentError;
use tracing::error;

use crate::error::{ApiError, ErrorCode};
use crate::refusal::Refusal;

/// The refusal of an upload whose owner has too many uploads that wait to be compiled. A compile
/// takes seconds, and minutes at most.
pub(crate) fn too_many_waiting(sentence: impl Into<String>) -> ApiError {
    let refusal =
        Refusal::at_one_time("upload", UPLOADS_WAITING_MAX).after(Duration::from_secs(10));
    ApiError::new(ErrorCode::ConcurrencyLimited, sentence).with_refusal(refusal)
}

/// The refusal of an upload, for its client.
pub(crate) fn refused(error: AddComponentError) -> ApiError {
    match error {
        AddComponentError::Rejected(reason) => ApiError::bad_request(reason),
        AddComponentError::TooManyWaiting => too_many_waiting(error.to_string()),
        AddComponentError::NoSpace(_) => ApiError::new(ErrorCode::DiskFull, error.to_string()),
        AddComponentError::Failed(reason) => {
            error!("an uploaded component could not be stored: {reason}");
            ApiError::new(
                ErrorCode::Internal,
                "the component could not be compiled or kept; the host's log has the details",
            )
        }
    }
}
