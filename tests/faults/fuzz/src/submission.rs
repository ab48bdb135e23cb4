//! `/run` and `/runsync`: a body becomes the job that it describes, or a refusal without a job.
//!
//! Input: the first byte chooses the operation, the rest is the body.

use std::collections::HashMap;

use bytes::Bytes;
use gristmill_core::job::record::ClaimedJob;
use gristmill_core::limits::{Bounds, EXECUTION_TIMEOUT_MS, TTL_MS};
use gristmill_core::store::JobStore as _;
use http_body_util::Full;
use serde_json::Value;
use serde_json::value::RawValue;

use super::host::{self, ENDPOINT, Host};

pub fn submission(data: &[u8]) {
    let Some((choice, body)) = data.split_first() else { return };
    let operation = if choice & 1 == 0 { "run" } else { "runsync?wait=1000" };
    Host::run(async |host| submit(host, operation, Bytes::copy_from_slice(body)).await);
}

async fn submit(host: &Host, operation: &str, body: Bytes) {
    let request = host.request("POST", &format!("/v2/{ENDPOINT}/{operation}")).unwrap();
    let answer = host.answer(request.body(Full::new(body.clone())).unwrap()).await;
    if answer.status() != 200 {
        assert!(!is_plain(&body), "refused: {}", String::from_utf8_lossy(&body));
        host::check_refusal(answer).await;
        assert_eq!(host.store.stats().jobs, 0, "a refused submission is no job");
        return;
    }
    let accepted: Value = serde_json::from_slice(&host::body(answer).await).unwrap();
    assert_eq!(accepted["status"], "IN_QUEUE");
    let job = host.claim().await.expect("what was accepted waits");
    assert_eq!(accepted["id"], job.lease.job.to_string());
    check_job(host, &body, &job);
    assert!(host.claim().await.is_none(), "one submission is one job");
}

/// Whether every JSON parser accepts the body, and it has only the input.
fn is_plain(body: &[u8]) -> bool {
    match serde_json::from_slice::<Value>(body) {
        // A parsed `Value` drops duplicate keys; these have a different length.
        Ok(Value::Object(fields)) => {
            fields.keys().eq(["input"])
                && fields["input"].is_object()
                && body.windows(7).filter(|part| part == b"\"input\"").count() == 1
                && !body.contains(&b'\\')
        }
        _ => false,
    }
}

/// Compares the job with the fields that another parser finds in the body.
fn check_job(host: &Host, body: &[u8], job: &ClaimedJob) {
    let body = Fields::of(std::str::from_utf8(body).unwrap()).unwrap();
    assert_eq!(job.input.as_str(), body.0["input"].get(), "the input is carried byte for byte");
    let policy = body.part("policy").unwrap_or_default();
    let millis = |name: &str, bounds: Bounds, found: u64| {
        assert!(bounds.contains(found), "{name}: {found}");
        assert_eq!(found as f64, policy.value(name).as_f64().unwrap_or(bounds.default as f64));
    };
    match job.execution_timeout_ms {
        Some(found) => millis("executionTimeout", EXECUTION_TIMEOUT_MS, found),
        None => assert!(policy.value("executionTimeout").is_null(), "that of the endpoint"),
    }
    millis("ttl", TTL_MS, job.ttl_at.millis_since(host.store.now()));
    let sent = body.part("s3Config");
    assert_eq!(job.s3_config.is_some(), sent.is_some());
    if let (Some(found), Some(sent)) = (&job.s3_config, sent) {
        for (found, name) in [
            (&found.access_id, "accessId"),
            (&found.access_secret, "accessSecret"),
            (&found.bucket_name, "bucketName"),
            (&found.endpoint_url, "endpointUrl"),
        ] {
            assert_eq!(found, sent.value(name).as_str().unwrap_or_default(), "{name}");
        }
    }
}

/// The fields of a JSON object.
#[derive(Default)]
struct Fields<'a>(HashMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// `None`: the text is `null`.
    fn of(text: &'a str) -> Option<Self> {
        serde_json::from_str::<Option<_>>(text).unwrap().map(Self)
    }

    fn part(&self, name: &str) -> Option<Self> {
        self.0.get(name).and_then(|raw| Self::of(raw.get()))
    }

    fn value(&self, name: &str) -> Value {
        self.0.get(name).map_or(Value::Null, |raw| serde_json::from_str(raw.get()).unwrap())
    }
}
