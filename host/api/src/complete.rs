//! Changes that are completed even when their client closes the connection, which drops the future
//! of its call. A change has several steps, such as a record of the catalog and then its files, and
//! no client may stop it between two of them.
//!
//! **Costs.** One task for each change.

use std::panic::resume_unwind;

use tracing::Instrument as _;

use crate::error::{ApiError, ErrorCode};

/// Runs a change to its end on a separate task. A panic of the change is passed to the caller.
///
/// # Errors
/// 503 when the host stops before the end.
pub(crate) async fn complete<T: Send + 'static>(
    change: impl Future<Output = T> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::spawn(change.in_current_span()).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => ApiError::new(ErrorCode::Unavailable, "the host is stopping"),
    })
}
