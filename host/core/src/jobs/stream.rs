//! A job's stream as a reader sees it: pages of chunks, and the list that stands in for the
//! output of a handler that only streamed.

use bytes::{BufMut as _, BytesMut};
use futures::FutureExt as _;

use crate::job::payload::Json;
use crate::job::record::{Chunk, ChunkPage, JobRecord, Part, StreamPosition};
use crate::job::state::JobStatus;
use crate::limits::{
    CHUNK_BYTES_MAX, OUTPUT_BYTES_MAX, STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX,
};
use crate::store::{JobStore, StoreError};

/// The position at which a reader continues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// After the last chunk that any call delivered.
    Undelivered,
    /// At this chunk of the current attempt, whether it was delivered or not.
    From(u64),
    /// At this position. When the job has another attempt meanwhile, at the start of that attempt's
    /// stream.
    At(StreamPosition),
}

/// One answer to a reader.
#[derive(Debug, Clone)]
pub struct StreamPage {
    /// The job's status; final only on the page with the last chunk, so that a reader who stops at
    /// a final status has everything.
    pub status: JobStatus,
    /// Why the job is FAILED or TIMED_OUT.
    pub error: Option<String>,
    /// The reader asked for a position in the stream of another attempt, whose chunks are deleted:
    /// this page is at the start of the current attempt's stream.
    pub is_restart: bool,
    /// The chunks.
    pub page: ChunkPage,
}

/// The memory of a reader, from which each page is taken before it is read.
pub trait PageMemory: Sync {
    /// A part of it, which returns when it is dropped.
    type Held: Send;
    /// Why there is none, or no page.
    type Error: From<StoreError>;

    /// Takes so many bytes for a page and its text.
    ///
    /// # Errors
    /// When there is no memory.
    fn take(&self, bytes: usize) -> impl Future<Output = Result<Self::Held, Self::Error>> + Send;
}

/// Memory without a bound.
impl PageMemory for () {
    type Held = ();
    type Error = StoreError;

    async fn take(&self, _: usize) -> Result<(), StoreError> {
        Ok(())
    }
}

/// Most bytes of a page of this job that begins with the chunk `from`.
pub(super) fn page_bytes_max(record: &JobRecord, from: u64) -> usize {
    let chunks = usize::try_from(record.chunk_count.saturating_sub(from)).unwrap_or(usize::MAX);
    let result = usize::try_from(record.result_bytes).unwrap_or(usize::MAX);
    result.min(chunks.saturating_mul(CHUNK_BYTES_MAX)).min(STREAM_PAGE_BYTES_MAX)
}

/// Lists of at most this size are assembled by the calling task; larger ones, which take
/// milliseconds, by a thread that may block.
const JOIN_INLINE_BYTES_MAX: u64 = 256 << 10;

/// The output of a COMPLETED job: the value that its handler returned, or the list of the outputs
/// of its chunks in place of `null`. `None` if the job was deleted, or the list would be too large.
///
/// # Errors
/// Those of the store.
pub async fn output_of(
    store: &dyn JobStore,
    record: &JobRecord,
) -> Result<Option<Json>, StoreError> {
    match store.output(record.id).await? {
        Some(value) if value.is_null() && record.chunk_count > 0 => {
            list_of_outputs(store, record).boxed().await
        }
        other => Ok(other),
    }
}

/// The outputs of all chunks of a job as one JSON list, in order. `None` when the list would be
/// larger than an output may be, while the chunks themselves can still be read, or when the job was
/// deleted meanwhile.
///
/// # Errors
/// Those of the store.
pub async fn list_of_outputs(
    store: &dyn JobStore,
    job: &JobRecord,
) -> Result<Option<Json>, StoreError> {
    let mut list = OutputList::default();
    while let Some(from) = list.next_needed(job.chunk_count) {
        let page =
            store.chunks(job.id, from, STREAM_PAGE_BYTES_MAX, STREAM_PAGE_CHUNKS_MAX).await?;
        list = join(list, page, job.result_bytes).await?;
    }
    Ok(list.finish())
}

/// Adds a page to a list that will have about so many bytes.
async fn join(
    mut list: OutputList,
    page: ChunkPage,
    list_bytes: u64,
) -> Result<OutputList, StoreError> {
    if list_bytes <= JOIN_INLINE_BYTES_MAX {
        list.add(page);
        return Ok(list);
    }
    let joining = tokio::task::spawn_blocking(move || {
        list.add(page);
        list
    });
    // The runtime ends, so there is no list.
    joining.await.map_err(|_| StoreError::Closed)
}

/// The emitted values as one JSON list, made page by page out of their chunks: a value that was
/// split is whole again.
///
/// **Bounds.** [`OUTPUT_BYTES_MAX`], which the text of the list reaches at most.
#[derive(Debug)]
pub struct OutputList {
    items: BytesMut,
    next: u64,
    is_over: bool,
    /// A chunk is missing, or there is no room for it.
    is_cut: bool,
    last: Option<LastValue>,
}

/// The last value of a list.
#[derive(Debug)]
struct LastValue {
    /// The position of its text.
    begins_at: usize,
    /// Index of the part that continues it.
    next_part: u32,
    /// How many parts it has; 0 if it is not split, or a string.
    count: u32,
}

impl Default for OutputList {
    fn default() -> Self {
        let items = BytesMut::from(&b"["[..]);
        Self { items, next: 0, is_over: false, is_cut: false, last: None }
    }
}

impl OutputList {
    /// The chunk that the next page begins with; `None` when no further page is needed.
    pub fn next_needed(&self, chunk_count: u64) -> Option<u64> {
        (self.next < chunk_count && !self.is_over).then_some(self.next)
    }

    /// Adds the requested page. An empty page ends the list without a result: the job was deleted
    /// meanwhile.
    pub fn add(&mut self, page: ChunkPage) {
        (self.is_over, self.is_cut) = (page.chunks.is_empty(), page.chunks.is_empty());
        self.next = page.next();
        let bytes = page.chunks.iter().map(|chunk| chunk.output.len() + 1).sum::<usize>();
        self.items.reserve(bytes.min(OUTPUT_BYTES_MAX) + 1);
        for chunk in page.chunks {
            self.add_chunk(&chunk);
            if self.items.len() >= OUTPUT_BYTES_MAX {
                (self.is_over, self.is_cut) = (true, true);
                return;
            }
        }
    }

    fn add_chunk(&mut self, chunk: &Chunk) {
        let Part { index, count } = chunk.part.unwrap_or(Part { index: 0, count: 0 });
        let text = chunk.output.as_bytes();
        let is_text = count > 0;
        let continues = |last: &LastValue| {
            index > 0
                && (last.next_part, last.count) == (index, count)
                && (is_text || self.items.ends_with(b"\""))
        };
        if self.last.as_ref().is_some_and(continues) {
            if !is_text {
                // The first quotation mark of the piece, and the second one of the string before
                // it.
                self.items.truncate(self.items.len() - 1);
                self.items.put_slice(text.get(1..).unwrap_or_default());
            }
        } else {
            self.end_value();
            if self.items.len() > 1 {
                self.items.put_u8(b',');
            }
            self.last = Some(LastValue { begins_at: self.items.len(), next_part: 0, count });
            if !is_text {
                self.items.put_slice(text);
            }
        }
        if is_text {
            let piece = chunk.output.read::<String>().unwrap_or_default();
            self.items.put_slice(piece.as_bytes());
        }
        if let Some(last) = &mut self.last {
            last.next_part += 1;
        }
    }

    /// A value with a part that is damaged on disk is `null`.
    fn end_value(&mut self) {
        if let Some(LastValue { begins_at, next_part, count }) = self.last.take()
            && next_part < count
        {
            self.items.truncate(begins_at);
            self.items.put_slice(b"null");
        }
    }

    /// The list; `None` when it would be larger than an output may be, or when a page was empty.
    pub fn finish(mut self) -> Option<Json> {
        if self.is_cut {
            return None;
        }
        self.end_value();
        self.items.put_u8(b']');
        Some(Json::from_stored(self.items.freeze()))
    }
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
