//! `timeline` of a job: its attempts and the calls of its webhook, after restarts too.

use gristmill_tests::{Client, Receiver, TestHost, eventually, guests};
use serde_json::{Value, json};

/// The wait between two attempts of a webhook, in milliseconds.
const RETRY_INTERVAL_MS: u64 = 10_000;

async fn timeline(client: &Client, endpoint: &str, job: &str) -> Value {
    client.get(&client.path(endpoint, &format!("timeline/{job}"))).await.ok()
}

/// The events without their times.
fn events(timeline: &Value) -> Vec<Value> {
    let without_time = |event: &Value| {
        let mut event = event.clone();
        let at = event.as_object_mut().unwrap().remove("at");
        assert!(at.is_some_and(|at| at.is_string()), "{event}");
        event
    };
    timeline["events"].as_array().unwrap().iter().map(without_time).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeline_has_each_attempt_and_each_call_of_the_webhook() {
    let receiver = Receiver::start(&["500 No", "200 OK", "200 OK"]).await;
    let host = TestHost::start_with_clock(&["--webhook-allow", &receiver.host()]);
    let client = host.client();
    let endpoint = host.deploy(&guests::playground(), "told", json!({})).await;
    let body =
        json!({ "input": { "op": "fail", "message": "no luck" }, "webhook": receiver.url("/") });
    let job = client.submit_body(&endpoint, &body).await;
    let shown = async |count: usize| {
        eventually(&format!("{count} events"), async || {
            let timeline = timeline(&client, &endpoint, &job).await;
            (timeline["events"].as_array().unwrap().len() == count).then_some(timeline)
        })
        .await
    };
    shown(4).await;
    host.advance(RETRY_INTERVAL_MS);
    let failed = shown(6).await;
    let worker = client.status(&endpoint, &job).await.ok()["workerId"].clone();
    let error = client.status(&endpoint, &job).await.ok()["error"].clone();
    assert!(error.as_str().unwrap().contains("no luck"), "{error}");
    assert_eq!((&failed["id"], &failed["status"]), (&json!(job), &json!("FAILED")));
    assert_eq!(failed["attemptsOmitted"], 0);
    let webhook = [
        json!({ "event": "webhookSent", "attempt": 1, "httpStatus": 500 }),
        json!({ "event": "webhookSent", "attempt": 2, "httpStatus": 200 }),
        json!({ "event": "webhookDelivered" }),
    ];
    let first = |worker: &Value, error: &Value| {
        let mut started = json!({ "event": "started", "attempt": 1 });
        if worker.is_string() {
            started["workerId"] = worker.clone();
        }
        let ended = json!({ "event": "ended", "status": "FAILED", "error": error });
        vec![json!({ "event": "queued", "cause": "submitted" }), started, ended]
    };
    assert_eq!(events(&failed), [first(&worker, &error), webhook.to_vec()].concat());

    // Events of the same time stand by their kind.
    host.advance(1);
    client.retry(&endpoint, &job).await.ok();
    let retried = shown(11).await;
    let worker = client.status(&endpoint, &job).await.ok()["workerId"].clone();
    let second = [
        json!({ "event": "queued", "cause": "retried" }),
        json!({ "event": "started", "attempt": 2, "workerId": worker }),
        json!({ "event": "ended", "status": "FAILED", "error": error }),
        json!({ "event": "webhookSent", "attempt": 1, "httpStatus": 200 }),
        json!({ "event": "webhookDelivered" }),
    ];
    // The worker is that of the last attempt.
    let first = first(&Value::Null, &json!("no luck"));
    assert_eq!(events(&retried), [first, webhook.to_vec(), second.to_vec()].concat());
    assert_eq!(receiver.calls().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeline_survives_a_kill_and_names_it() {
    let mut host = TestHost::start();
    let endpoint = host.deploy(&guests::playground(), "killed", json!({})).await;
    let client = host.client();
    let running = client.submit(&endpoint, json!({ "op": "sleep", "ms": 600_000 })).await;
    let failed = client.submit(&endpoint, json!({ "op": "fail" })).await;
    client.until(&endpoint, &running, "IN_PROGRESS").await;
    client.until(&endpoint, &failed, "FAILED").await;
    client.retry(&endpoint, &failed).await.ok();
    client.until(&endpoint, &failed, "FAILED").await;
    let before = timeline(&client, &endpoint, &failed).await;
    assert_eq!(events(&before).len(), 6, "{before}");
    // A later change on disk: the claim of the running job is written with it.
    host.kill9();
    host.start_again();
    let client = host.client();
    assert_eq!(timeline(&client, &endpoint, &failed).await, before);
    client.until(&endpoint, &running, "IN_PROGRESS").await;
    let after = timeline(&client, &endpoint, &running).await;
    let shown: Vec<_> = events(&after)
        .iter()
        .map(|event| (event["event"].clone(), event["cause"].clone()))
        .collect();
    let event = |event: &str, cause: Option<&str>| (json!(event), json!(cause));
    assert_eq!(
        shown,
        [
            event("queued", Some("submitted")),
            event("started", None),
            event("queued", Some("hostLost")),
            event("started", None),
        ],
        "{after}"
    );
}

#[tokio::test]
async fn a_timeline_needs_a_job_of_its_endpoint_and_a_key() {
    let host = TestHost::start();
    let client = host.client();
    let endpoint = host.deploy(&guests::echo(), "read", json!({})).await;
    let job = client.submit(&endpoint, json!({})).await;
    client.until(&endpoint, &job, "COMPLETED").await;
    client.get(&client.path(&endpoint, "timeline/none")).await.refused(404);
    let other = host.deploy(&guests::echo(), "other", json!({})).await;
    client.get(&client.path(&other, &format!("timeline/{job}"))).await.refused(404);
    let nobody = client.with_authorization(None);
    nobody.get(&client.path(&endpoint, &format!("timeline/{job}"))).await.refused(401);
}
