//! Lists of the jobs of several endpoints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::JobStatus;
use crate::id::{EndpointId, WorkerId};
#[cfg(feature = "openapi")]
use crate::schema;

/// A page of a list of jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobList {
    /// The jobs, the newest submission first. A page may have fewer than its `limit`, or none,
    /// although there are more.
    pub jobs: Vec<JobSummary>,
    /// Where the next page begins; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub cursor: Option<String>,
}

/// A job on a page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobSummary {
    /// The job's id.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::JobId))]
    pub id: String,
    /// Its endpoint.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub endpoint_id: EndpointId,
    /// Its status.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Status))]
    pub status: JobStatus,
    /// When it was submitted.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub created_at: String,
    /// Milliseconds in the queue.
    pub delay_time: u64,
    /// Milliseconds that the handler has run, or ran, in the last attempt.
    pub execution_time: u64,
    /// The worker that claimed the job; absent before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, nullable = false))]
    pub worker_id: Option<WorkerId>,
    /// How often the job was queued again; absent when 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub retries: Option<u32>,
    /// Why it is FAILED or TIMED_OUT; a text that was cut ends in `…`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub error: Option<String>,
    /// Those of its submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Tags>, nullable = false))]
    pub tags: Option<BTreeMap<String, String>>,
}
