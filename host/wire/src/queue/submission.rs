//! The body of `/run` and `/runsync`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::policy::Policy;
#[cfg(feature = "openapi")]
use crate::policy::SubmissionPolicy;
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
    #[cfg_attr(feature = "openapi", schema(value_type = Option<SubmissionPolicy>))]
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
    use crate::RetryInput;
    use crate::policy::Retention;

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
            key: Some("acme".to_owned()),
            priority: Some(9),
            debounce_ms: None,
            debounce_max_ms: None,
            delay: Some(7),
            run_at: None,
            retry: Some(RetryInput { max_attempts: Some(3), ..RetryInput::default() }),
            strict: None,
            retention: Some(Retention { failed: Some(60_000), ..Retention::default() }),
        };
        let tags = Some(BTreeMap::from([("env".to_owned(), "prod".to_owned())]));
        let full = Submission { webhook: Some("http://h/x"), policy: Some(policy), tags, ..plain };
        let expected = r#"{"input":{"n": 9007199254740993},"webhook":"http://h/x","policy":{"executionTimeout":5000,"ttl":60000,"lowPriority":true,"key":"acme","priority":9,"delay":7,"retry":{"maxAttempts":3},"retention":{"failed":60000}},"tags":{"env":"prod"}}"#;
        assert_eq!(serde_json::to_string(&full).unwrap(), expected);
    }
}
