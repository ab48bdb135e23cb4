//! Jobs that start later: `policy.delay` and `policy.runAt`.

use std::time::{Duration, Instant};

use gristmill_tests::{TestHost, guests, shared_host};
use serde_json::{Value, json};

/// A job that waits for its time.
async fn delayed(host: &TestHost, endpoint: &str, ms: u64) -> String {
    let body = json!({ "input": { "n": 1 }, "policy": { "delay": ms } });
    let answer = host.client().post(&format!("/v2/{endpoint}/run"), &body).await.ok();
    answer["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_job_waits_for_its_time_also_over_a_crash() {
    const DELAY: Duration = Duration::from_secs(3);
    let mut host = TestHost::start();
    let echo = host.deploy(&guests::echo(), "echo", json!({})).await;
    let began = Instant::now();
    let job = delayed(&host, &echo, DELAY.as_millis().try_into().unwrap()).await;
    let far = delayed(&host, &echo, 604_800_000).await;
    let client = host.client();
    let shown = client.status(&echo, &job).await.ok();
    assert_eq!((&shown["status"], &shown["delayTime"]), (&"IN_QUEUE".into(), &0.into()));
    assert_eq!(shown["reason"], "the job waits for its time (runAt)");
    assert_eq!(shown["runAt"].as_str().unwrap().len(), "2026-01-31T08:00:00.000Z".len());
    assert_eq!(client.health(&echo).await["jobs"]["inQueue"], 2);
    host.kill9();
    host.start_again();
    let client = host.client();
    let done = client.until(&echo, &job, "COMPLETED").await;
    assert!(began.elapsed() >= DELAY);
    assert_eq!(done.get("runAt"), None);
    assert_eq!(client.status(&echo, &far).await.ok()["status"], "IN_QUEUE");
    // A purge removes it like any waiting job.
    let purged = client.post(&format!("/v2/{echo}/purge-queue"), &Value::Null).await.ok();
    assert_eq!(purged["removed"], 1);
    assert_eq!(client.status(&echo, &far).await.status, 404);
}

#[tokio::test]
async fn a_time_is_given_once_and_is_at_most_seven_days_away() {
    let host = shared_host();
    let client = host.client();
    let echo = host.deploy(&guests::echo(), "echo-later", json!({})).await;
    let run = async |policy: Value| {
        let body = json!({ "input": {}, "policy": policy });
        client.post(&format!("/v2/{echo}/run"), &body).await
    };
    for (policy, complaint) in [
        (json!({ "delay": 604_800_001 }), "policy.delay must be 0 to 604800000 ms"),
        (json!({ "runAt": "2999-01-01" }), "policy.runAt must be 0 to 604800000 ms away"),
        (json!({ "runAt": "tomorrow" }), "`policy.runAt` must be a time from 1970 on"),
        (json!({ "delay": 1, "runAt": "2026-01-01" }), "give only one of"),
    ] {
        let refused = run(policy).await.refused(400);
        assert!(refused.contains(complaint), "{refused}");
    }
    // A time that has passed is now.
    let job = run(json!({ "runAt": "2026-01-01T00:00:00Z" })).await.ok();
    client.until(&echo, job["id"].as_str().unwrap(), "COMPLETED").await;
}
