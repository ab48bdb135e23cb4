//! Live events: the values of endpoints, and changes of jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::JobStatus;
use crate::id::EndpointId;

/// The values of an endpoint at one time. Numbers of jobs count from the host's start, or from the
/// endpoint's creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveEndpoint {
    /// Jobs that wait.
    pub waiting: u64,
    /// Jobs that run.
    pub running: u64,
    /// Workers in any state.
    pub workers: u64,
    /// Submitted jobs.
    pub submitted: u64,
    /// Attempts that returned.
    pub completed: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Jobs that calls have cancelled or purged.
    pub cancelled: u64,
    /// Attempts that reached their time limit.
    pub timed_out: u64,
    /// The endpoint's version, which grows with each change of its settings, template or handler.
    pub version: u32,
}

/// The data of the event `overview`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverviewEvent {
    /// The time, in milliseconds since 1970.
    pub at: u64,
    /// All endpoints in the first event, then those that have changed; `null`: it was deleted.
    pub endpoints: BTreeMap<EndpointId, Option<LiveEndpoint>>,
}

/// The data of the event `endpoint`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointEvent {
    /// The endpoint.
    pub id: EndpointId,
    /// Its values.
    #[serde(flatten)]
    pub values: LiveEndpoint,
    /// The changes since the stream began.
    pub newest: NewestJobs,
    /// It was deleted, and has no more events.
    #[serde(default, skip_serializing_if = "is_false")]
    pub deleted: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// The changes since a stream began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewestJobs {
    /// Submitted jobs.
    pub jobs: u64,
}

/// The data of the event `job`: the job has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatusEvent {
    /// The job's endpoint.
    pub endpoint: EndpointId,
    /// The job.
    pub id: String,
    /// Its status; `null`: it was deleted, and has no more events.
    pub status: Option<JobStatus>,
}
