//! The bytes that the jobs of an endpoint and of an owner occupy on disk, and their bounds.
//!
//! **Invariant.** The disk usage of an endpoint is the sum over its jobs' decided states, and the
//! account of an owner contains the disk usage of the owner's jobs. Both are updated where a job's
//! state changes (`decide.rs`), and where a job is added or removed. The account also contains the
//! bodies of the owner's pending webhooks, from the end of the job to the end of the delivery.
//! **Costs.** Four additions for each decision.

use gristmill_core::job::record::queue_limit;
use gristmill_core::job::state::JobStatus;
use gristmill_core::sharing::disk_share::{DiskAccount, DiskCharge};
use gristmill_core::store::StoreFull;
use gristmill_core::webhook::delivery::NotSent;

use crate::state::job::Job;

/// Approximate bytes of a job on disk besides its payloads.
const JOB_BYTES: u64 = 256;

/// Webhooks of up to this many bytes are sent even beyond the owner's share, as short results are
/// kept: the submission of their jobs was within the share.
const SHORT_WEBHOOK_BYTES: u64 = 2 << 10;

/// Bytes on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskUsage {
    /// Inputs of waiting jobs.
    pub(crate) waiting: u64,
    /// Outputs, chunks, long errors and tags, and the inputs of jobs that have ended and can be
    /// retried.
    pub(crate) kept: u64,
    /// Everything else of the jobs.
    rows: u64,
    /// The part of `kept` of jobs that have ended, and the number of these jobs.
    pub(crate) ended: EndedJobs,
}

/// The jobs that have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EndedJobs {
    pub(crate) jobs: u64,
    pub(crate) bytes: u64,
}

/// The bounds of one endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndpointMax {
    /// Most waiting jobs.
    pub(crate) jobs: usize,
    /// Most bytes of waiting inputs.
    pub(crate) waiting_bytes: u64,
    /// Most bytes of kept results.
    pub(crate) kept_bytes: u64,
}

/// Why an endpoint may keep no more results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResultsFull {
    /// The endpoint is at its bound.
    #[error(
        "the results of this endpoint would take more than {mib} MiB, the most that it may keep; \
         results are deleted when their retention is over"
    )]
    Endpoint { mib: u64 },
    /// The owner is at its share of the disk.
    #[error(
        "the jobs, results, waiting webhooks, files and handlers of this job's owner take {held_mib} MiB \
         of the host's disk, and this result would exceed the owner's share of it; results are deleted \
         when their retention is over"
    )]
    Owner { held_mib: u64 },
}

impl EndpointMax {
    /// The same for an endpoint with this bound of jobs of its own.
    pub(crate) fn of(self, waiting_jobs_max: Option<u32>) -> Self {
        Self { jobs: queue_limit(waiting_jobs_max, self.jobs), ..self }
    }

    /// Whether one more job may wait on an endpoint where `waiting` jobs wait already, and whose
    /// other jobs have this disk usage.
    ///
    /// # Errors
    /// The refusal that names the bound.
    pub(crate) fn check(
        self,
        waiting: usize,
        others: DiskUsage,
        input_bytes: u32,
    ) -> Result<(), StoreFull> {
        if waiting >= self.jobs {
            return Err(StoreFull::Queue { limit: self.jobs });
        }
        if others.waiting + u64::from(input_bytes) > self.waiting_bytes {
            return Err(StoreFull::WaitingBytes { limit_mib: self.waiting_bytes >> 20 });
        }
        if others.kept >= self.kept_bytes {
            return Err(StoreFull::ResultBytes { limit_mib: self.kept_bytes >> 20 });
        }
        Ok(())
    }
}

/// Refuses a new job with an input of this size when its owner is at its share of the disk.
///
/// # Errors
/// [`StoreFull::OwnerDisk`].
pub(crate) fn check_owner(account: &DiskAccount, input_bytes: u32) -> Result<(), StoreFull> {
    if account.admits_work(JOB_BYTES + u64::from(input_bytes)) {
        return Ok(());
    }
    Err(StoreFull::OwnerDisk { held_mib: account.bytes() >> 20 })
}

/// Counts the body of a webhook in the account of its owner, until the delivery ends.
///
/// # Errors
/// [`NotSent::OwnerDiskFull`] when the owner's share has no room for it.
pub(crate) fn webhook_charge(account: &DiskAccount, bytes: u64) -> Result<DiskCharge, NotSent> {
    if bytes > SHORT_WEBHOOK_BYTES && !account.admits_results(bytes) {
        let (kib, held_mib) = (bytes.div_ceil(1 << 10), account.bytes() >> 20);
        return Err(NotSent::OwnerDiskFull { kib, held_mib });
    }
    Ok(account.charge(bytes))
}

impl DiskUsage {
    /// The disk usage of a job's decided state.
    pub(crate) fn of(job: &Job) -> Self {
        let input = u64::from(job.input_bytes);
        let tags = job.tags.as_ref().map_or(0, |tags| tags.as_str().len() as u64);
        // The tags count like results, which archived jobs have as well.
        let results = job.row.result_bytes() + tags;
        let (rows, not_ended) = (JOB_BYTES, EndedJobs::default());
        match job.row.status {
            None => Self::default(),
            Some(JobStatus::InQueue) => {
                Self { waiting: input, kept: results, rows, ended: not_ended }
            }
            Some(JobStatus::InProgress) => {
                Self { waiting: 0, kept: results, rows, ended: not_ended }
            }
            Some(JobStatus::Completed | JobStatus::Cancelled) => Self::of_ended(1, results),
            Some(JobStatus::Failed | JobStatus::TimedOut) => Self::of_ended(1, results + input),
        }
    }

    /// The disk usage of so many ended jobs, which keep so many bytes.
    pub(crate) fn of_ended(jobs: u64, kept: u64) -> Self {
        Self { waiting: 0, kept, rows: jobs * JOB_BYTES, ended: EndedJobs { jobs, bytes: kept } }
    }

    /// All bytes.
    pub(crate) fn bytes(self) -> u64 {
        self.waiting + self.kept + self.rows
    }

    /// Adds the result of a job that has ended already.
    pub(crate) fn add_result_of_ended(&mut self, bytes: u64) {
        self.kept += bytes;
        self.ended.bytes += bytes;
    }

    pub(crate) fn add(&mut self, more: Self) {
        self.waiting += more.waiting;
        self.kept += more.kept;
        self.rows += more.rows;
        self.ended.jobs += more.ended.jobs;
        self.ended.bytes += more.ended.bytes;
    }

    pub(crate) fn remove(&mut self, less: Self) {
        debug_assert!(less.waiting <= self.waiting && less.kept <= self.kept, "it was added");
        self.waiting = self.waiting.saturating_sub(less.waiting);
        self.kept = self.kept.saturating_sub(less.kept);
        self.rows = self.rows.saturating_sub(less.rows);
        self.ended.jobs = self.ended.jobs.saturating_sub(less.ended.jobs);
        self.ended.bytes = self.ended.bytes.saturating_sub(less.ended.bytes);
    }
}
