//! The policy of a job: of a submission, and of the jobs of a schedule.

use serde::{Deserialize, Serialize};

use crate::RetryInput;
use crate::json_object::only_objects;
#[cfg(feature = "openapi")]
use crate::schema;
use crate::whole_number;

/// When a job starts, how long it may wait and run, and how long it is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields, remote = "Self")]
pub struct Policy {
    /// Milliseconds for one attempt, from the start of its handler; then the job is TIMED_OUT. By
    /// default that of the endpoint when the attempt begins.
    #[serde(deserialize_with = "whole_number::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::ExecutionTimeout>))]
    pub execution_timeout: Option<u64>,
    /// Milliseconds from the submission, or from the `delay` or `runAt` of the job, after which it
    /// is deleted, even if it runs.
    #[serde(deserialize_with = "whole_number::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Ttl>))]
    pub ttl: Option<u64>,
    /// The job runs after the others, and never starts a worker: without one it waits, up to its
    /// ttl, until a normal job or `workersMin` starts one. False by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_priority: Option<bool>,
    /// By which waiting jobs of the endpoint have turns: those of one key do not hold up those of
    /// another one. The job has it as its tag `policy/key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::JobKeyText>))]
    pub key: Option<String>,
    /// A head start among the waiting jobs of its key, or of the endpoint without a key: the job
    /// waits as if it had been submitted a minute earlier for each unit.
    #[serde(deserialize_with = "whole_number::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Priority>))]
    pub priority: Option<u64>,
    /// The job waits for so many milliseconds, and a later submission with `debounceMs` and the
    /// same `key` replaces it, as long as it waits. Needs `key`.
    #[serde(deserialize_with = "whole_number::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Debounce>))]
    pub debounce_ms: Option<u64>,
    /// Most milliseconds for which the jobs that replace each other wait together; by default ten
    /// times `debounceMs`.
    #[serde(deserialize_with = "whole_number::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Debounce>))]
    pub debounce_max_ms: Option<u64>,
    /// The job waits for so many milliseconds before it may start.
    #[serde(deserialize_with = "whole_number::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Delay>))]
    pub delay: Option<u64>,
    /// The time before which the job does not start, at most seven days away; in place of `delay`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::FilterTime>))]
    pub run_at: Option<String>,
    /// When the job runs again after an attempt that failed; by default as the endpoint says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryInput>,
    /// Whether members of the policy that do not exist are refused. By default they are ignored,
    /// and the header `X-Ignored-Policy` of the answer names them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// How long the job is kept after its end; by default as long as the endpoint says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
}

/// How long a job is kept after its end, by the way in which it ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", default, deny_unknown_fields, remote = "Self")]
pub struct Retention {
    /// For a job that completes.
    #[serde(deserialize_with = "whole_number::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::RetentionTime>))]
    pub completed: Option<u64>,
    /// Also for jobs that time out.
    #[serde(deserialize_with = "whole_number::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::RetentionTime>))]
    pub failed: Option<u64>,
    /// For a job that is cancelled.
    #[serde(deserialize_with = "whole_number::optional", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::RetentionTime>))]
    pub cancelled: Option<u64>,
}

#[cfg(feature = "openapi")]
schema::variant! {
    /// The policy of a submission: unlike that of a schedule it may have other members.
    SubmissionPolicy = Policy, |object| object.additional_properties = None
}

only_objects!(Policy);
only_objects!(Retention);
