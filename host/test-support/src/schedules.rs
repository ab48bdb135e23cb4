//! A scheduler without schedules.

use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::id::JobId;
use gristmill_core::job::note::ScheduleNumber;
use gristmill_core::jobs::scheduling::{RunNowError, Scheduling};
use gristmill_core::schedule::record::Schedule;
use gristmill_core::schedule::state::ScheduleState;
use gristmill_core::store::StoreError;

/// Decides nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSchedules;

#[async_trait]
impl Scheduling for NoSchedules {
    fn state(&self, _: ScheduleNumber) -> Arc<ScheduleState> {
        Arc::default()
    }

    async fn run_now(&self, schedule: &Schedule) -> Result<JobId, RunNowError> {
        Err(RunNowError::NoEndpoint(schedule.endpoint.clone()))
    }

    async fn settle(&self, _: &Schedule, _: &str) -> Result<(), StoreError> {
        Ok(())
    }

    fn changed(&self) {}
}
