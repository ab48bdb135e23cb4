//! Calls that wait for a job. Such a call ends early when its key is revoked or expires: the key is
//! checked every two seconds, so a call for a quick job has no such check.

use std::ops::Deref;
use std::time::Duration;

use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::record::JobRecord;
use gristmill_core::jobs::operations::Jobs;
use gristmill_core::jobs::stream::{Position, StreamPage};

use crate::answer::error::ApiError;
use crate::identity::auth::KeyCheck;
use crate::limits::in_flight::Share;
use crate::queue::results::Memory;

/// The record of the job once it has ended, or as it is when `wait` is over; see
/// [`Jobs::wait_for_end`].
///
/// # Errors
/// Those of the store; 401 when the key is not valid any more.
pub(crate) async fn for_end(
    key: &KeyCheck,
    jobs: &Jobs,
    endpoint: &EndpointId,
    id: JobId,
    wait: Duration,
) -> Result<Option<Box<JobRecord>>, ApiError> {
    key.wait(wait, |part| async move {
        let job = jobs.wait_for_end(endpoint, id, part).await?;
        let is_enough = job.as_ref().is_none_or(|job| job.status.is_final());
        Ok((job, is_enough || jobs.is_closing()))
    })
    .await
}

/// A page of a stream, with the memory for it and for its text: it is dropped when the text is in
/// the answer.
#[derive(Debug)]
pub(crate) struct HeldPage {
    shown: StreamPage,
    _memory: Option<Share>,
}

impl Deref for HeldPage {
    type Target = StreamPage;

    fn deref(&self) -> &StreamPage {
        &self.shown
    }
}

/// Whether the page has chunks, an end or a restart.
pub(crate) fn has_news(page: &StreamPage) -> bool {
    page.is_restart || !page.page.chunks.is_empty() || page.status.is_final()
}

/// The next page of the job's stream; see [`Jobs::stream`].
///
/// # Errors
/// Like those of [`for_end`]; 503 when there is no memory for the page for ten seconds.
pub(crate) async fn for_page(
    key: &KeyCheck,
    jobs: &Jobs,
    memory: &Memory,
    (endpoint, id): (&EndpointId, JobId),
    position: Position,
    wait: Duration,
) -> Result<Option<HeldPage>, ApiError> {
    key.wait(wait, |part| async move {
        let page = jobs.stream(endpoint, id, position, part, memory).await?;
        let page = page.map(|(shown, mut memory)| {
            if let Some(memory) = &mut memory {
                memory.ended(2 * shown.page.text_bytes());
            }
            HeldPage { shown, _memory: memory }
        });
        let is_enough = page.as_ref().is_none_or(|page| has_news(page));
        Ok((page, is_enough || jobs.is_closing()))
    })
    .await
}
