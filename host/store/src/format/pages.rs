//! Stream chunks in bytes: a page has all chunks that a job emitted between two commits, so a
//! handler that emits single words costs one row per fsync and not one per word.

use std::io;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, ChunkPage, Part};
use gristmill_core::job::state::Claim;

use crate::damage::damaged;
use crate::medium::{Medium, PayloadLocation};

/// Bytes after which a page is closed, so that reading one chunk does not read megabytes.
pub(crate) const PAGE_BYTES: usize = 256 << 10;

/// Bytes of a chunk's header in a page.
const HEADER_BYTES: usize = 16;

/// The bytes of chunks on disk. A chunk of one byte takes 17.
pub(crate) fn stored_bytes(chunks: &[Chunk]) -> usize {
    chunks.iter().map(|chunk| chunk.len() + HEADER_BYTES).sum()
}

/// The bytes of so many chunks that take `stored` bytes.
pub(crate) fn payload_bytes(chunks: u64, stored: u64) -> u64 {
    stored.saturating_sub(chunks.saturating_mul(HEADER_BYTES as u64))
}

/// Consecutive chunks of one job, as they were committed.
#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) first: u64,
    pub(crate) chunks: Arc<[Chunk]>,
}

impl Page {
    /// A page whose bytes were read; `None` when they are damaged.
    pub(crate) fn decode(first: u64, bytes: Bytes) -> Option<Self> {
        Some(Self { first, chunks: decode(bytes)? })
    }

    /// The index of the first chunk behind it.
    pub(crate) fn next(&self) -> u64 {
        self.first + self.chunks.len() as u64
    }

    /// Whether the page has the chunk with this index.
    pub(crate) fn covers(&self, index: u64) -> bool {
        (self.first..self.next()).contains(&index)
    }

    /// Its chunks from the given index on, which must be in the page.
    pub(crate) fn from(&self, index: u64) -> ChunkPage {
        let skip = usize::try_from(index - self.first).unwrap_or(usize::MAX);
        let chunks = self.chunks.iter().skip(skip).cloned().collect();
        ChunkPage { first: index, chunks, ..ChunkPage::default() }
    }
}

/// Divides chunks into pages; `first` is the index of the first chunk.
pub(crate) fn paginate(mut first: u64, chunks: Vec<Chunk>) -> Vec<Page> {
    let mut pages = Vec::new();
    let mut open = Vec::new();
    let mut bytes = 0;
    let mut close = |open: &mut Vec<Chunk>| {
        if !open.is_empty() {
            let page = Page { first, chunks: std::mem::take(open).into() };
            first = page.next();
            pages.push(page);
        }
    };
    for chunk in chunks {
        bytes += chunk.len();
        open.push(chunk);
        if bytes >= PAGE_BYTES {
            close(&mut open);
            bytes = 0;
        }
    }
    close(&mut open);
    pages
}

/// The chunks that a reader requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query {
    /// The job's current attempt, whose chunks these are.
    pub(crate) attempt: Claim,
    pub(crate) from: u64,
    /// Number of visible chunks: the answer ends before this index.
    pub(crate) end: u64,
    pub(crate) bytes_max: usize,
    pub(crate) count_max: usize,
}

/// An answer that is being built.
pub(crate) struct Answer<'a> {
    query: &'a Query,
    pub(crate) page: ChunkPage,
    bytes: usize,
    is_full: bool,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(query: &'a Query) -> Self {
        let page = ChunkPage { attempt: query.attempt, first: query.from, chunks: Vec::new() };
        Self { query, page, bytes: 0, is_full: false }
    }

    /// The index of the next chunk; `None` when the answer is complete.
    pub(crate) fn next_needed(&self) -> Option<u64> {
        let next = self.page.next();
        (!self.is_full && next < self.query.end).then_some(next)
    }

    /// Adds the chunks of a page that has the next chunk.
    pub(crate) fn take(&mut self, page: &Page) {
        let skip = self.page.next().saturating_sub(page.first);
        for chunk in page.chunks.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX)) {
            if self.page.next() >= self.query.end {
                break;
            }
            self.bytes += chunk.len();
            self.is_full =
                self.bytes > self.query.bytes_max || self.page.chunks.len() >= self.query.count_max;
            if self.is_full && !self.page.chunks.is_empty() {
                break;
            }
            self.page.chunks.push(chunk.clone());
        }
    }
}

/// Adds the further chunks of `query` to `begun`, as far as `pages` has them; the first of the
/// pages has the next chunk. Ends early when a page has moved to the database meanwhile.
pub(crate) fn read(
    medium: &dyn Medium,
    pages: &[(u64, PayloadLocation)],
    query: &Query,
    begun: ChunkPage,
) -> io::Result<ChunkPage> {
    let bytes = begun.chunks.iter().map(Chunk::len).sum();
    let mut answer = Answer { query, page: begun, bytes, is_full: false };
    for (first, location) in pages {
        if answer.next_needed().is_none_or(|next| next < *first) {
            break;
        }
        let Some(bytes) = medium.read(*location)? else { break };
        let page = Page::decode(*first, bytes);
        answer.take(&page.ok_or_else(|| damaged("a page of chunks"))?);
    }
    Ok(answer.page)
}

/// Per chunk: length of the output, length of the metrics plus one (0 for none), part index, part
/// count (0 for a whole chunk and for a piece of a string), each as a 32-bit big-endian number;
/// then output and metrics.
pub(crate) fn encode(chunks: &[Chunk]) -> Bytes {
    let bytes = chunks.iter().map(|chunk| HEADER_BYTES + chunk.len()).sum();
    let mut page = BytesMut::with_capacity(bytes);
    for chunk in chunks {
        let metrics = chunk.metrics.as_ref().map_or(&[][..], |metrics| metrics.as_bytes());
        let part = chunk.part.unwrap_or(Part { index: 0, count: 0 });
        page.put_u32(length(chunk.output.len()));
        page.put_u32(chunk.metrics.as_ref().map_or(0, |metrics| length(metrics.len()) + 1));
        page.put_u32(part.index);
        page.put_u32(part.count);
        page.put_slice(chunk.output.as_bytes());
        page.put_slice(metrics);
    }
    page.freeze()
}

fn length(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("a chunk has at most 1 MiB")
}

/// Decodes a page; the chunks share its bytes. `None` when the page is damaged.
pub(crate) fn decode(mut page: Bytes) -> Option<Arc<[Chunk]>> {
    let mut chunks = Vec::new();
    while page.has_remaining() {
        if page.len() < HEADER_BYTES {
            return None;
        }
        let output = page.get_u32() as usize;
        let metrics = (page.get_u32() as usize).checked_sub(1);
        let (index, count) = (page.get_u32(), page.get_u32());
        if page.len() < output.saturating_add(metrics.unwrap_or(0)) {
            return None;
        }
        chunks.push(Chunk {
            output: Json::from_stored(page.split_to(output)),
            metrics: metrics.map(|bytes| Json::from_stored(page.split_to(bytes))),
            part: Part::of_numbers(index, count),
        });
    }
    Some(chunks.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &str) -> Chunk {
        Chunk { output: Json::parse(text.to_owned()).unwrap(), metrics: None, part: None }
    }

    #[test]
    fn pages_survive_their_encoding() {
        let chunks = [
            chunk("1"),
            Chunk { metrics: Some(Json::parse("{}").unwrap()), ..chunk("[2]") },
            Chunk { part: Some(Part { index: 1, count: 2 }), ..chunk("\"x\"") },
            Chunk { part: Some(Part { index: 1, count: 0 }), ..chunk("\"y\"") },
        ];
        let page = encode(&chunks);
        assert_eq!(*decode(page.clone()).unwrap(), chunks);
        for cut in 1..page.len() {
            // A cut between two chunks leaves complete chunks; any other cut is detected.
            let rest = decode(page.slice(..cut));
            assert!(rest.is_none_or(|rest| chunks.starts_with(&rest)), "{cut}");
        }
    }
}
