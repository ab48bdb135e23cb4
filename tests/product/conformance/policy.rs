//! The execution policy of a submission.

use gristmill_tests::{Answer, TestHost};
use serde_json::{Value, json};

use crate::support::{DAY, Endpoint, SECOND, clocked, computing, echo, forever, paused, shared};

async fn submit<H: std::ops::Deref<Target = TestHost>>(
    endpoint: &Endpoint<H>,
    policy: Value,
) -> Answer {
    endpoint.post("run", &json!({ "input": echo(), "policy": policy })).await
}

/// Asserts the minimum and the maximum of a field, and the refusals beyond them.
async fn assert_bounds(name: &str, field: &str, min: u64, max: u64) {
    let endpoint = shared(name, paused()).await;
    for inside in [min, max] {
        submit(&endpoint, json!({ field: inside })).await.ok();
    }
    let wrong = [
        (json!(min - 1), min),
        (json!(0), min),
        (json!(-1), min),
        (json!(max + 1), max),
        (json!(i64::MAX), max),
    ];
    for (value, bound) in wrong {
        for operation in ["run", "runsync"] {
            let body = json!({ "input": echo(), "policy": { field: value } });
            let sentence = endpoint.post(operation, &body).await.refused(400);
            let names_both = sentence.contains(field) && sentence.contains(&bound.to_string());
            assert!(names_both, "{value}: {sentence}");
        }
    }
    for value in [json!("60000"), json!(60_000.5), json!(true), json!([])] {
        let sentence = submit(&endpoint, json!({ field: value })).await.refused(400);
        assert!(sentence.contains(field), "{value}: {sentence}");
    }
}

/// `executionTimeout`: an integer of milliseconds from 5 seconds to 7 days, by default the
/// endpoint's, which is 10 minutes by default; a job's own value applies to that job only.
#[tokio::test]
async fn execution_timeout() {
    assert_bounds("policy-timeout-bounds", "executionTimeout", 5 * SECOND, 7 * DAY).await;
    let endpoint = shared("policy-timeout", json!({ "executionTimeoutMs": 5_000 })).await;
    let own = endpoint.submit_with(forever(), json!({ "executionTimeout": 600_000 })).await;
    let sleeps = endpoint.submit(forever()).await;
    let computes = endpoint.submit(computing()).await;
    for inherited in [sleeps, computes] {
        endpoint.until(&inherited, "TIMED_OUT").await;
    }
    assert_eq!(endpoint.status(&own).await.ok()["status"], "IN_PROGRESS");
    endpoint.cancel(&own).await.ok();
    let path = "/v1/endpoints/policy-timeout-bounds";
    assert_eq!(endpoint.client.get(path).await.ok()["executionTimeoutMs"], 600_000);
}

/// A job without an `executionTimeout` of its own has that of its endpoint when an attempt begins:
/// a change of the endpoint applies to waiting jobs, and to a retry.
#[tokio::test]
async fn execution_timeout_of_the_endpoint() {
    let patch = async |endpoint: &Endpoint<_>, timeout_ms: u64, workers_max: u64| {
        let path = format!("/v1/endpoints/{}", endpoint.id);
        let settings = json!({ "executionTimeoutMs": timeout_ms, "workersMax": workers_max });
        endpoint.client.patch(&path, &settings).await.ok();
    };
    let shorter = shared("policy-timeout-shorter", paused()).await;
    let longer = shared("policy-timeout-longer", paused()).await;
    patch(&longer, 5_000, 0).await;
    let late = shorter.submit(forever()).await;
    let in_time = longer.submit(json!({ "op": "sleep", "ms": 5_600 })).await;
    patch(&shorter, 5_000, 1).await;
    patch(&longer, 600_000, 1).await;
    shorter.until(&late, "TIMED_OUT").await;
    longer.until(&in_time, "COMPLETED").await;
    patch(&shorter, 600_000, 1).await;
    shorter.retry(&late).await.ok();
    shorter.until(&late, "IN_PROGRESS").await;
    shorter.cancel(&late).await.ok();
}

/// `lowPriority`: false by default; a job with true starts no worker.
#[tokio::test]
async fn low_priority() {
    let endpoint = shared("policy-low", json!({})).await;
    let low = endpoint.submit_with(echo(), json!({ "lowPriority": true })).await;
    // A worker is counted before the submission is answered.
    let waiting = endpoint.status(&low).await.ok();
    assert_eq!(waiting["status"], "IN_QUEUE", "{waiting}");
    assert_eq!(waiting["reason"], "no worker runs, and a lowPriority job does not start one");
    let workers = &endpoint.health().await["workers"];
    assert_eq!((&workers["idle"], &workers["running"]), (&json!(0), &json!(0)), "{workers}");
    // Without the field, and with false, a job starts a worker, which then takes the other job too.
    let normal = endpoint.submit_with(echo(), json!({ "lowPriority": false })).await;
    endpoint.until(&normal, "COMPLETED").await;
    endpoint.until(&low, "COMPLETED").await;
    let sentence = submit(&endpoint, json!({ "lowPriority": "yes" })).await.refused(400);
    assert!(sentence.contains("lowPriority"), "{sentence}");
}

/// `ttl`: an integer of milliseconds from 10 seconds to 7 days, 24 hours by default; the job is
/// deleted exactly when it is over.
#[tokio::test]
async fn ttl() {
    assert_bounds("policy-ttl-bounds", "ttl", 10 * SECOND, 7 * DAY).await;
    let endpoint = clocked("policy-ttl", paused()).await;
    let least = endpoint.submit_with(echo(), json!({ "ttl": 10_000 })).await;
    let default = endpoint.submit(echo()).await;
    let most = endpoint.submit_with(echo(), json!({ "ttl": 604_800_000 })).await;
    let mut shown = 0;
    for (job, ttl) in [(least, 10 * SECOND), (default, DAY), (most, 7 * DAY)] {
        endpoint.host.advance(ttl - shown - 1);
        assert_eq!(endpoint.status(&job).await.ok()["delayTime"], ttl - 1);
        endpoint.host.advance(1);
        endpoint.status(&job).await.refused(404);
        shown = ttl;
    }
}
