//! A schedule, as the catalog has it.

use serde::{Deserialize, Serialize};

pub use gristmill_wire::management::{CatchUp, Overlap};
use gristmill_wire::queue::{self as wire, Policy};

use super::{InvalidTicks, Ticks, TicksDefinition};
use crate::id::{EndpointId, OwnerId, ScheduleId};
use crate::job::note::ScheduleNumber;
use crate::job::policy::{PolicyRequest, Start};
use crate::job::retention::ChosenRetention;
use crate::job::tags::Turn;
use crate::limits::PRIORITY;
use crate::time::Timestamp;

/// Submits jobs at certain times.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Its id.
    pub id: ScheduleId,
    /// A display name.
    pub name: String,
    /// Its owner, and that of its jobs.
    pub owner: OwnerId,
    /// The endpoint of its jobs.
    pub endpoint: EndpointId,
    /// Its times.
    pub times: TicksDefinition,
    /// The input of its jobs, as JSON.
    pub input: String,
    /// The policy of its jobs.
    pub policy: Policy,
    /// What happens when a job is due and an earlier one has not ended.
    pub overlap: Overlap,
    /// What it does with times that have passed.
    pub catch_up: CatchUp,
    /// Whether it submits no jobs for now.
    pub paused: bool,
    /// Names its notes in the store.
    pub number: ScheduleNumber,
    /// Times up to this one are not its own: it was created, changed or resumed then.
    pub begins_at: Timestamp,
    /// When it was created.
    pub created_at: Timestamp,
}

impl Schedule {
    /// Its times.
    ///
    /// # Errors
    /// For a definition that no schedule can have; the catalog has none.
    pub fn ticks(&self) -> Result<Ticks, InvalidTicks> {
        self.times.resolve(self.begins_at)
    }

    /// What decides when its jobs have their turns.
    pub fn turn(&self) -> Turn<'_> {
        let priority = self.policy.priority.unwrap_or(PRIORITY.default).min(PRIORITY.max);
        Turn { key: self.policy.key.as_deref(), priority: priority as u8 }
    }

    /// The policy of its jobs. A `runAt` counts as absent.
    pub fn policy(&self) -> PolicyRequest {
        let Policy { execution_timeout, ttl, low_priority, delay, retry, retention, .. } =
            self.policy.clone();
        let wire::Retention { completed, failed, cancelled } = retention.unwrap_or_default();
        PolicyRequest {
            execution_timeout_ms: execution_timeout,
            ttl_ms: ttl,
            low_priority,
            start: delay.map_or(Start::Now, Start::After),
            retry,
            retention: ChosenRetention {
                completed_ms: completed,
                failed_ms: failed,
                cancelled_ms: cancelled,
            },
        }
    }
}
