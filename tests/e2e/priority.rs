//! `lowPriority`: such a job uses workers that exist; it never starts one, and yields to others.

use std::time::Duration;

use gristmill_tests::{guests, shared_host};
use serde_json::json;

#[tokio::test]
async fn a_low_priority_job_starts_no_worker() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "low-start", json!({})).await;
    let low = json!({ "lowPriority": true });
    let job = host.client.submit_with(&endpoint, json!({ "op": "echo" }), low).await;
    tokio::time::sleep(Duration::from_millis(800)).await;
    let document = host.client.until(&endpoint, &job, "IN_QUEUE").await;
    println!("a low-priority job waits because: {}", document["reason"]);
    let workers = &host.client.health(&endpoint).await["workers"];
    assert_eq!((&workers["running"], &workers["idle"]), (&json!(0), &json!(0)), "{workers}");
    // A normal job starts one, and then that one takes the other job too.
    assert_eq!(host.client.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
    host.client.until(&endpoint, &job, "COMPLETED").await;
}

#[tokio::test]
async fn a_low_priority_job_yields_to_normal_ones() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1, "workersMin": 1 });
    let endpoint = host.deploy(&guests::playground(), "low-yields", settings).await;
    let first = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    host.client.until(&endpoint, &first, "IN_PROGRESS").await;
    let low = json!({ "lowPriority": true });
    let later = host.client.submit_with(&endpoint, json!({ "op": "echo" }), low).await;
    let mut normal = vec![];
    for _ in 0..3 {
        normal.push(host.client.submit(&endpoint, json!({ "op": "sleep", "ms": 150 })).await);
    }
    host.client.cancel(&endpoint, &first).await.ok();
    host.client.until(&endpoint, &later, "COMPLETED").await;
    for job in &normal {
        let document = host.client.status(&endpoint, job).await.ok();
        assert_eq!(document["status"], "COMPLETED", "before the low-priority job: {document}");
    }
}

/// A change of the endpoint looks at the queue anew; what waits there with low priority must not
/// count as a reason for a worker.
#[tokio::test]
async fn a_change_of_the_endpoint_starts_no_worker_for_a_low_priority_job() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "low-change", json!({})).await;
    let low = json!({ "lowPriority": true });
    let job = host.client.submit_with(&endpoint, json!({ "op": "echo" }), low).await;
    let change = json!({ "env": { "GRAIN": "rye" } });
    host.client.patch(&format!("/v1/endpoints/{endpoint}"), &change).await.ok();
    tokio::time::sleep(Duration::from_millis(500)).await;
    host.client.until(&endpoint, &job, "IN_QUEUE").await;
}
