//! A job's stream as a reader sees it: pages of chunks, and the list that stands in for the
//! output of a handler that only streamed.

use bytes::{BufMut as _, BytesMut};

use crate::id::JobId;
use crate::job::JobStatus;
use crate::limits::{OUTPUT_BYTES_MAX, STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX};
use crate::payload::Json;
use crate::record::ChunkPage;
use crate::store::{JobStore, StoreError};

/// Where a reader wants to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// After the last chunk that any call delivered.
    Undelivered,
    /// At this chunk, whether it was delivered or not.
    From(u64),
}

/// One answer to a reader.
#[derive(Debug, Clone)]
pub struct StreamPage {
    /// The job's status; final only on the page with the last chunk, so that a reader who stops at
    /// a final status has everything.
    pub status: JobStatus,
    /// Why the job is FAILED or TIMED_OUT.
    pub error: Option<String>,
    /// The chunks.
    pub page: ChunkPage,
}

/// The outputs of all chunks as one JSON list, in order. `None` when the list would be larger than
/// an output may be: the chunks themselves can still be read.
///
/// # Errors
/// Those of the store.
pub async fn list_of_outputs(
    store: &dyn JobStore,
    id: JobId,
    chunk_count: u64,
) -> Result<Option<Json>, StoreError> {
    let mut list = BytesMut::from(&b"["[..]);
    let mut next = 0;
    while next < chunk_count {
        let page = store.chunks(id, next, STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX).await?;
        if page.chunks.is_empty() {
            break; // deleted meanwhile
        }
        next = page.next();
        for chunk in page.chunks {
            if list.len() > 1 {
                list.put_u8(b',');
            }
            list.put_slice(chunk.output.as_bytes());
            if list.len() >= OUTPUT_BYTES_MAX {
                return Ok(None);
            }
        }
    }
    list.put_u8(b']');
    Ok(Some(Json::from_stored(list.freeze())))
}
