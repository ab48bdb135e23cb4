//! The body of `/run` and `/runsync`: every field is checked, and named when it is wrong. Unknown
//! keys, and values that are null, are ignored.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use gristmill_control::ControlError;
use gristmill_core::id::OwnerId;
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::payload::Json;
use gristmill_core::job::policy::PolicyRequest;
use gristmill_core::job::record::S3Config;
use gristmill_core::job::retention::ChosenRetention;
use gristmill_core::job::tags::{InvalidTags, Tag, Tags};
use gristmill_core::jobs::operations::{SubmitMode, SubmitRequest};
use gristmill_core::limits::{
    JSON_NESTING_MAX, S3_FIELD_CHARS_MAX, TAGS_MAX, WEBHOOK_URL_BYTES_MAX,
};
use gristmill_core::trace::TraceContext;
use gristmill_core::webhook::delivery::{ReceiverRefused, WebhookReceivers};
use gristmill_json_schema::is_nested_deeper;
use gristmill_wire::settings::check_text;
use gristmill_wire::whole_number::WholeNumber;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::answer::error::ApiError;

/// The content of a submission.
#[derive(Debug)]
pub(crate) struct Submission {
    input: Json,
    webhook: Option<String>,
    policy: PolicyRequest,
    s3_config: Option<Arc<S3Config>>,
    tags: Option<Tags>,
}

impl Submission {
    /// Refuses a webhook to an address that no webhook is sent to.
    ///
    /// # Errors
    /// 400 that names the address, and the option that permits it.
    pub(crate) fn check_receiver(&self, receivers: &dyn WebhookReceivers) -> Result<(), ApiError> {
        let Some(url) = &self.webhook else { return Ok(()) };
        let refused =
            |reason: ReceiverRefused| ApiError::bad_request(format!("`webhook`: {reason}"));
        receivers.check(url).map_err(refused)
    }

    /// The request of `owner` with this body.
    pub(crate) fn into_request(
        self,
        owner: OwnerId,
        mode: SubmitMode,
        idempotency: Option<Idempotency>,
        trace: Option<TraceContext>,
    ) -> SubmitRequest {
        let Self { input, webhook, policy, s3_config, tags } = self;
        SubmitRequest { owner, input, policy, webhook, s3_config, mode, idempotency, tags, trace }
    }
}

/// The fields of [`gristmill_wire::queue::Submission`] as JSON text, so that an error names the
/// field that does not fit.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    webhook: Option<&'a RawValue>,
    #[serde(borrow)]
    policy: Option<&'a RawValue>,
    #[serde(borrow)]
    s3_config: Option<&'a RawValue>,
    #[serde(borrow)]
    tags: Option<&'a RawValue>,
}

/// Those of [`gristmill_wire::queue::Policy`].
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PolicyBody<'a> {
    #[serde(borrow)]
    execution_timeout: Option<&'a RawValue>,
    #[serde(borrow)]
    ttl: Option<&'a RawValue>,
    #[serde(borrow)]
    low_priority: Option<&'a RawValue>,
    #[serde(borrow)]
    retention: Option<&'a RawValue>,
}

/// Those of [`gristmill_wire::queue::Retention`].
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct RetentionBody<'a> {
    #[serde(borrow)]
    completed: Option<&'a RawValue>,
    #[serde(borrow)]
    failed: Option<&'a RawValue>,
    #[serde(borrow)]
    cancelled: Option<&'a RawValue>,
}

/// Those of [`gristmill_wire::queue::S3Config`].
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct S3Body<'a> {
    #[serde(borrow)]
    access_id: Option<&'a RawValue>,
    #[serde(borrow)]
    access_secret: Option<&'a RawValue>,
    #[serde(borrow)]
    bucket_name: Option<&'a RawValue>,
    #[serde(borrow)]
    endpoint_url: Option<&'a RawValue>,
}

/// Reads a submission.
///
/// # Errors
/// 400 that names the field and its permitted values.
pub(crate) fn parse(body: &Bytes) -> Result<Submission, ApiError> {
    if body.is_empty() {
        return Err(ApiError::bad_request(
            "the body is empty; send a JSON object such as {\"input\":{}}",
        ));
    }
    if first_byte(body).is_none_or(|byte| byte != b'{') {
        return Err(ApiError::bad_request("the body must be a JSON object"));
    }
    let not_json = |error: &dyn fmt::Display| {
        ApiError::bad_request(format!("the body is not valid JSON: {error}"))
    };
    // The bytes of ignored fields are not checked anywhere else.
    let text = str::from_utf8(body).map_err(|error| not_json(&error))?;
    let fields: Body<'_> = serde_json::from_str(text).map_err(|error| not_json(&error))?;
    let input = fields.input.filter(|raw| raw.get() != "null").ok_or_else(|| {
        ApiError::bad_request("the field `input` is missing; it must be a JSON object")
    })?;
    if !input.get().starts_with('{') {
        return Err(ApiError::bad_request("`input` must be a JSON object"));
    }
    if is_nested_deeper(input.get(), JSON_NESTING_MAX) {
        return Err(ApiError::bad_request(format!(
            "`input` must not be nested deeper than {JSON_NESTING_MAX} levels"
        )));
    }
    let webhook = optional(fields.webhook, "webhook", "a string")?;
    Ok(Submission {
        input: Json::from_raw_part(body, input),
        webhook: webhook.map(check_webhook).transpose()?,
        policy: policy(fields.policy)?,
        s3_config: s3_config(fields.s3_config)?.map(Arc::new),
        tags: tags(fields.tags)?,
    })
}

fn first_byte(body: &[u8]) -> Option<u8> {
    body.iter().copied().find(|byte| !byte.is_ascii_whitespace())
}

fn optional<'a, T: Deserialize<'a>>(
    raw: Option<&'a RawValue>,
    field: &str,
    expected: &str,
) -> Result<Option<T>, ApiError> {
    let Some(raw) = raw else { return Ok(None) };
    serde_json::from_str::<Option<T>>(raw.get())
        .map_err(|_| ApiError::bad_request(format!("`{field}` must be {expected}")))
}

/// Like [`optional`], for an object. Serde alone would take an array of the values in their order.
fn optional_object<'a, T: Deserialize<'a>>(
    raw: Option<&'a RawValue>,
    field: &str,
) -> Result<Option<T>, ApiError> {
    if raw.is_some_and(|raw| raw.get().starts_with('[')) {
        return Err(ApiError::bad_request(format!("`{field}` must be an object")));
    }
    optional(raw, field, "an object")
}

fn check_webhook(text: String) -> Result<String, ApiError> {
    if text.len() > WEBHOOK_URL_BYTES_MAX {
        return Err(ApiError::bad_request(format!(
            "`webhook` has {} bytes; at most {WEBHOOK_URL_BYTES_MAX} are allowed",
            text.len()
        )));
    }
    let is_usable = url::Url::parse(&text).is_ok_and(|url| {
        let has_credentials = !url.username().is_empty() || url.password().is_some();
        matches!(url.scheme(), "http" | "https") && url.has_host() && !has_credentials
    });
    if is_usable {
        Ok(text)
    } else {
        Err(ApiError::bad_request(
            "`webhook` must be an absolute http or https URL without user name and password",
        ))
    }
}

fn policy(raw: Option<&RawValue>) -> Result<PolicyRequest, ApiError> {
    const MILLISECONDS: &str = "an integer number of milliseconds";
    let body: PolicyBody<'_> = optional_object(raw, "policy")?.unwrap_or_default();
    let millis = |raw, field| -> Result<Option<u64>, ApiError> {
        // A negative number is out of bounds like 0; the bounds are checked with the policy.
        let value: Option<WholeNumber> = optional(raw, field, MILLISECONDS)?;
        Ok(value.map(|WholeNumber(ms)| u64::try_from(ms.max(0)).unwrap_or(u64::MAX)))
    };
    let kept: RetentionBody<'_> =
        optional_object(body.retention, "policy.retention")?.unwrap_or_default();
    Ok(PolicyRequest {
        execution_timeout_ms: millis(body.execution_timeout, "policy.executionTimeout")?,
        ttl_ms: millis(body.ttl, "policy.ttl")?,
        low_priority: optional(body.low_priority, "policy.lowPriority", "true or false")?,
        retention: ChosenRetention {
            completed_ms: millis(kept.completed, "policy.retention.completed")?,
            failed_ms: millis(kept.failed, "policy.retention.failed")?,
            cancelled_ms: millis(kept.cancelled, "policy.retention.cancelled")?,
        },
    })
}

fn s3_config(raw: Option<&RawValue>) -> Result<Option<S3Config>, ApiError> {
    let Some(body) = optional_object::<S3Body<'_>>(raw, "s3Config")? else {
        return Ok(None);
    };
    let text = |raw, field| -> Result<String, ApiError> {
        let text: String = optional(raw, field, "a string")?.unwrap_or_default();
        check_text(field, &text, S3_FIELD_CHARS_MAX).map_err(ControlError::from)?;
        Ok(text)
    };
    Ok(Some(S3Config {
        access_id: text(body.access_id, "s3Config.accessId")?,
        access_secret: text(body.access_secret, "s3Config.accessSecret")?,
        bucket_name: text(body.bucket_name, "s3Config.bucketName")?,
        endpoint_url: text(body.endpoint_url, "s3Config.endpointUrl")?,
    }))
}

fn tags(raw: Option<&RawValue>) -> Result<Option<Tags>, ApiError> {
    let Some(TagPairs { pairs, is_more }) = optional_object(raw, "tags")? else { return Ok(None) };
    let refused = |error: InvalidTags| ApiError::bad_request(error.to_string());
    if is_more {
        return Err(refused(InvalidTags::Count));
    }
    let mut texts = Vec::with_capacity(pairs.len());
    for (key, value) in pairs {
        let Ok(value) = serde_json::from_str::<String>(value.get()) else {
            // The key is checked first: an error must not repeat a key of megabytes.
            Tag::new(&key, "").map_err(refused)?;
            return Err(ApiError::bad_request(format!("`tags.{key}` must be a string")));
        };
        texts.push((key, value));
    }
    Tags::new(texts).map_err(refused)
}

/// The members of an object, in their order: as many as a job may have tags.
struct TagPairs<'a> {
    pairs: Vec<(String, &'a RawValue)>,
    is_more: bool,
}

impl<'de: 'a, 'a> Deserialize<'de> for TagPairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = TagPairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while pairs.len() < TAGS_MAX
                    && let Some(pair) = map.next_entry()?
                {
                    pairs.push(pair);
                }
                let mut is_more = false;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    is_more = true;
                }
                Ok(TagPairs { pairs, is_more })
            }
        }

        deserializer.deserialize_map(Members)
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse as _;
    use http_body_util::BodyExt as _;

    use super::*;

    async fn complaint(body: &str) -> String {
        let error = parse(&Bytes::from(body.to_owned())).expect_err(body);
        let bytes = error.into_response().into_body().collect().await.unwrap().to_bytes();
        let json: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        json["error"].as_str().unwrap().to_owned()
    }

    fn with_webhook(bytes: usize) -> String {
        let path = "a".repeat(bytes - "https://example.com/".len());
        format!(r#"{{"input":{{}},"webhook":"https://example.com/{path}"}}"#)
    }

    fn with_bucket(chars: usize) -> String {
        format!(r#"{{"input":{{}},"s3Config":{{"bucketName":"{}"}}}}"#, "é".repeat(chars))
    }

    #[test]
    fn texts_may_be_as_long_as_their_bounds() {
        for body in [with_webhook(WEBHOOK_URL_BYTES_MAX), with_bucket(S3_FIELD_CHARS_MAX)] {
            parse(&Bytes::from(body)).unwrap();
        }
    }

    #[tokio::test]
    async fn mistakes_are_named() {
        let long_webhook = with_webhook(WEBHOOK_URL_BYTES_MAX + 1);
        let long_bucket = with_bucket(S3_FIELD_CHARS_MAX + 1);
        let many: std::collections::BTreeMap<_, _> =
            (0..1_000).map(|n| (n.to_string(), "")).collect();
        let many_tags = serde_json::json!({ "input": {}, "tags": many }).to_string();
        let large = "x".repeat(9_000_000);
        let large_tags = format!(r#"{{"input":{{}},"tags":{{"a":"{large}"}}}}"#);
        let large_key = format!(r#"{{"input":{{}},"tags":{{"{large}":1}}}}"#);
        let cases = [
            ("", "the body is empty"),
            ("[]", "the body must be a JSON object"),
            ("{", "the body is not valid JSON: EOF"),
            ("{}", "`input` is missing"),
            (r#"{"input":null}"#, "`input` is missing"),
            (r#"{"input":7}"#, "`input` must be a JSON object"),
            (r#"{"input":{},"input":{}}"#, "duplicate field `input`"),
            (r#"{"input":{},"webhook":"ftp://x"}"#, "`webhook` must be an absolute"),
            (r#"{"input":{},"webhook":"http://u:p@x/"}"#, "`webhook` must be an absolute"),
            (r#"{"input":{},"webhook":1}"#, "`webhook` must be a string"),
            (&long_webhook, "`webhook` has 2049 bytes; at most 2048 are allowed"),
            (&long_bucket, "`s3Config.bucketName` has more than 4096 characters, the most allowed"),
            (r#"{"input":{},"policy":[]}"#, "`policy` must be an object"),
            (r#"{"input":{},"policy":[9000,10000,false]}"#, "`policy` must be an object"),
            (r#"{"input":{},"s3Config":["a","b","c","d"]}"#, "`s3Config` must be an object"),
            (r#"{"input":{},"policy":{"ttl":"1"}}"#, "`policy.ttl` must be an integer"),
            (r#"{"input":{},"policy":{"ttl":1.5}}"#, "`policy.ttl` must be an integer"),
            (r#"{"input":{},"policy":{"retention":[1]}}"#, "`policy.retention` must be an object"),
            (
                r#"{"input":{},"policy":{"retention":{"failed":"1 day"}}}"#,
                "`policy.retention.failed` must be an integer",
            ),
            (r#"{"input":{},"policy":{"lowPriority":1}}"#, "`policy.lowPriority` must be true"),
            (r#"{"input":{},"s3Config":{"accessId":1}}"#, "`s3Config.accessId` must be a string"),
            (r#"{"input":{},"tags":[]}"#, "`tags` must be an object"),
            (r#"{"input":{},"tags":"a"}"#, "`tags` must be an object"),
            (r#"{"input":{},"tags":{"a":1}}"#, "`tags.a` must be a string"),
            (r#"{"input":{},"tags":{"A":1}}"#, "each key of `tags` must have 1 to 64 characters"),
            (r#"{"input":{},"tags":{"a":"1","a":"1"}}"#, "`tags` has the key `a` twice"),
            (r#"{"input":{},"tags":{"a":"\u0000"}}"#, "`tags.a` has a control character"),
            (&many_tags, "`tags` has more than 16 pairs"),
            (&large_tags, "`tags.a` has 9000000 bytes; at most 256 are allowed"),
            (&large_key, "each key of `tags` must have 1 to 64 characters"),
        ];
        for (body, expected) in cases {
            let complaint = complaint(body).await;
            assert!(complaint.contains(expected), "{body:.99}: {complaint:.999}");
            assert!(complaint.len() < 1_000, "{body:.99}");
        }
    }

    #[test]
    fn invalid_utf_8_is_refused_even_in_ignored_fields() {
        assert!(parse(&Bytes::from_static(b"{\"input\":{},\"other\":\"\xff\"}")).is_err());
    }

    #[test]
    fn unknown_and_null_fields_count_as_absent() {
        let body = r#" {"input": {"a": 9007199254740993}, "webhook": null, "policy": {"x": 1,
            "ttl": null}, "s3Config": {"bucketName": "b", "objectPath": "o"}, "tags": {}, "timeout": 1} "#;
        let submission = parse(&Bytes::from_static(body.as_bytes())).unwrap();
        assert_eq!(submission.input.as_str(), r#"{"a": 9007199254740993}"#);
        assert_eq!(submission.webhook, None);
        assert_eq!(submission.policy, PolicyRequest::default());
        assert_eq!(submission.s3_config.unwrap().bucket_name, "b");
        assert_eq!(submission.tags, None);
    }

    #[tokio::test]
    async fn nesting_is_bounded() {
        let nested = |levels: usize| {
            let (open, close) = ("[".repeat(levels - 1), "]".repeat(levels - 1));
            format!(r#"{{"input":{{"a":{open}{close}}}}}"#)
        };
        assert!(parse(&Bytes::from(nested(128))).is_ok());
        for levels in [129, 1_000_000] {
            assert!(complaint(&nested(levels)).await.contains("deeper than 128 levels"));
        }
    }

    #[test]
    fn every_field_of_the_wire_type_is_read() {
        use gristmill_wire::queue as wire;

        let text = |text: &str| Some(text.to_owned());
        let submission = wire::Submission {
            input: serde_json::from_str(r#"{"a":1}"#).unwrap(),
            webhook: Some("http://h/"),
            policy: Some(wire::Policy {
                execution_timeout: Some(6_000),
                ttl: Some(20_000),
                low_priority: Some(true),
                retention: Some(wire::Retention {
                    completed: Some(61_000),
                    failed: Some(62_000),
                    cancelled: Some(63_000),
                }),
            }),
            s3_config: Some(wire::S3Config {
                access_id: text("i"),
                access_secret: text("s"),
                bucket_name: text("b"),
                endpoint_url: text("http://o/"),
            }),
            tags: Some([("env".to_owned(), "prod".to_owned())].into()),
        };
        let body = serde_json::to_vec(&submission).unwrap();
        let Submission { input, webhook, policy, s3_config, tags } = parse(&body.into()).unwrap();
        assert_eq!(tags, Tags::new([("env", "prod")]).unwrap());
        assert_eq!((input.as_str(), webhook.as_deref()), (r#"{"a":1}"#, Some("http://h/")));
        let expected = PolicyRequest {
            execution_timeout_ms: Some(6_000),
            ttl_ms: Some(20_000),
            low_priority: Some(true),
            retention: ChosenRetention {
                completed_ms: Some(61_000),
                failed_ms: Some(62_000),
                cancelled_ms: Some(63_000),
            },
        };
        assert_eq!(policy, expected);
        let S3Config { access_id, access_secret, bucket_name, endpoint_url } =
            (*s3_config.unwrap()).clone();
        assert_eq!(
            [access_id, access_secret, bucket_name, endpoint_url],
            ["i", "s", "b", "http://o/"]
        );
    }
}
