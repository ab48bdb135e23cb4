//! Searches that need the rows of archived jobs.
//!
//! **Bounds.** One question reads at most [`ROWS_MAX`] rows: some 3 ms.

use gristmill_core::job::filter::JobSearch;

use crate::checkpoint::archive::{content, read_row};
use crate::checkpoint::database::Database;
use crate::error::Failure;
use crate::shared::damaged;
use crate::state::hit::{Hit, SearchedPage};
use crate::state::search::Searching;
use crate::tables::{archived, search as tables};

/// Most archived jobs that one question reads.
const ROWS_MAX: usize = 256;

impl Database {
    /// Continues a search that has `found` already with the jobs before a number.
    pub(crate) fn search(
        &self,
        search: &JobSearch,
        before: u64,
        mut found: Vec<Hit>,
    ) -> Result<SearchedPage, Failure> {
        let keys = self.shared.index().keys_with_archived(search);
        // One more than the page has room for, which shows where the next page begins.
        let count_max = (search.count_max.saturating_sub(found.len()) + 1).min(ROWS_MAX);
        let db = self.db.connection();
        let (numbers, down_to) = tables::propose(db, &keys, &search.filter, before, count_max)?;
        let mut rows = Vec::with_capacity(numbers.len());
        for seq in numbers.into_iter().filter(|seq| !self.has_stale_mark(*seq)) {
            match content(archived::find_row(db, seq, read_row))? {
                Ok(row) => rows.extend(row),
                // The other jobs can be listed.
                Err(details) => drop(damaged(details)),
            }
        }
        let part = Searching { search, before, rows, down_to };
        let next = self.shared.index().search(&part, &mut found, self.shared.clock.now());
        Ok((found, next))
    }
}
