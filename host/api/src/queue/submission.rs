//! The body of `/run` and `/runsync`: every field is checked, and named when it is wrong. Unknown
//! keys, and values that are null, are ignored.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use gristmill_control::ControlError;
use gristmill_core::id::OwnerId;
use gristmill_core::job::idempotency::Idempotency;
use gristmill_core::job::payload::{Json, check_input};
use gristmill_core::job::policy::{PolicyRequest, Start};
use gristmill_core::job::record::S3Config;
use gristmill_core::job::retention::ChosenRetention;
use gristmill_core::job::tags::{InvalidTags, Tag, Tags, Turn};
use gristmill_core::jobs::operations::{SubmitMode, SubmitRequest};
use gristmill_core::limits::{
    Bounds, PRIORITY, S3_FIELD_CHARS_MAX, TAGS_MAX, WEBHOOK_URL_BYTES_MAX,
};
use gristmill_core::trace::TraceContext;
use gristmill_core::webhook::delivery::{ReceiverRefused, WebhookReceivers};
use gristmill_wire::RetryInput;
use gristmill_wire::settings::check_text;
use gristmill_wire::whole_number::WholeNumber;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::answer::error::ApiError;
use crate::request::time::parse_time;

/// Most members of a policy, also of those that are ignored.
const POLICY_MEMBERS_MAX: usize = 32;

/// Most characters of the name of an ignored member that an answer repeats.
const IGNORED_NAME_CHARS_MAX: usize = 40;

/// A time in milliseconds with as many digits as those of the next 200 years.
const DEBOUNCE_LONGEST_MS: u64 = 9_999_999_999_999;

/// Names the members of a policy that the host does not know.
const IGNORED_POLICY: HeaderName = HeaderName::from_static("x-ignored-policy");

/// The content of a submission.
#[derive(Debug)]
pub(crate) struct Submission {
    input: Json,
    webhook: Option<String>,
    policy: PolicyRequest,
    s3_config: Option<Arc<S3Config>>,
    tags: Option<Tags>,
    ignored: IgnoredPolicy,
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

    /// The members of its policy that do not exist.
    pub(crate) fn take_ignored(&mut self) -> IgnoredPolicy {
        std::mem::take(&mut self.ignored)
    }

    /// The request of `owner` with this body.
    pub(crate) fn into_request(
        self,
        owner: OwnerId,
        mode: SubmitMode,
        idempotency: Option<Idempotency>,
        trace: Option<TraceContext>,
    ) -> SubmitRequest {
        let Self { input, webhook, policy, s3_config, tags, ignored: _ } = self;
        SubmitRequest {
            owner,
            input,
            policy,
            webhook,
            s3_config,
            mode,
            idempotency,
            tags,
            trace,
            note: None,
        }
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

/// Those of [`gristmill_wire::queue::Retention`].
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
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
    check_input(input.get()).map_err(|error| ApiError::bad_request(format!("`input` {error}")))?;
    let webhook = optional(fields.webhook, "webhook", "a string")?;
    let PolicyPart { policy, key, priority, ignored } = policy(fields.policy)?;
    let turn = Turn { key: key.as_deref(), priority };
    let of_tags = |error: InvalidTags| ApiError::bad_request(error.to_string());
    let mut tags = Tags::with_turn(tags(fields.tags)?, &turn).map_err(of_tags)?;
    if matches!(policy.start, Start::Debounced { .. }) {
        // The store writes the time in place of this one.
        tags = tags
            .map(|tags| tags.with_debounce(DEBOUNCE_LONGEST_MS).map_err(of_tags))
            .transpose()?;
    }
    Ok(Submission {
        input: Json::from_raw_part(body, input),
        webhook: webhook.map(check_webhook).transpose()?,
        policy,
        s3_config: s3_config(fields.s3_config)?.map(Arc::new),
        tags,
        ignored,
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
    let Some(raw) = raw else { return Ok(None) };
    if !matches!(raw.get().as_bytes().first(), Some(b'{' | b'n')) {
        return Err(ApiError::bad_request(format!("`{field}` must be an object")));
    }
    serde_json::from_str(raw.get())
        .map_err(|error| ApiError::bad_request(format!("`{field}`: {error}")))
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

/// The parts of `policy`.
struct PolicyPart {
    policy: PolicyRequest,
    key: Option<String>,
    priority: u8,
    ignored: IgnoredPolicy,
}

fn policy(raw: Option<&RawValue>) -> Result<PolicyPart, ApiError> {
    let given: Option<Members<'_, POLICY_MEMBERS_MAX>> = optional_object(raw, "policy")?;
    if given.as_ref().is_some_and(|given| given.is_more) {
        return Err(ApiError::bad_request(format!(
            "`policy` must have at most {POLICY_MEMBERS_MAX} members"
        )));
    }
    let mut members = BTreeMap::new();
    for (name, value) in given.map(|given| given.pairs).into_iter().flatten() {
        if members.contains_key(&name) {
            return Err(ApiError::bad_request(format!("`policy`: duplicate field `{name}`")));
        }
        members.insert(name, value);
    }
    let mut take = |name| members.remove(name);
    let whole = |raw, field| -> Result<Option<i128>, ApiError> {
        let value: Option<WholeNumber> = optional(raw, field, "an integer number of milliseconds")?;
        Ok(value.map(|WholeNumber(ms)| ms))
    };
    // A negative number is out of bounds like 0; the bounds are checked with the policy.
    let saturated = |ms: i128| u64::try_from(ms.max(0)).unwrap_or(u64::MAX);
    let millis = |raw, field| Ok::<_, ApiError>(whole(raw, field)?.map(saturated));
    let run_at: Option<String> = optional(take("runAt"), "policy.runAt", "a string")?;
    let debounce = millis(take("debounceMs"), "policy.debounceMs")?;
    let debounce_max = millis(take("debounceMaxMs"), "policy.debounceMaxMs")?;
    let start = match (whole(take("delay"), "policy.delay")?, run_at, debounce) {
        (None, None, None) => Start::Now,
        // 0 is within the bounds of a delay.
        (Some(..0), None, None) => {
            return Err(ApiError::bad_request("`policy.delay` must not be negative"));
        }
        (Some(ms), None, None) => Start::After(saturated(ms)),
        (None, Some(text), None) => Start::At(parse_time("`policy.runAt`", &text)?),
        (None, None, Some(ms)) => Start::debounced(ms, debounce_max),
        (_, _, _) => {
            let sentence =
                "give only one of `policy.delay`, `policy.runAt` and `policy.debounceMs`";
            return Err(ApiError::bad_request(sentence));
        }
    };
    if debounce.is_none() && debounce_max.is_some() {
        let sentence = "`policy.debounceMaxMs` needs `policy.debounceMs`";
        return Err(ApiError::bad_request(sentence));
    }
    let kept: RetentionBody<'_> =
        optional_object(take("retention"), "policy.retention")?.unwrap_or_default();
    let policy = PolicyRequest {
        execution_timeout_ms: millis(take("executionTimeout"), "policy.executionTimeout")?,
        ttl_ms: millis(take("ttl"), "policy.ttl")?,
        low_priority: optional(take("lowPriority"), "policy.lowPriority", "true or false")?,
        start,
        retry: retry(take("retry"))?,
        retention: ChosenRetention {
            completed_ms: millis(kept.completed, "policy.retention.completed")?,
            failed_ms: millis(kept.failed, "policy.retention.failed")?,
            cancelled_ms: millis(kept.cancelled, "policy.retention.cancelled")?,
        },
    };
    let key: Option<String> = optional(take("key"), "policy.key", "a string")?;
    if debounce.is_some() && key.is_none() {
        let sentence = "`policy.debounceMs` needs `policy.key`: a job replaces one with its key";
        return Err(ApiError::bad_request(sentence));
    }
    let priority: Option<WholeNumber> =
        optional(take("priority"), "policy.priority", "an integer")?;
    let priority = priority.map_or(PRIORITY.default, |WholeNumber(given)| {
        // A negative number is no priority either.
        u64::try_from(given).unwrap_or(u64::MAX)
    });
    let Bounds { min, max, .. } = PRIORITY;
    let priority = Some(priority).filter(|given| PRIORITY.contains(*given)).ok_or_else(|| {
        ApiError::bad_request(format!("`policy.priority` must be {min} to {max}"))
    })?;
    let is_strict = optional(take("strict"), "policy.strict", "true or false")?.unwrap_or(false);
    let ignored = IgnoredPolicy::of(members.keys());
    match &ignored.0 {
        Some(names) if is_strict => Err(ApiError::bad_request(format!(
            "`policy` has no member `{}`; leave it out, or `policy.strict`",
            String::from_utf8_lossy(names.as_bytes())
        ))),
        _ => Ok(PolicyPart { policy, key, priority: priority as u8, ignored }),
    }
}

/// The rule of retries; an error names its field.
fn retry(raw: Option<&RawValue>) -> Result<Option<RetryInput>, ApiError> {
    const FIELD: &str = "policy.retry";
    let Some(rule) = optional_object::<&RawValue>(raw, FIELD)? else { return Ok(None) };
    let mut reader = serde_json::Deserializer::from_str(rule.get());
    let read = serde_path_to_error::deserialize(&mut reader);
    read.map(Some).map_err(|error| {
        let path = error.path().to_string();
        let field = if path == "." { FIELD.to_owned() } else { format!("{FIELD}.{path}") };
        ApiError::bad_request(format!("`{field}`: {}", error.inner()))
    })
}

/// Names of members of a policy that do not exist, for the header `X-Ignored-Policy`.
#[derive(Debug, Default)]
pub(crate) struct IgnoredPolicy(Option<HeaderValue>);

impl IgnoredPolicy {
    fn of<'a>(names: impl Iterator<Item = &'a String>) -> Self {
        let readable = |name: &String| -> String {
            let is_plain =
                |letter: &char| letter.is_ascii_alphanumeric() || "_-.".contains(*letter);
            let plain = |letter| if is_plain(&letter) { letter } else { '?' };
            name.chars().take(IGNORED_NAME_CHARS_MAX).map(plain).collect()
        };
        let names: Vec<String> = names.map(readable).collect();
        let text = (!names.is_empty()).then(|| names.join(", "));
        Self(text.and_then(|text| HeaderValue::try_from(text).ok()))
    }

    /// Adds the header, if there are such members.
    pub(crate) fn add_header(self, response: &mut Response) {
        if let Some(names) = self.0 {
            response.headers_mut().insert(IGNORED_POLICY, names);
        }
    }
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
    let given: Option<Members<'_, TAGS_MAX>> = optional_object(raw, "tags")?;
    let Some(Members { pairs, is_more }) = given else { return Ok(None) };
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

/// The members of an object, in their order: at most `MAX`.
struct Members<'a, const MAX: usize> {
    pairs: Vec<(String, &'a RawValue)>,
    is_more: bool,
}

impl<'de: 'a, 'a, const MAX: usize> Deserialize<'de> for Members<'a, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<const MAX: usize>;

        impl<'de, const MAX: usize> Visitor<'de> for Read<MAX> {
            type Value = Members<'de, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::new();
                while pairs.len() < MAX
                    && let Some(pair) = map.next_entry()?
                {
                    pairs.push(pair);
                }
                let mut is_more = false;
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
                    is_more = true;
                }
                Ok(Members { pairs, is_more })
            }
        }

        deserializer.deserialize_map(Read::<MAX>)
    }
}

#[cfg(test)]
#[path = "submission_tests.rs"]
mod tests;
