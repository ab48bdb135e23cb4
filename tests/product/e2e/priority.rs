//! `lowPriority`, when the endpoint changes.

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
    // Jobs of another endpoint begin and end after the change: a worker that the change had started
    // would exist by now.
    let other = host.deploy(&guests::echo(), "low-change-other", json!({})).await;
    for _ in 0..3 {
        host.client.finish(&other, json!({})).await;
    }
    let waiting = host.client.status(&endpoint, &job).await.ok();
    assert_eq!(waiting["status"], "IN_QUEUE", "{waiting}");
    assert_eq!(waiting["reason"], "no worker runs, and a lowPriority job does not start one");
}
