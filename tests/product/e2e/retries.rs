//! Jobs that run again after an attempt that failed: the setting `retry` and `policy.retry`.

use gristmill_tests::{Client, Receiver, TestHost, eventually, guests, shared_host};
use serde_json::{Value, json};

/// An input whose handler always fails.
fn failing() -> Value {
    json!({ "op": "fail", "message": "no flour" })
}

/// Waits until the job was queued again so often.
async fn requeued(client: &Client, endpoint: &str, job: &str, retries: u32) -> Value {
    eventually("the job to be queued again", async || {
        let shown = client.status(endpoint, job).await.ok();
        (shown["status"] == "IN_QUEUE" && shown["retries"] == retries).then_some(shown)
    })
    .await
}

#[tokio::test]
async fn a_failing_job_is_repeated_also_over_a_crash_until_its_attempts_are_used_up() {
    let mut host = TestHost::start();
    let rule = json!({ "maxAttempts": 3, "initialDelayMs": 1_500, "factor": 1, "jitter": 0 });
    let endpoint = host.deploy(&guests::playground(), "mill", json!({ "retry": rule })).await;
    let client = host.client();
    let job = client.submit(&endpoint, failing()).await;
    let waiting = requeued(&client, &endpoint, &job, 1).await;
    assert_eq!(waiting["delayTime"], 0);
    assert!(waiting["reason"].as_str().unwrap().contains("last attempt failed"), "{waiting}");
    assert!(waiting["runAt"].is_string(), "{waiting}");
    host.kill9();
    host.start_again();
    let client = host.client();
    let done = client.until(&endpoint, &job, "FAILED").await;
    assert_eq!((&done["error"], &done["exhausted"]), (&"no flour".into(), &true.into()), "{done}");
    // A crash while the job waits costs nothing.
    assert_eq!(done["retries"], 2, "{done}");
    let timeline = client.get(&format!("/v2/{endpoint}/timeline/{job}")).await.ok();
    let events = timeline["events"].as_array().unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    let one = ["queued", "started", "failed"];
    assert_eq!(kinds, [&one[..], &one, &["queued", "started", "ended"]].concat());
    assert_eq!((&events[2]["error"], &events[3]["cause"]), (&"no flour".into(), &"failed".into()));
    assert_eq!(timeline["usage"]["attempts"], 3, "{timeline}");
    // A client's retry begins anew.
    client.post(&format!("/v2/{endpoint}/retry/{job}"), &Value::Null).await.ok();
    let again = requeued(&client, &endpoint, &job, 4).await;
    assert_eq!(again.get("exhausted"), None, "{again}");
}

#[tokio::test]
async fn a_submission_has_a_rule_of_its_own_and_one_webhook() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let host = TestHost::start_with(&["--webhook-allow".to_owned(), receiver.host()]);
    let endpoint = host.deploy(&guests::playground(), "mill", json!({})).await;
    let client = host.client();
    let body = json!({
        "input": failing(),
        "webhook": receiver.url("/"),
        "policy": { "retry": { "maxAttempts": 2, "initialDelayMs": 100 } },
    });
    let answer = client.post(&format!("/v2/{endpoint}/run"), &body).await.ok();
    let job = answer["id"].as_str().unwrap();
    let calls = receiver.until(1).await;
    let body = calls[0].json();
    assert_eq!((&body["status"], &body["exhausted"]), (&"FAILED".into(), &true.into()));
    assert_eq!(body["retries"], 1);
    let timeline = client.get(&format!("/v2/{endpoint}/timeline/{job}")).await.ok();
    assert_eq!(timeline["usage"]["attempts"], 2, "{timeline}");
    // Without a rule the first failure ends the job.
    let job = client.submit(&endpoint, failing()).await;
    let done = client.until(&endpoint, &job, "FAILED").await;
    assert_eq!((done.get("retries"), done.get("exhausted")), (None, None), "{done}");
}

#[tokio::test]
async fn timeouts_are_repeated_by_choice() {
    let host = shared_host();
    let client = host.client();
    let settings = json!({ "executionTimeoutMs": 5_000, "workersMax": 2 });
    let endpoint = host.deploy(&guests::playground(), "mill-late", settings).await;
    let run = async |retry: Value| {
        let body = json!({ "input": { "op": "sleep_forever" }, "policy": { "retry": retry } });
        let answer = client.post(&format!("/v2/{endpoint}/run"), &body).await.ok();
        answer["id"].as_str().unwrap().to_owned()
    };
    let once = run(json!({ "maxAttempts": 2, "initialDelayMs": 0 })).await;
    let twice = run(json!({ "maxAttempts": 2, "initialDelayMs": 0, "timeouts": true })).await;
    for (job, retries) in [(once, None), (twice, Some(1))] {
        let done = client.until(&endpoint, &job, "TIMED_OUT").await;
        assert_eq!(done.get("retries").and_then(Value::as_u64), retries, "{done}");
    }
}

#[tokio::test]
async fn a_rule_outside_its_bounds_is_refused_and_named() {
    let host = shared_host();
    let client = host.client();
    let endpoint = host.deploy(&guests::echo(), "mill-bounds", json!({})).await;
    for (retry, sentence) in [
        (json!({ "maxAttempts": 101 }), "`policy.retry.maxAttempts` must be 1 to 100, not 101"),
        (json!({ "maxAtempts": 3 }), "`policy.retry.maxAtempts`: unknown field"),
        (json!({ "timeouts": 1 }), "`policy.retry.timeouts`: invalid type"),
        (json!([3]), "`policy.retry` must be an object"),
    ] {
        let body = json!({ "input": {}, "policy": { "retry": retry } });
        let refused = client.post(&format!("/v2/{endpoint}/run"), &body).await.refused(400);
        assert!(refused.contains(sentence), "{refused}");
    }
    let path = format!("/v1/endpoints/{endpoint}");
    let refused = client.patch(&path, &json!({ "retry": { "jitter": 101 } })).await.refused(400);
    assert!(refused.contains("`retry.jitter` must be 0 to 100, not 101"), "{refused}");
    let changed = client.patch(&path, &json!({ "retry": { "maxAttempts": 5 } })).await.ok();
    assert_eq!(changed["retry"]["maxAttempts"], 5);
    assert_eq!(changed["retry"]["initialDelayMs"], 1_000);
}
