//! What a handler wishes for its job if the attempt fails: another attempt at a time of its choice,
//! or none.

use gristmill_tests::{Client, TestHost, guests, shared_host};
use serde_json::{Value, json};

/// An endpoint whose rule alone would let a failed job wait for ten minutes.
async fn patient_endpoint(host: &TestHost, name: &str) -> String {
    let settings = json!({ "retry": { "maxAttempts": 3, "initialDelayMs": 600_000 } });
    host.deploy(&guests::playground(), name, settings).await
}

/// The attempts that failed before another one, by the timeline of the job.
async fn repeated(client: &Client, endpoint: &str, job: &Value) -> Vec<u64> {
    let path = client.path(endpoint, &format!("timeline/{}", job["id"].as_str().unwrap()));
    let timeline = client.get(&path).await.ok();
    let events = timeline["events"].as_array().unwrap();
    let failed = events.iter().filter(|event| event["event"] == "failed");
    failed.map(|event| event["attempt"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_job_runs_again_when_its_handler_wishes_as_often_as_the_rule_permits() {
    let host = shared_host();
    let client = host.client();
    let endpoint = patient_endpoint(&host, "wish-soon").await;
    let input = json!({ "op": "fail", "message": "no flour", "retry_after_ms": 1 });
    let job = client.finish(&endpoint, input).await;
    assert_eq!(job["status"], "FAILED", "{job}");
    assert!(job["error"].as_str().unwrap().contains("no flour"), "{job}");
    assert_eq!(repeated(&client, &endpoint, &job).await, [1, 2]);
}

#[tokio::test]
async fn a_job_whose_handler_wishes_no_other_attempt_ends() {
    let host = shared_host();
    let client = host.client();
    let endpoint = patient_endpoint(&host, "wish-never").await;
    let job = client.finish(&endpoint, json!({ "op": "fail", "never_retry": true })).await;
    assert_eq!(job["status"], "FAILED", "{job}");
    assert_eq!(repeated(&client, &endpoint, &job).await, Vec::<u64>::new());
}
