//! Searches for jobs, page by page.
//!
//! **Bounds.** A page takes at most [`VISITS_MAX`] looks at memory of a thousand jobs each, and
//! [`QUESTIONS_MAX`] at the tables; then it ends, with the position at which the next page begins.
//! **Cost.** Some milliseconds.

use std::ops::ControlFlow;
use std::sync::Arc;

use gristmill_core::job::filter::JobSearch;
use gristmill_core::job::listing::{JobPage, Positions};
use gristmill_core::job::record::JobRecord;
use gristmill_core::store::StoreError;

use super::Store;
use crate::failure;
use crate::format::payload::Kind;
use crate::shared::damaged;
use crate::state::hit::Hit;
use crate::state::requests::DbRequest;
use crate::state::search::Searching;

const VISITS_MAX: usize = 20;

/// As many as the longest page of jobs in the tables alone takes.
const QUESTIONS_MAX: usize = 4;

impl Store {
    /// A page of the jobs of a search.
    pub(super) async fn searched(&self, search: &JobSearch) -> Result<JobPage, StoreError> {
        let seal = &self.shared.seal;
        let mut next = Some(match search.after {
            Some(after) => seal.reveal(after).ok_or(StoreError::UnknownCursor)?,
            None => u64::MAX,
        });
        let search = Arc::new(search.clone());
        let (mut found, mut questions) = (Vec::new(), 0);
        for _ in 0..VISITS_MAX {
            let Some(before) = next else { break };
            let in_memory = self.shared.read(|index, now| {
                let down_to = index.archived_below(&search);
                let part = Searching { search: &search, before, rows: Vec::new(), down_to };
                (before > down_to).then(|| index.search(&part, &mut found, now))
            })?;
            let searched = match in_memory {
                Some(searched) => searched,
                None if questions == QUESTIONS_MAX => break,
                None => {
                    questions += 1;
                    let (search, so_far) = (search.clone(), std::mem::take(&mut found));
                    let more = |answer| DbRequest::Search { search, before, found: so_far, answer };
                    let (more, searched) = self.shared.ask(more).await?;
                    found = more;
                    searched
                }
            };
            match searched {
                ControlFlow::Break(location) => {
                    next = location;
                    break;
                }
                ControlFlow::Continue(location) => next = Some(location),
            }
            tokio::task::yield_now().await;
        }
        let (numbers, mut jobs) = self.with_whole_errors(&search, found).await?;
        jobs.iter_mut().filter_map(|job| job.error.as_mut()).for_each(failure::show_cut);
        let positions = Positions::new(numbers, Some(seal.cursor_key()));
        Ok(JobPage { jobs, positions, next: next.map(|location| seal.hide(location)) })
    }

    /// The numbers of the jobs that match, and these jobs, once the errors are read that memory and
    /// rows have only the beginning of.
    async fn with_whole_errors(
        &self,
        search: &JobSearch,
        found: Vec<Hit>,
    ) -> Result<(Vec<u64>, Vec<JobRecord>), StoreError> {
        let Some(part) = search.filter.error.as_deref() else {
            return Ok(found.into_iter().map(|hit| (hit.seq, hit.record)).unzip());
        };
        let unread = found.iter().filter_map(|hit| hit.unread_error);
        let in_tables: Vec<_> =
            unread.filter(|(_, at)| at.is_none()).map(|(key, _)| key.seq()).collect();
        let mut read = match in_tables.is_empty() {
            true => Vec::new(),
            false => self.read_payloads(in_tables, Kind::Output).await?,
        }
        .into_iter();
        let mut jobs = Vec::with_capacity(found.len());
        for Hit { seq, record, unread_error } in found {
            let stored = match unread_error {
                None => {
                    jobs.push((seq, record));
                    continue;
                }
                Some((_, None)) => match read.next() {
                    Some(Ok(payload)) => payload.map(|payload| payload.body),
                    Some(Err(details)) => {
                        damaged(details);
                        None
                    }
                    None => None,
                },
                Some((key, location)) => self.read_body(key, location).await?,
            };
            let whole = record.error.as_deref().zip(stored.as_ref());
            let whole = whole.and_then(|(cut, stored)| failure::whole(cut, stored));
            if whole.is_some_and(|whole| whole.contains(part)) {
                jobs.push((seq, record));
            }
        }
        Ok(jobs.into_iter().unzip())
    }
}
