//! Operations that are completed even when their caller stops waiting, which drops the future of
//! the call. An operation has several steps, such as a record of the catalog and then its files,
//! and no caller may stop it between two of them.
//!
//! **Costs.** One task for each operation.

use std::panic::resume_unwind;

use tracing::Instrument as _;

use crate::error::ControlError;

/// Runs an operation to its end on a separate task. A panic of the operation is passed to the
/// caller.
///
/// # Errors
/// [`ControlError::Stopping`] when the host stops before the end.
pub async fn complete<T: Send + 'static>(
    operation: impl Future<Output = T> + Send + 'static,
) -> Result<T, ControlError> {
    tokio::spawn(operation.in_current_span()).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => ControlError::Stopping,
    })
}
