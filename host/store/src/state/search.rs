//! Searches for jobs of several endpoints, newest first: the jobs of memory merged with archived
//! rows.
//!
//! **Bounds.** A call examines a bounded number of jobs under one hold of the lock.

use std::collections::{BinaryHeap, HashMap};
use std::ops::ControlFlow;

use gristmill_core::id::EndpointId;
use gristmill_core::job::filter::{ErrorText, JobCandidate, JobSearch, Match};
use gristmill_core::time::Timestamp;
use rustc_hash::FxBuildHasher;

use crate::failure;
use crate::format::EndpointKey;
use crate::state::found_row::FoundRow;
use crate::state::hit::Hit;
use crate::state::index::Index;
use crate::state::job::{Job, JobRow};

/// Most jobs that a search examines under one hold of the lock: 100 µs.
const VISITS_MAX: usize = 1_000;

/// The endpoints of a search that exist, by number.
pub(crate) type Keys<'a> = HashMap<EndpointKey, &'a EndpointId, FxBuildHasher>;

/// A part of a search.
#[derive(Debug)]
pub(crate) struct Searching<'a> {
    pub(crate) search: &'a JobSearch,
    /// All jobs have numbers less than this one.
    pub(crate) before: u64,
    /// The archived jobs from `before` on that may match, the newest first.
    pub(crate) rows: Vec<FoundRow>,
    /// No archived job matches from `before` on down to this number, except `rows`.
    pub(crate) down_to: u64,
}

impl Index {
    /// The endpoints of a search that exist.
    pub(crate) fn keys_of<'a>(&self, search: &'a JobSearch) -> Keys<'a> {
        search.endpoints.iter().filter_map(|name| Some((*self.names.get(name)?, name))).collect()
    }

    /// Those of them that have archived jobs.
    pub(crate) fn keys_with_archived<'a>(&self, search: &'a JobSearch) -> Keys<'a> {
        let mut keys = self.keys_of(search);
        keys.retain(|key, _| self.endpoints.get(key).is_some_and(|found| found.archived > 0));
        keys
    }

    /// The archived jobs of all endpoints of a search have numbers less than this one; 0 without
    /// archived jobs.
    pub(crate) fn archived_below(&self, search: &JobSearch) -> u64 {
        let found = search.endpoints.iter().filter_map(|name| self.endpoint(name));
        let archived = found.map(|(_, endpoint)| endpoint).filter(|found| found.archived > 0);
        archived.map(|endpoint| endpoint.archived_below).max().unwrap_or(0)
    }

    /// Adds matching jobs of memory and of the rows to `found`, the newest first.
    pub(crate) fn search(
        &self,
        part: &Searching<'_>,
        found: &mut Vec<Hit>,
        now: Timestamp,
    ) -> ControlFlow<Option<u64>, u64> {
        let Searching { search, before, rows, down_to } = part;
        let keys = self.keys_of(search);
        // An endpoint may have been created again since the rows were read.
        let is_known = |job: &&Job| keys.contains_key(&job.endpoint);
        let mut rows = rows.iter().map(|row| &row.job).filter(is_known).peekable();
        let endpoints = keys.keys().filter_map(|key| self.endpoints.get(key));
        let mut histories: Vec<_> =
            endpoints.map(|endpoint| endpoint.history.below(*before).rev()).collect();
        let mut heads = BinaryHeap::with_capacity(histories.len());
        for (index, history) in histories.iter_mut().enumerate() {
            heads.extend(history.next().map(|(seq, key)| (seq, key, index)));
        }
        let mut last = *before;
        for visits in 0.. {
            let in_memory = heads.peek().map(|(seq, ..)| *seq).filter(|seq| seq >= down_to);
            let in_tables = rows.peek().map(|job| job.seq);
            let Some(seq) = in_memory.max(in_tables) else { break };
            if found.len() >= search.count_max {
                return ControlFlow::Break(Some(last));
            }
            if visits == VISITS_MAX {
                return ControlFlow::Continue(last);
            }
            last = seq;
            let row = rows.next_if(|job| job.seq == seq);
            // A job that has changed while it was archived is in both.
            let mut job = None;
            if in_memory == Some(seq)
                && let Some((_, key, index)) = heads.pop()
            {
                job = self.jobs.get(key);
                let next = histories.get_mut(index).and_then(Iterator::next);
                heads.extend(next.map(|(seq, key)| (seq, key, index)));
            }
            if let Some(job) = job.or(row)
                && let Some(name) = keys.get(&job.endpoint)
            {
                found.extend(hit(job, name, search, now));
            }
        }
        match down_to {
            0 => ControlFlow::Break(None),
            _ if found.len() >= search.count_max => ControlFlow::Break(Some(*down_to)),
            _ => ControlFlow::Continue(*down_to),
        }
    }
}

/// The job, if clients can see it and it matches, or may match.
fn hit(job: &Job, name: &EndpointId, search: &JobSearch, now: Timestamp) -> Option<Hit> {
    let row = job.visible_at(now)?;
    let candidate = JobCandidate {
        id: job.id,
        status: row.status?,
        created_at: job.created_at,
        tags: job.tags.as_ref(),
        error: error_text(row),
    };
    let unread_error = match search.filter.matches(&candidate) {
        Match::No => return None,
        Match::Yes => None,
        Match::IfErrorHasText => Some((job.output_key(row), job.payload_locations.output())),
    };
    let record = job.record_of(row, name)?;
    Some(Hit { seq: job.seq, record, unread_error })
}

fn error_text(row: &JobRow) -> ErrorText<'_> {
    let error = row.attempt.as_ref().and_then(|attempt| attempt.error.as_deref());
    match error {
        None => ErrorText::None,
        Some(text) => match failure::beginning(text) {
            Some(beginning) => ErrorText::Beginning(beginning),
            None => ErrorText::Whole(text),
        },
    }
}
