//! An archived job, read from its row for a caller or for a change.

use gristmill_core::id::OwnerId;

use crate::format::archived::ArchivedJob;
use crate::state::disk_usage::DiskUsage;
use crate::state::job::Job;

/// An archived job as a row has it. The owner's number in the job belongs to no index.
#[derive(Debug)]
pub(crate) struct FoundRow {
    pub(crate) job: Job,
    pub(crate) owner: OwnerId,
}

impl FoundRow {
    /// The parts for the tables.
    pub(crate) fn archived(&self) -> ArchivedJob {
        archived(&self.job, self.owner.clone())
    }
}

/// The parts of a job for the tables.
pub(super) fn archived(job: &Job, owner: OwnerId) -> ArchivedJob {
    let kept = DiskUsage::of(job).kept;
    let purge_at = job.purge_at().as_millis();
    let (created_at, tags) = (job.created_at.as_millis(), job.tags.clone());
    let (seq, endpoint, delivered) = (job.seq, job.endpoint, job.chunks_delivered());
    ArchivedJob { seq, endpoint, owner, kept, created_at, tags, purge_at, delivered }
}
