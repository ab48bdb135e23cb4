//! Limits of starts: of an endpoint, and of each key; head starts; submissions that replace others.

use std::time::{Duration, Instant};

use gristmill_tests::{Client, TestHost, eventually, guests, shared_host};
use serde_json::{Value, json};

async fn submit(client: &Client, endpoint: &str, input: Value, policy: Value) -> String {
    let body = json!({ "input": input, "policy": policy });
    let answer = client.post(&format!("/v2/{endpoint}/run"), &body).await.ok();
    answer["id"].as_str().unwrap().to_owned()
}

fn sleeping() -> Value {
    json!({ "op": "sleep_forever" })
}

#[tokio::test]
async fn a_key_at_its_limit_waits_with_a_reason_and_holds_up_no_other() {
    let mut host = TestHost::start();
    let limits = json!({ "workersMax": 4, "keys": { "concurrency": 1 } });
    let endpoint = host.deploy(&guests::playground(), "mill", limits).await;
    let client = host.client();
    let acme = json!({ "key": "acme" });
    let first = submit(&client, &endpoint, sleeping(), acme.clone()).await;
    client.until(&endpoint, &first, "IN_PROGRESS").await;
    let second = submit(&client, &endpoint, json!({ "op": "echo" }), acme.clone()).await;
    let other = submit(&client, &endpoint, json!({ "op": "echo" }), json!({ "key": "b" })).await;
    client.until(&endpoint, &other, "COMPLETED").await;
    let waits = client.status(&endpoint, &second).await.ok();
    let reason =
        "as many jobs of the key `acme` run as `keys.concurrency` of the endpoint permits: 1";
    assert_eq!((&waits["status"], &waits["reason"]), (&"IN_QUEUE".into(), &reason.into()));
    // The first job runs again after a crash, and still counts.
    host.kill9();
    host.start_again();
    let client = host.client();
    client.until(&endpoint, &first, "IN_PROGRESS").await;
    assert_eq!(client.status(&endpoint, &second).await.ok()["reason"], reason);
    client.post(&format!("/v2/{endpoint}/cancel/{first}"), &Value::Null).await.ok();
    client.until(&endpoint, &second, "COMPLETED").await;
    // Without the limit two run at one time.
    client.patch("/v1/endpoints/mill", &json!({ "keys": { "concurrency": 0 } })).await.ok();
    for _ in 0..2 {
        let job = submit(&client, &endpoint, sleeping(), acme.clone()).await;
        client.until(&endpoint, &job, "IN_PROGRESS").await;
    }
}

#[tokio::test]
async fn a_rate_and_a_throttle_let_jobs_start_in_time() {
    let host = TestHost::start();
    let throttle = json!({ "jobs": 2, "perMs": 1_000 });
    let paced = host.deploy(&guests::echo(), "paced", json!({ "throttle": throttle })).await;
    let rate = json!({ "rate": { "jobs": 1, "perMs": 600_000, "burst": 2 } });
    let keyed = host.deploy(&guests::echo(), "keyed", json!({ "keys": rate })).await;
    let client = host.client();
    let began = Instant::now();
    let mut jobs = Vec::new();
    for _ in 0..5 {
        jobs.push(submit(&client, &paced, json!({}), json!({})).await);
    }
    for job in &jobs {
        client.until(&paced, job, "COMPLETED").await;
    }
    assert!(began.elapsed() >= Duration::from_secs(2), "five starts need four intervals");
    // The host has just started, so the burst of the key counts as used.
    let key = json!({ "key": "a" });
    let waits = submit(&client, &keyed, json!({}), key).await;
    let free = submit(&client, &keyed, json!({}), json!({})).await;
    client.until(&keyed, &free, "COMPLETED").await;
    let shown = client.status(&keyed, &waits).await.ok();
    let reason = shown["reason"].as_str().unwrap();
    assert!(reason.starts_with("the key `a` may start a job in ") && reason.contains("keys.rate"));
    let shown = client.get("/v1/endpoints/keyed").await.ok();
    assert_eq!(shown["keys"]["rate"], json!({ "jobs": 1, "perMs": 600_000, "burst": 2 }));
    client.patch("/v1/endpoints/keyed", &json!({ "keys": { "rate": { "jobs": 0 } } })).await.ok();
    client.until(&keyed, &waits, "COMPLETED").await;
}

#[tokio::test]
async fn a_priority_is_a_head_start() {
    let host = TestHost::start();
    let endpoint = host.deploy(&guests::echo(), "mill", json!({ "paused": true })).await;
    let client = host.client();
    let plain = submit(&client, &endpoint, json!({}), json!({})).await;
    let urgent = submit(&client, &endpoint, json!({}), json!({ "priority": 9 })).await;
    client.patch("/v1/endpoints/mill", &json!({ "workersMax": 1, "paused": false })).await.ok();
    let started = async |job: &str| {
        client.until(&endpoint, job, "COMPLETED").await;
        let timeline = client.get(&format!("/v2/{endpoint}/timeline/{job}")).await.ok();
        let events = timeline["events"].as_array().unwrap().clone();
        let at = events.iter().find(|event| event["event"] == "started").unwrap();
        at["at"].as_str().unwrap().to_owned()
    };
    assert!(started(&urgent).await <= started(&plain).await);
    let found = client.get("/v1/jobs?tag=policy/priority:9").await.ok();
    assert_eq!(found["jobs"][0]["id"], urgent.as_str());
}

#[tokio::test]
async fn the_last_submission_of_a_key_wins() {
    let mut host = TestHost::start();
    let endpoint = host.deploy(&guests::echo(), "mill", json!({})).await;
    let client = host.client();
    let policy = json!({ "key": "a", "debounceMs": 600_000, "debounceMaxMs": 600_000 });
    let first = submit(&client, &endpoint, json!({ "n": 1 }), policy.clone()).await;
    let other = json!({ "key": "b", "debounceMs": 600_000 });
    let other = submit(&client, &endpoint, json!({}), other).await;
    host.kill9();
    host.start_again();
    let client = host.client();
    let due = |shown: &Value| shown["runAt"].as_str().unwrap().to_owned();
    let first_due = due(&client.status(&endpoint, &first).await.ok());
    let second = submit(&client, &endpoint, json!({ "n": 2 }), policy).await;
    client.until(&endpoint, &first, "CANCELLED").await;
    assert_eq!(client.status(&endpoint, &other).await.ok()["status"], "IN_QUEUE");
    // They wait together no longer than the first one would have.
    assert_eq!(due(&client.status(&endpoint, &second).await.ok()), first_due);
    let soon = json!({ "key": "a", "debounceMs": 100 });
    let last = submit(&client, &endpoint, json!({ "n": 3 }), soon).await;
    let done = client.until(&endpoint, &last, "COMPLETED").await;
    assert_eq!(done["output"]["n"], 3, "{done}");
    client.until(&endpoint, &second, "CANCELLED").await;
    eventually("one job waits", async || {
        (client.health(&endpoint).await["jobs"]["inQueue"] == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn wrong_limits_are_named() {
    let host = shared_host();
    let client = host.client();
    let endpoint = host.deploy(&guests::echo(), "echo-limits", json!({})).await;
    for (policy, complaint) in [
        (json!({ "priority": 10 }), "`policy.priority` must be 0 to 9"),
        (json!({ "priority": -1 }), "`policy.priority` must be 0 to 9"),
        (json!({ "debounceMs": 5 }), "`policy.debounceMs` needs `policy.key`"),
        (json!({ "debounceMaxMs": 5, "key": "a" }), "needs `policy.debounceMs`"),
        (json!({ "key": "a", "debounceMs": 0 }), "policy.debounceMs must be 1 to 604800000 ms"),
        (json!({ "key": "a", "debounceMs": 1, "delay": 1 }), "give only one of"),
    ] {
        let body = json!({ "input": {}, "policy": policy });
        let refused = client.post(&format!("/v2/{endpoint}/run"), &body).await.refused(400);
        assert!(refused.contains(complaint), "{refused}");
    }
    for (settings, complaint) in [
        (json!({ "keys": { "weights": { "": 1 } } }), "`keys.weights` has the key ``"),
        (json!({ "keys": { "weights": { "a": 0 } } }), "`keys.weights.a` must be 1 to 1000, not 0"),
        (json!({ "keys": { "weights": { "a": -1 } } }), "`keys.weights.a`"),
        (json!({ "throttle": { "burst": 0 } }), "`throttle.burst` must be 1 to 10000, not 0"),
        (json!({ "keys": { "rate": { "perMs": 0 } } }), "`keys.rate.perMs` must be"),
    ] {
        let path = format!("/v1/endpoints/{endpoint}");
        let refused = client.patch(&path, &settings).await.refused(400);
        assert!(refused.contains(complaint), "{refused}");
    }
}
