//! A scheduler without schedules.

use async_trait::async_trait;
use gristmill_core::id::JobId;
use gristmill_core::job::note::ScheduleNumber;
use gristmill_core::jobs::scheduling::{RunNowError, Scheduling};
use gristmill_core::schedule::record::Schedule;
use gristmill_core::schedule::state::ScheduleState;

/// Decides nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSchedules;

#[async_trait]
impl Scheduling for NoSchedules {
    fn state(&self, _: ScheduleNumber) -> ScheduleState {
        ScheduleState::default()
    }

    async fn run_now(&self, schedule: &Schedule) -> Result<JobId, RunNowError> {
        Err(RunNowError::NoEndpoint(schedule.endpoint.clone()))
    }

    fn changed(&self) {}
}
