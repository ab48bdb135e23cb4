//! Schedules: jobs that the host submits at certain times.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::bounds::{Bounds, SEVEN_DAYS_MS};
use crate::id::{EndpointId, OwnerId, ScheduleId};
use crate::policy::Policy;
#[cfg(feature = "openapi")]
use crate::schema;
use crate::settings::{InvalidField, settings};
use crate::whole_number;
use crate::words::words;

words! {
    /// What happens when a job of a schedule is due and an earlier one has not ended.
    #[derive(Default)]
    pub enum Overlap {
        /// The new one is left out.
        #[default]
        Skip = "skip",
        /// The new one is submitted when the earlier one has ended.
        Queue = "queue",
        /// The earlier one is cancelled.
        Cancel = "cancel",
    }
}

words! {
    /// What became of a time of a schedule.
    pub enum TickOutcome {
        /// A job.
        Job = "job",
        /// None, since an earlier one had not ended.
        Skipped = "skipped",
        /// None for another reason.
        Missed = "missed",
    }
}

settings! {
    /// What a schedule does with times at which the host did not run, or refused the job.
    #[derive(Copy)]
    pub struct CatchUp;

    /// What a schedule does with times that have passed; a field that is left out keeps its value.
    #[derive(Copy)]
    pub struct CatchUpInput {}

    numbers {
        /// Most times for which jobs are submitted if several have passed: the newest ones.
        max_ticks: u32, MAX_TICKS = Bounds { min: 1, default: 1, max: 1_000 };
        /// Milliseconds after a time within which its job may still be submitted.
        window_ms: u64, WINDOW_MS = Bounds { min: 1_000, default: 3_600_000, max: SEVEN_DAYS_MS };
    }
    optional {}
    values {}
    objects {}
}

impl CatchUp {
    /// Takes the fields that are given.
    ///
    /// # Errors
    /// For the first field with a value that it cannot have.
    pub fn changed(mut self, given: CatchUpInput) -> Result<Self, InvalidField> {
        self.take(given).map_err(|error| error.below("catchUp"))?;
        Ok(self)
    }
}

/// A schedule to create, or the fields of one to change.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ScheduleInput {
    /// Allowed only for a new schedule; a random id by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Id>))]
    pub id: Option<ScheduleId>,
    /// A display name; by default the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub name: Option<String>,
    /// The endpoint of its jobs, one of the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::EndpointId>))]
    pub endpoint_id: Option<EndpointId>,
    /// The times as five fields: minute, hour, day of the month, month, day of the week; or
    /// `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. In place of `everyMs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::CronPattern>))]
    pub cron: Option<String>,
    /// Milliseconds between two times, counted from the creation or the change. In place of
    /// `cron`.
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::EveryMs>))]
    pub every_ms: Option<u64>,
    /// The time zone of `cron`, such as `Europe/Berlin`; `UTC` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::TimeZone>))]
    pub time_zone: Option<String>,
    /// The input of its jobs, a JSON object; `{}` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub input: Option<Box<RawValue>>,
    /// The policy of its jobs, without `runAt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// What happens when a job is due and an earlier one has not ended; `skip` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Overlap>,
    /// What it does with times that have passed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub catch_up: Option<CatchUpInput>,
    /// Whether it submits no jobs for now. The times of a pause are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
}

#[cfg(feature = "openapi")]
schema::variant! {
    /// A schedule to create.
    NewSchedule = ScheduleInput, |object| schema::require(object, &["endpointId"])
}

/// The answer's form of a schedule.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// Its id. Its jobs have it as their tag `schedule`.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: ScheduleId,
    /// Its owner.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub user_id: OwnerId,
    /// A display name.
    pub name: String,
    /// The endpoint of its jobs.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::EndpointId))]
    pub endpoint_id: EndpointId,
    /// The pattern of its times. Absent: `everyMs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub cron: Option<String>,
    /// Milliseconds between two times. Absent: `cron`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub every_ms: Option<u64>,
    /// The time zone of `cron`. Absent: `everyMs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub time_zone: Option<String>,
    /// The input of its jobs.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub input: Box<RawValue>,
    /// The policy of its jobs.
    pub policy: Policy,
    /// What happens when a job is due and an earlier one has not ended.
    pub overlap: Overlap,
    /// What it does with times that have passed.
    pub catch_up: CatchUp,
    /// Whether it submits no jobs for now.
    pub paused: bool,
    /// When it was created.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub created_at: String,
    /// Its next ten times; none while it is paused.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<schema::Time>))]
    pub next: Vec<String>,
    /// How many of its times became jobs, since its creation.
    pub jobs: u64,
    /// How many were left out since an earlier job had not ended.
    pub skipped: u64,
    /// How many were left out for another reason.
    pub missed: u64,
    /// Its ten newest times, the newest first.
    pub ticks: Vec<Tick>,
}

/// What became of one time of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Tick {
    /// The time by the schedule; the job may have been submitted later.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub at: String,
    /// What became of it.
    pub outcome: TickOutcome,
    /// The endpoint of its job. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::EndpointId, nullable = false))]
    pub endpoint_id: Option<EndpointId>,
    /// Its job. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::JobId, nullable = false))]
    pub job_id: Option<String>,
    /// Why it has no job.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub reason: Option<String>,
}
