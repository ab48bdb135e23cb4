//! Lists of an endpoint's jobs, page by page.

use crate::job::JobStatus;
use crate::record::JobRecord;

/// Which jobs, newest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobQuery {
    /// Only those with this status.
    pub status: Option<JobStatus>,
    /// Only those after this place of an earlier page.
    pub after: Option<Cursor>,
    /// At most so many.
    pub count_max: usize,
}

/// A place in the list. Means nothing outside the store that gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor(pub u64);

/// Some jobs of an endpoint, newest first.
#[derive(Debug, Clone, Default)]
pub struct JobPage {
    /// The jobs.
    pub jobs: Vec<JobRecord>,
    /// Where the next page begins. There may be one even when this page is short: a store looks
    /// at a bounded number of jobs for each page.
    pub next: Option<Cursor>,
}
