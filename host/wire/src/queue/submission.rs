//! The body of `/run` and `/runsync`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::RetryInput;
#[cfg(feature = "openapi")]
use crate::schema;

/// A job to run. Other fields are ignored.
#[derive(Debug, Clone, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Submission<'a> {
    /// A JSON object, nested 128 levels deep at most. The handler gets it byte for byte.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub input: &'a RawValue,
    /// The host calls it when the job has ended. Its address must be public, or permitted by the
    /// operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::WebhookUrl>))]
    pub webhook: Option<&'a str>,
    /// When it starts, how long it may wait and run, and how long it is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// For the handler. No call shows it, and it is encrypted on disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s3_config: Option<S3Config>,
    /// By which lists and actions find the job; the status document and the webhook show them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Tags>))]
    pub tags: Option<BTreeMap<String, String>>,
}

impl<'a> Submission<'a> {
    /// A job with this input, an object, and nothing else.
    pub fn new(input: &'a RawValue) -> Self {
        Self { input, webhook: None, policy: None, s3_config: None, tags: None }
    }
}

/// When a job starts, how long it may wait and run, and how long it is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Milliseconds for one attempt, from the start of its handler; then the job is TIMED_OUT. By
    /// default that of the endpoint when the attempt begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::ExecutionTimeout>))]
    pub execution_timeout: Option<u64>,
    /// Milliseconds from the submission, or from the `delay` or `runAt` of the job, after which it
    /// is deleted, even if it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Ttl>))]
    pub ttl: Option<u64>,
    /// The job runs after the others, and never starts a worker: without one it waits, up to its
    /// ttl, until a normal job or `workersMin` starts one. False by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_priority: Option<bool>,
    /// The job waits for so many milliseconds before it may start.
    #[serde(skip_serializing_if = "Option::is_none")]
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
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// For a job that completes.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::RetentionTime>))]
    pub completed: Option<u64>,
    /// Also for jobs that time out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::RetentionTime>))]
    pub failed: Option<u64>,
    /// For a job that is cancelled.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::RetentionTime>))]
    pub cancelled: Option<u64>,
}

/// Object-storage settings, for the handler.
#[derive(Clone, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct S3Config {
    /// The id of the bucket's access key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::S3Field>))]
    pub access_id: Option<String>,
    /// The secret of the bucket's access key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::S3Field>))]
    pub access_secret: Option<String>,
    /// The bucket's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::S3Field>))]
    pub bucket_name: Option<String>,
    /// The URL of the object store.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::S3Field>))]
    pub endpoint_url: Option<String>,
}

impl fmt::Debug for S3Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Config").field("bucket_name", &self.bucket_name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_submission_has_only_the_given_fields() {
        let input = serde_json::from_str(r#"{"n": 9007199254740993}"#).unwrap();
        let plain = Submission::new(input);
        let text = serde_json::to_string(&plain).unwrap();
        assert_eq!(text, r#"{"input":{"n": 9007199254740993}}"#);
        let policy = Policy {
            execution_timeout: Some(5_000),
            ttl: Some(60_000),
            low_priority: Some(true),
            delay: Some(7),
            run_at: None,
            retry: Some(RetryInput { max_attempts: Some(3), ..RetryInput::default() }),
            strict: None,
            retention: Some(Retention { failed: Some(60_000), ..Retention::default() }),
        };
        let tags = Some(BTreeMap::from([("env".to_owned(), "prod".to_owned())]));
        let full = Submission { webhook: Some("http://h/x"), policy: Some(policy), tags, ..plain };
        let expected = r#"{"input":{"n": 9007199254740993},"webhook":"http://h/x","policy":{"executionTimeout":5000,"ttl":60000,"lowPriority":true,"delay":7,"retry":{"maxAttempts":3},"retention":{"failed":60000}},"tags":{"env":"prod"}}"#;
        assert_eq!(serde_json::to_string(&full).unwrap(), expected);
    }
}
