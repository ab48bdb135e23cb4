//! `lowPriority`, when the endpoint changes.

use std::time::Duration;

use gristmill_tests::{guests, shared_host};
use serde_json::json;

/// A change of the endpoint checks the queue again; waiting jobs with low priority must not start a
/// worker.
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
