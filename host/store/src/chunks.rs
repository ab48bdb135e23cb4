//! Stream chunks, written in pages: a page has all chunks that a job emitted between two commits,
//! so a handler that emits single words costs one row per fsync and not one per word. The newest
//! pages stay in a cache, so a reader that follows a stream rarely reads the disk.

use std::io;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use gristmill_core::job::Claim;
use gristmill_core::payload::Json;
use gristmill_core::record::{Chunk, ChunkPage, Part};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use rusqlite::{Connection, params};

use crate::journal::segment::JournalLocation;
use crate::journal::{self, Journal, checksum};
use crate::payloads::is_whole;
use crate::row::integer;

/// Bytes after which a page is closed, so that reading one chunk does not read megabytes.
const PAGE_BYTES: usize = 256 << 10;

/// Bytes of a chunk's header in a page.
const HEADER_BYTES: usize = 16;

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

    fn next(&self) -> u64 {
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

/// The key of a page: job, attempt, index of the first chunk. The attempt distinguishes the page
/// from pages of other attempts.
type PageKey = (u64, Claim, u64);

/// The pages that were written or read last, up to a number of bytes.
pub(crate) struct ChunkCache(Cache<PageKey, Page, Size>);

#[derive(Debug, Clone)]
struct Size;

impl Weighter<PageKey, Page> for Size {
    fn weight(&self, _: &PageKey, page: &Page) -> u64 {
        const ENTRY: usize = 128;
        let chunks = page.chunks.iter().map(|chunk| size_of::<Chunk>() + chunk.len());
        (ENTRY + chunks.sum::<usize>()) as u64
    }
}

impl std::fmt::Debug for ChunkCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChunkCache").field("bytes", &self.0.weight()).finish_non_exhaustive()
    }
}

impl ChunkCache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        const TYPICAL_BYTES: u64 = 4_096;
        let count = usize::try_from(bytes_max / TYPICAL_BYTES).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(count, bytes_max, Size))
    }

    pub(crate) fn insert(&self, seq: u64, attempt: Claim, page: Page) {
        self.0.insert((seq, attempt, page.first), page);
    }

    /// The whole answer to `query`, unless a page of it is missing here. A reader that took all
    /// visible chunks continues at the start of a page.
    pub(crate) fn read(&self, seq: u64, query: &Query) -> Option<ChunkPage> {
        let mut answer = Answer::new(query);
        while let Some(from) = answer.next_needed() {
            let page = self.0.get(&(seq, query.attempt, from))?;
            answer.take(&page);
        }
        Some(answer.page)
    }
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
struct Answer<'a> {
    query: &'a Query,
    page: ChunkPage,
    bytes: usize,
    is_full: bool,
}

impl<'a> Answer<'a> {
    fn new(query: &'a Query) -> Self {
        let page = ChunkPage { attempt: query.attempt, first: query.from, chunks: Vec::new() };
        Self { query, page, bytes: 0, is_full: false }
    }

    /// The index of the next chunk; `None` when the answer is complete.
    fn next_needed(&self) -> Option<u64> {
        let next = self.page.next();
        (!self.is_full && next < self.query.end).then_some(next)
    }

    fn take(&mut self, page: &Page) {
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
    journal: &Journal,
    pages: &[(u64, JournalLocation)],
    query: &Query,
    begun: ChunkPage,
) -> io::Result<ChunkPage> {
    let bytes = begun.chunks.iter().map(Chunk::len).sum();
    let mut answer = Answer { query, page: begun, bytes, is_full: false };
    for (first, location) in pages {
        if answer.next_needed().is_none_or(|next| next < *first) {
            break;
        }
        let Some(bytes) = journal.read(*location)? else { break };
        let page = Page::decode(*first, bytes);
        answer.take(&page.ok_or_else(|| journal::damaged("a page of chunks"))?);
    }
    Ok(answer.page)
}

/// Writes a page to its table, in the bytes of the journal.
pub(crate) fn put(db: &Connection, seq: u64, first: u64, bytes: &[u8]) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO chunk (seq, first, body, sum) VALUES (?1, ?2, ?3, ?4)";
    let sum = checksum::of(bytes);
    db.prepare_cached(sql)?.execute(params![integer(seq), integer(first), bytes, sum])?;
    Ok(())
}

/// Reads the chunks of `query`, as far as the table has them. The inner error means that a page is
/// damaged.
pub(crate) fn get(
    db: &Connection,
    seq: u64,
    query: &Query,
) -> rusqlite::Result<Result<ChunkPage, String>> {
    let mut answer = Answer::new(query);
    let mut statement = db.prepare_cached(
        "SELECT first, body, sum FROM chunk WHERE seq = ?1 AND first >= ifnull(
           (SELECT max(first) FROM chunk WHERE seq = ?1 AND first <= ?2), 0) ORDER BY first",
    )?;
    let mut rows = statement.query(params![integer(seq), integer(query.from)])?;
    while answer.next_needed().is_some()
        && let Some(row) = rows.next()?
    {
        let first = row.get::<_, i64>(0)?.unsigned_abs();
        let body: Vec<u8> = row.get(1)?;
        let body = if is_whole(&body, row.get(2)?) { decode(body.into()) } else { None };
        let Some(chunks) = body else {
            let details = format!("the stored chunks of row {seq} from {first} on are damaged");
            return Ok(Err(details));
        };
        answer.take(&Page { first, chunks });
    }
    Ok(Ok(answer.page))
}

/// Deletes all pages of the job.
pub(crate) fn delete(db: &Connection, seq: u64) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM chunk WHERE seq = ?1")?.execute(params![integer(seq)])?;
    Ok(())
}

/// Per chunk: length of the output, length of the metrics plus one (0 for none), part index,
/// part count (0 for a whole chunk), each as a 32-bit big-endian number; then output and metrics.
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
fn decode(mut page: Bytes) -> Option<Arc<[Chunk]>> {
    let mut chunks = Vec::new();
    while page.has_remaining() {
        if page.len() < HEADER_BYTES {
            return None;
        }
        let output = page.get_u32() as usize;
        let metrics = (page.get_u32() as usize).checked_sub(1);
        let part = Part { index: page.get_u32(), count: page.get_u32() };
        if page.len() < output.saturating_add(metrics.unwrap_or(0)) {
            return None;
        }
        chunks.push(Chunk {
            output: Json::from_stored(page.split_to(output)),
            metrics: metrics.map(|bytes| Json::from_stored(page.split_to(bytes))),
            part: (part.count > 0).then_some(part),
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
        ];
        let page = encode(&chunks);
        assert_eq!(*decode(page.clone()).unwrap(), chunks);
        for cut in 1..page.len() {
            // A cut between two chunks leaves complete chunks; any other cut is detected.
            let rest = decode(page.slice(..cut));
            assert!(rest.is_none_or(|rest| chunks.starts_with(&rest)), "{cut}");
        }
    }

    #[test]
    fn answers_keep_their_bounds_across_pages() {
        let big = format!("\"{}\"", "x".repeat(PAGE_BYTES / 2));
        let chunks: Vec<_> = [&big, "1", &big, "2", "3"].iter().map(|text| chunk(text)).collect();
        let pages = paginate(10, chunks);
        assert_eq!(pages.iter().map(|page| page.first).collect::<Vec<_>>(), [10, 13]);
        let cache = ChunkCache::new(8 << 20);
        for page in pages {
            cache.insert(1, Claim(1), page);
        }
        let read = |from, bytes_max, count_max| {
            let query = Query { attempt: Claim(1), from, end: 15, bytes_max, count_max };
            cache.read(1, &query).map(|page| page.chunks.len())
        };
        assert_eq!(read(10, usize::MAX, 9), Some(5));
        assert_eq!(read(10, usize::MAX, 4), Some(4));
        assert_eq!(read(10, 1, 9), Some(1), "one chunk is more than the bound, and still comes");
        assert_eq!(read(13, 1, 9), Some(1));
        assert_eq!(read(15, 1, 9), Some(0));
        assert_eq!(read(11, 1, 9), None, "the middle of a page is read from the disk");
    }
}
