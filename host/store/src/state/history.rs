//! Deletions of ended jobs whose retention is not over: jobs beyond the bounds of an endpoint's
//! history, and jobs that a client deletes.
//!
//! **Bounds.** A slice of a history examines a thousand jobs under one hold of the lock: 50 µs, and
//! some more for the jobs that it deletes.

use gristmill_core::id::{EndpointId, JobId};
use gristmill_core::job::retention::{HistoryExcess, HistoryMax};
use gristmill_core::job::state::{JobEvent, JobStatus};
use gristmill_core::time::Timestamp;

use crate::state::backlog::Ack;
use crate::state::disk_usage::DiskUsage;
use crate::state::index::Index;

/// Jobs that one slice examines.
const SLICE: usize = 1_000;

/// The result of one slice.
#[derive(Debug, Default)]
pub(crate) struct TrimmedSlice {
    /// Number of jobs that were deleted. If it is not 0, the slice's `ack` resolves when the
    /// deletions are on disk.
    pub(crate) deleted: usize,
    /// The number of the job at which the next slice begins; `None` after the last job.
    pub(crate) next: Option<u64>,
}

impl Index {
    /// What exceeds the bounds of an endpoint's history, and whether some of its jobs are archived.
    pub(crate) fn history_excess(
        &self,
        endpoint: &EndpointId,
        max: HistoryMax,
    ) -> Option<(HistoryExcess, bool)> {
        let (_, endpoint) = self.endpoint(endpoint)?;
        let ended = endpoint.disk_usage.ended;
        Some((max.excess(ended.jobs, ended.bytes)?, endpoint.archived > 0))
    }

    /// Deletes those of the jobs in memory that have ended, and returns their number. `ids` keeps
    /// the jobs that memory does not have.
    pub(crate) fn delete_ended(
        &mut self,
        endpoint: &EndpointId,
        ids: &mut Vec<JobId>,
        now: Timestamp,
    ) -> u64 {
        let mut deleted = 0;
        ids.retain(|id| {
            let ended = self.find_of(endpoint, *id, now);
            let ended = ended.filter(|(_, job)| job.row.status.is_some_and(JobStatus::is_final));
            if let Some(key) = ended.map(|(key, _)| key) {
                let is_deleted = self.decide(key, JobEvent::RetentionElapsed, now).is_ok();
                deleted += u64::from(is_deleted);
            }
            !self.has(*id)
        });
        deleted
    }

    /// Deletes ended jobs in memory of one slice of the history, which begins with the number
    /// `from`, until nothing exceeds the bounds.
    pub(crate) fn trim_slice(
        &mut self,
        endpoint: &EndpointId,
        excess: &mut HistoryExcess,
        from: u64,
        now: Timestamp,
        ack: Ack,
    ) -> TrimmedSlice {
        let mut trimmed = TrimmedSlice::default();
        let Some((_, found)) = self.endpoint(endpoint) else { return trimmed };
        let slice: Vec<_> = found.history.since(from).take(SLICE).collect();
        if let [.., (last, _)] = *slice
            && slice.len() == SLICE
        {
            trimmed.next = Some(last + 1);
        }
        for (_, key) in slice {
            if excess.is_none() {
                trimmed.next = None;
                break;
            }
            let Some(job) = self.jobs.get(key) else { continue };
            let ended_at = job.row.attempt.as_ref().and_then(|attempt| attempt.finished_at);
            if HistoryMax::spares(ended_at, now) || !job.row.status.is_some_and(JobStatus::is_final)
            {
                continue;
            }
            let bytes = DiskUsage::of(job).ended.bytes;
            if self.decide(key, JobEvent::RetentionElapsed, now).is_ok() {
                excess.delete_job(bytes);
                trimmed.deleted += 1;
            }
        }
        if trimmed.deleted > 0 {
            self.ack_all(ack);
        }
        trimmed
    }
}
