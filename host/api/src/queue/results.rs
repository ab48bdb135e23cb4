//! Large results, from the store into answers.
//!
//! **Bounds.** A result of more than 64 KiB waits for its memory, fairly among keys; see
//! [`in_flight`](crate::limits::in_flight). The store and [`Jobs`] read and join it on threads that
//! may block.

use axum::response::Response;
use gristmill_core::access::key::ApiKey;
use gristmill_core::id::KeyId;
use gristmill_core::job::record::JobRecord;
use gristmill_core::jobs::operations::Jobs;
use gristmill_core::jobs::stream::PageMemory;
use gristmill_core::limits::RUN_SYNC_BODY_BYTES_MAX;

use super::dto;
use crate::answer::error::ApiError;
use crate::limits::in_flight::{InFlight, Share};
use crate::state::ApiState;

/// The answer with the document of a job, and with its input if the host keeps it.
///
/// # Errors
/// Those of [`document`].
pub(crate) async fn document_with_input(
    state: &ApiState,
    key: &ApiKey,
    record: Box<JobRecord>,
) -> Result<Response, ApiError> {
    // The record does not have the size of the input.
    let bytes = Jobs::document_bytes(&record) + RUN_SYNC_BODY_BYTES_MAX;
    let _memory = state.results.result(&key.id, bytes).await?;
    let input = state.jobs.input(record.id).await?;
    let document = state.jobs.document(record).await?.ok_or_else(ApiError::job_not_found)?;
    Ok(dto::status_document(&document, input.as_ref()))
}

/// The answer with the document of a job.
///
/// # Errors
/// Those of the store; 404 when the job was deleted meanwhile; 503 when there is no memory for the
/// output for ten seconds.
pub(crate) async fn document(
    state: &ApiState,
    key: &ApiKey,
    record: Box<JobRecord>,
) -> Result<Response, ApiError> {
    // Released when the answer is complete: from then on it counts among the answers that wait for
    // their clients.
    let _memory = state.results.result(&key.id, Jobs::document_bytes(&record)).await?;
    let document = state.jobs.document(record).await?.ok_or_else(ApiError::job_not_found)?;
    Ok(dto::status_document(&document, None))
}

/// The memory of one caller's results.
#[derive(Debug)]
pub(crate) struct Memory {
    all: InFlight,
    key: KeyId,
    held: Option<Share>,
}

impl Memory {
    pub(crate) fn new(all: &InFlight, key: &KeyId) -> Self {
        Self { all: all.clone(), key: key.clone(), held: None }
    }

    /// Takes memory for the result of this job, until the next call or the end of this value.
    ///
    /// # Errors
    /// 503 when there is none for ten seconds.
    pub(crate) async fn take_for(&mut self, record: &JobRecord) -> Result<(), ApiError> {
        self.held = None;
        self.held = self.take(Jobs::document_bytes(record)).await?;
        Ok(())
    }
}

/// The part of a small page is `None`: it needs none.
impl PageMemory for Memory {
    type Held = Option<Share>;
    type Error = ApiError;

    async fn take(&self, bytes: usize) -> Result<Option<Share>, ApiError> {
        self.all.result(&self.key, bytes).await
    }
}
