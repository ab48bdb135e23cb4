//! Actions on many jobs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::JobStatus;
use crate::id::{EndpointId, JobActionId};
use crate::json_object::only_objects;
#[cfg(feature = "openapi")]
use crate::schema;
use crate::words::words;

words! {
    /// The operation that an action carries out on each of its jobs.
    pub enum JobActionKind {
        /// Jobs that wait or run are cancelled.
        Cancel = "cancel",
        /// Jobs that are FAILED or TIMED_OUT are queued again.
        Retry = "retry",
        /// Jobs that have ended are deleted, with their results.
        Delete = "delete",
    }
}

words! {
    /// The state of an action.
    pub enum JobActionState {
        /// The action is being carried out.
        Running = "RUNNING",
        /// All matching jobs were examined.
        Completed = "COMPLETED",
        /// A client aborted the action, or its API key is not valid any more.
        Aborted = "ABORTED",
        /// The action ended with an error.
        Failed = "FAILED",
    }
}

/// Selects jobs. All conditions must hold, and at least one must be given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default, remote = "Self")]
pub struct JobActionFilter {
    /// Any of these; by default all that the key sees.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::ActionEndpoints, required = false))]
    pub endpoints: Vec<EndpointId>,
    /// Any of these; by default any status.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Statuses, required = false))]
    pub statuses: Vec<JobStatus>,
    /// All of these.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Tags, required = false))]
    pub tags: BTreeMap<String, String>,
    /// Submitted at this time or later, in RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::FilterTime>))]
    pub from: Option<String>,
    /// Submitted before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::FilterTime>))]
    pub to: Option<String>,
    /// The beginning of the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::IdPrefix>))]
    pub id_prefix: Option<String>,
    /// A part of the error, letter by letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::ErrorPart>))]
    pub error: Option<String>,
}

only_objects!(JobActionFilter);

/// An action to begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewJobAction {
    /// The operation on each job: `cancel` those that wait or run, `retry` those that are FAILED or
    /// TIMED_OUT, `delete` those that have ended, with their results, before their retention is
    /// over.
    pub action: JobActionKind,
    /// The jobs.
    pub filter: JobActionFilter,
}

/// An action on many jobs, with its progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobAction {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: JobActionId,
    /// The operation on each job.
    pub action: JobActionKind,
    /// The jobs.
    pub filter: JobActionFilter,
    /// Its state.
    pub state: JobActionState,
    /// Number of jobs that matched so far.
    pub matched: u64,
    /// Number of those that were cancelled, queued again or deleted.
    pub changed: u64,
    /// Number of those whose status does not permit the operation.
    pub skipped: u64,
    /// When it began.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub created_at: String,
    /// When it ended; absent before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Time>, nullable = false))]
    pub ended_at: Option<String>,
    /// Why it waits, was aborted or failed; else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub reason: Option<String>,
}
