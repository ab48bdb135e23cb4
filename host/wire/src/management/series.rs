//! The values of endpoints over a past window, for charts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::id::EndpointId;
#[cfg(feature = "openapi")]
use crate::schema;

/// The values of one endpoint, by steps of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct EndpointSeries {
    /// The endpoint.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: EndpointId,
    /// The window: `15m`, `6h` or `7d`.
    pub window: String,
    /// The length of a step, in milliseconds.
    pub step_ms: u64,
    /// The time of the first point, in milliseconds since 1970.
    pub from: u64,
    /// The steps, the oldest first, from the endpoint's first job on. Steps in which the host did
    /// not run have zeros.
    pub points: Vec<SeriesPoint>,
}

/// The values of one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SeriesPoint {
    /// The beginning of the step, in milliseconds since 1970.
    pub at: u64,
    /// Submitted jobs.
    pub submitted: u32,
    /// Attempts that returned.
    pub completed: u32,
    /// Attempts that failed.
    pub failed: u32,
    /// Jobs that calls have cancelled or purged.
    pub cancelled: u32,
    /// Attempts that reached their time limit.
    pub timed_out: u32,
    /// Most jobs that a sample saw waiting. The host takes a sample every 10 seconds.
    pub waiting: u32,
    /// Most jobs that a sample saw running.
    pub running: u32,
    /// Most workers of each state at one time.
    #[serde(default)]
    pub workers: SeriesWorkers,
    /// The times that jobs waited. Absent: no attempt began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<SeriesQuantiles>,
    /// The times that attempts ran. Absent: none ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<SeriesQuantiles>,
}

/// Most workers of each state at one time. The states of one step can have different times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SeriesWorkers {
    /// They wait for a job.
    pub idle: u16,
    /// They load the component.
    pub initializing: u16,
    /// They run a job.
    pub running: u16,
    /// They wait for a sandbox.
    pub throttled: u16,
    /// They cannot run the component.
    pub unhealthy: u16,
}

/// Durations that a part did not exceed, in milliseconds, with an error of 6 % at most.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SeriesQuantiles {
    /// Of half.
    pub p50: f64,
    /// Of 95 in 100.
    pub p95: f64,
    /// Of 99 in 100.
    pub p99: f64,
}

/// Numbers of jobs of all endpoints, by steps of time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SeriesList {
    /// The window: `15m`, `6h` or `7d`.
    pub window: String,
    /// The length of a step, in milliseconds.
    pub step_ms: u64,
    /// The time of the first step, in milliseconds since 1970.
    pub from: u64,
    /// Those with jobs.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, ShortSeries>))]
    pub endpoints: BTreeMap<EndpointId, ShortSeries>,
}

/// Numbers of jobs of one endpoint. All lists of an answer have the same length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ShortSeries {
    /// Submitted jobs in each step.
    pub submitted: Vec<u32>,
    /// Attempts that failed or reached their time limit in each step.
    pub failed: Vec<u32>,
    /// Attempts that ended in each step: those that returned too.
    #[serde(default)]
    pub ended: Vec<u32>,
    /// Jobs that waited in the last step.
    #[serde(default)]
    pub waiting: u32,
    /// Jobs that ran in the last step.
    #[serde(default)]
    pub running: u32,
    /// The times that attempts ran in the window, and in up to a minute, an hour or a day before
    /// it. Absent: none ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_ms: Option<SeriesQuantiles>,
}
