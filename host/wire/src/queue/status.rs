//! The status document of a job. The host writes one with borrowed texts; a client reads one that
//! owns them.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::JobStatus;
#[cfg(feature = "openapi")]
use crate::schema;

/// The present state of a job. Fields without a value are absent, never null.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StatusDocument<'a> {
    /// The job's id.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::JobId))]
    pub id: Cow<'a, str>,
    /// Its status.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Status))]
    pub status: JobStatus,
    /// Milliseconds that the job waited since it was last queued, by its submission, a retry, or a
    /// restart of the host; growing while it waits. 0 before its `runAt`.
    pub delay_time: u64,
    /// Milliseconds that the handler ran in the last attempt; growing while it runs.
    pub execution_time: u64,
    /// The worker that claimed the job; absent before that.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    pub worker_id: Option<Cow<'a, str>>,
    /// How often the job was queued again; absent when 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = u32, required = false))]
    pub retries: Option<u32>,
    /// Why the job is FAILED or TIMED_OUT.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    pub error: Option<Cow<'a, str>>,
    /// Whether attempts were repeated and the last permitted one failed, too; absent when not.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub exhausted: bool,
    /// Why a waiting job does not run.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, required = false))]
    pub reason: Option<Cow<'a, str>>,
    /// The time before which a waiting job does not start: that of its submission, or of its next
    /// attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time, required = false))]
    pub run_at: Option<Cow<'a, str>>,
    /// Those of its submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Tags, required = false))]
    pub tags: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    /// With `input=true`: its input, byte for byte, as long as the host keeps it: until the job is
    /// COMPLETED or CANCELLED.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Value, required = false))]
    pub input: Option<Cow<'a, RawValue>>,
    /// The result; while the job runs, and when it is FAILED, the newest progress value of its last
    /// attempt, if that has at most 8 KiB. A handler that emits values and returns nothing has the
    /// list of these values as its result, each whole, or none if the list is over 20 MB; `stream`
    /// has the chunks.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Value, required = false))]
    pub output: Option<Cow<'a, RawValue>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_document_is_read_and_its_output_kept_as_text() {
        let text = r#"{"id":"a-1","status":"COMPLETED","delayTime":3,"executionTime":7,"tags":{"a":"b"},"output":{"n": 9007199254740993},"later":1}"#;
        let document: StatusDocument<'static> = serde_json::from_str(text).unwrap();
        assert_eq!((document.status, document.execution_time), (JobStatus::Completed, 7));
        assert_eq!(document.output.as_deref().unwrap().get(), r#"{"n": 9007199254740993}"#);
        let written = serde_json::to_string(&document).unwrap();
        assert_eq!(written, text.replace(r#","later":1"#, ""));
        let unknown = text.replace("COMPLETED", "DONE");
        assert!(serde_json::from_str::<StatusDocument<'_>>(&unknown).is_err());
    }
}
