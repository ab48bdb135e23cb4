//! The payloads and pages of chunks that were written or read last.
//!
//! **Bounds.** A number of bytes for each of the two. **Cost.** A miss costs a system call for a
//! payload in the journal, or else a wait for the database.

use gristmill_core::job::record::{Chunk, ChunkPage};
use gristmill_core::job::state::Claim;
use quick_cache::Weighter;
use quick_cache::sync::Cache;

use crate::format::pages::{Answer, Page, Query};
use crate::format::payload::{Payload, PayloadKey};

/// The payloads that were written or read last, up to a number of bytes.
pub(crate) struct PayloadCache(Cache<PayloadKey, Payload, PayloadSize>);

#[derive(Debug, Clone)]
struct PayloadSize;

impl Weighter<PayloadKey, Payload> for PayloadSize {
    fn weight(&self, _: &PayloadKey, payload: &Payload) -> u64 {
        const ENTRY: usize = 128;
        (ENTRY + payload.len()) as u64
    }
}

impl std::fmt::Debug for PayloadCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PayloadCache").field("bytes", &self.0.weight()).finish_non_exhaustive()
    }
}

impl PayloadCache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        const TYPICAL_BYTES: u64 = 1_024;
        let count = usize::try_from(bytes_max / TYPICAL_BYTES).unwrap_or(usize::MAX);
        Self(Cache::with_weighter(count, bytes_max, PayloadSize))
    }

    pub(crate) fn get(&self, key: PayloadKey) -> Option<Payload> {
        self.0.get(&key)
    }

    pub(crate) fn insert(&self, key: PayloadKey, payload: Payload) {
        self.0.insert(key, payload);
    }

    pub(crate) fn remove(&self, key: PayloadKey) {
        self.0.remove(&key);
    }
}

/// The key of a page: job, attempt, index of the first chunk. The attempt distinguishes the page
/// from pages of other attempts.
type PageKey = (u64, Claim, u64);

/// The pages that were written or read last, up to a number of bytes.
pub(crate) struct ChunkCache(Cache<PageKey, Page, PageSize>);

#[derive(Debug, Clone)]
struct PageSize;

impl Weighter<PageKey, Page> for PageSize {
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
        Self(Cache::with_weighter(count, bytes_max, PageSize))
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

#[cfg(test)]
mod tests {
    use gristmill_core::job::payload::Json;

    use super::*;
    use crate::format::pages::{PAGE_BYTES, paginate};

    fn chunk(text: &str) -> Chunk {
        Chunk { output: Json::parse(text.to_owned()).unwrap(), metrics: None, part: None }
    }

    #[test]
    fn answers_keep_their_bounds_across_pages() {
        let big = format!("\"{}\"", "x".repeat(PAGE_BYTES / 2));
        let chunks: Vec<_> = [&big, "1", &big, "2", "3"].iter().map(|text| chunk(text)).collect();
        let pages = paginate(10, chunks);
        assert_eq!(pages.iter().map(|page| page.first).collect::<Vec<_>>(), [10, 13]);
        // Each core has a part of it.
        let cache = ChunkCache::new(1 << 30);
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
