//! Lists of an endpoint's jobs, page by page.

use crate::job::JobStatus;
use crate::record::JobRecord;

/// A query for jobs, newest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobQuery {
    /// Only those with this status.
    pub status: Option<JobStatus>,
    /// Only jobs after this position of an earlier page.
    pub after: Option<Cursor>,
    /// At most this many.
    pub count_max: usize,
}

/// A position in the list. Valid only for the store that returned it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(pub u64);

/// Some jobs of an endpoint, newest first.
#[derive(Debug, Clone, Default)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobRecord>,
    /// The position of the next page. It may exist even when this page is short, since a store
    /// examines a bounded number of jobs for each page.
    pub next: Option<Cursor>,
}
