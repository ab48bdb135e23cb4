//! The scheduler, as its callers see it.

use std::sync::Arc;

use async_trait::async_trait;

use crate::id::{EndpointId, JobId, ScheduleId};
use crate::job::note::ScheduleNumber;
use crate::jobs::operations::SubmitError;
use crate::schedule::record::Schedule;
use crate::schedule::state::ScheduleState;
use crate::store_error::StoreError;

/// The scheduler, as the management API sees it.
#[async_trait]
pub trait Scheduling: Send + Sync + std::fmt::Debug {
    /// What the schedule has decided, as it is on stable storage.
    fn state(&self, schedule: ScheduleNumber) -> Arc<ScheduleState>;

    /// Submits a job of the schedule now.
    ///
    /// # Errors
    /// [`RunNowError`]; then nothing was submitted.
    async fn run_now(&self, schedule: &Schedule) -> Result<JobId, RunNowError>;

    /// Leaves out the times that are due and have no jobs yet, before a change of the schedule that
    /// makes it begin anew. They are noted on stable storage, with this reason.
    ///
    /// # Errors
    /// When the store refuses the note; then the times stay due.
    async fn settle(&self, schedule: &Schedule, reason: &str) -> Result<(), StoreError>;

    /// The catalog has other schedules, or other settings of them.
    fn changed(&self);
}

/// Why no job was submitted.
#[derive(Debug, thiserror::Error)]
pub enum RunNowError {
    /// An earlier job of the schedule has not ended, and its `overlap` does not cancel it.
    #[error(
        "job `{0}` of this schedule has not ended; wait for it, cancel it, or set `overlap` to `cancel`"
    )]
    Open(JobId),
    /// The schedule was deleted meanwhile.
    #[error("schedule `{0}` was deleted meanwhile")]
    Deleted(ScheduleId),
    /// The endpoint does not exist.
    #[error("endpoint `{0}` of the schedule does not exist; change `endpointId`")]
    NoEndpoint(EndpointId),
    /// The submission was refused.
    #[error(transparent)]
    Refused(#[from] SubmitError),
}
