//! The bytes that the jobs of an endpoint occupy on disk, and their bound.
//!
//! **Invariant.** The weight of an endpoint is the sum of the weights of its jobs' decided states.
//! It changes where a job's state changes (`decide.rs`), and where a job is added or removed.
//! **Costs.** Two additions for each decision.

use gristmill_core::job::JobStatus;

use crate::entry::Job;

/// Bytes on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    /// Inputs of waiting jobs.
    pub(crate) waiting: u64,
    /// Outputs, chunks and long errors, and the inputs of jobs that have ended and can be retried.
    pub(crate) kept: u64,
}

/// The bounds of one endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndpointMax {
    /// Most waiting jobs.
    pub(crate) jobs: usize,
    pub(crate) weight: Weight,
}

impl Weight {
    /// The weight of a job's decided state.
    pub(crate) fn of(job: &Job) -> Self {
        let (input, results) = (u64::from(job.input_bytes), job.row.result_bytes());
        match job.row.status {
            None => Self::default(),
            Some(JobStatus::InQueue) => Self { waiting: input, kept: results },
            Some(JobStatus::InProgress | JobStatus::Completed | JobStatus::Cancelled) => {
                Self { waiting: 0, kept: results }
            }
            Some(JobStatus::Failed | JobStatus::TimedOut) => {
                Self { waiting: 0, kept: results + input }
            }
        }
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.waiting += more.waiting;
        self.kept += more.kept;
    }

    pub(crate) fn remove(&mut self, less: Self) {
        debug_assert!(less.waiting <= self.waiting && less.kept <= self.kept, "it was added");
        self.waiting = self.waiting.saturating_sub(less.waiting);
        self.kept = self.kept.saturating_sub(less.kept);
    }
}
