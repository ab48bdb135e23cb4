//! The bytes that the jobs of an endpoint occupy on disk, and their bound.
//!
//! **Invariant.** The weight of an endpoint is the sum of the weights of its jobs' decided states.
//! It changes where a job's state changes (`decide.rs`), and where a job is added or removed.
//! **Costs.** Two additions for each decision.

use gristmill_core::job::JobStatus;
use gristmill_core::record::queue_limit;
use gristmill_core::store::StoreError;

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

impl EndpointMax {
    /// The same for an endpoint with this bound of jobs of its own.
    pub(crate) fn of(self, waiting_jobs_max: Option<u32>) -> Self {
        Self { jobs: queue_limit(waiting_jobs_max, self.jobs), ..self }
    }

    /// Whether one more job may wait on an endpoint where `waiting` jobs wait already, and whose
    /// other jobs have this weight.
    ///
    /// # Errors
    /// The refusal that names the bound.
    pub(crate) fn check(
        self,
        waiting: usize,
        others: Weight,
        input_bytes: u32,
    ) -> Result<(), StoreError> {
        if waiting >= self.jobs {
            return Err(StoreError::QueueFull { limit: self.jobs });
        }
        let Weight { waiting: waiting_max, kept: kept_max } = self.weight;
        if others.waiting + u64::from(input_bytes) > waiting_max {
            return Err(StoreError::WaitingBytesFull { limit_mib: waiting_max >> 20 });
        }
        if others.kept >= kept_max {
            return Err(StoreError::ResultBytesFull { limit_mib: kept_max >> 20 });
        }
        Ok(())
    }
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
