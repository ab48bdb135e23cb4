//! A job's stream as a reader sees it: pages of chunks, and the list that stands in for the
//! output of a handler that only streamed.

use bytes::{BufMut as _, BytesMut};

use crate::id::JobId;
use crate::job::JobStatus;
use crate::limits::{OUTPUT_BYTES_MAX, STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX};
use crate::payload::Json;
use crate::record::{ChunkPage, StreamPlace};
use crate::store::{JobStore, StoreError};

/// Where a reader wants to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// After the last chunk that any call delivered.
    Undelivered,
    /// At this chunk of the current attempt, whether it was delivered or not.
    From(u64),
    /// At this place. When the job has another attempt meanwhile, at the start of that attempt's stream.
    At(StreamPlace),
}

/// One answer to a reader.
#[derive(Debug, Clone)]
pub struct StreamPage {
    /// The job's status; final only on the page with the last chunk, so that a reader who stops at
    /// a final status has everything.
    pub status: JobStatus,
    /// Why the job is FAILED or TIMED_OUT.
    pub error: Option<String>,
    /// The reader asked for a place in the stream of another attempt, whose chunks are deleted: this page
    /// is at the start of the current attempt's stream.
    pub is_restart: bool,
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
    let mut list = OutputList::default();
    while let Some(from) = list.wants(chunk_count) {
        list.add(store.chunks(id, from, STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX).await?);
    }
    Ok(list.finish())
}

/// The outputs of all chunks as one JSON list, made page by page.
#[derive(Debug)]
pub struct OutputList {
    items: BytesMut,
    next: u64,
    is_over: bool,
    is_too_large: bool,
}

impl Default for OutputList {
    fn default() -> Self {
        let items = BytesMut::from(&b"["[..]);
        Self { items, next: 0, is_over: false, is_too_large: false }
    }
}

impl OutputList {
    /// The chunk that the next page begins with; `None` when no page is wanted any more.
    pub fn wants(&self, chunk_count: u64) -> Option<u64> {
        (self.next < chunk_count && !self.is_over).then_some(self.next)
    }

    /// Adds the page that was wanted. An empty one ends the list: the job was deleted meanwhile.
    pub fn add(&mut self, page: ChunkPage) {
        self.is_over = page.chunks.is_empty();
        self.next = page.next();
        for chunk in page.chunks {
            if self.items.len() > 1 {
                self.items.put_u8(b',');
            }
            self.items.put_slice(chunk.output.as_bytes());
            if self.items.len() >= OUTPUT_BYTES_MAX {
                (self.is_over, self.is_too_large) = (true, true);
                return;
            }
        }
    }

    /// The list; `None` when it would be larger than an output may be.
    pub fn finish(mut self) -> Option<Json> {
        if self.is_too_large {
            return None;
        }
        self.items.put_u8(b']');
        Some(Json::from_stored(self.items.freeze()))
    }
}
