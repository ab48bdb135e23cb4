//! `POST /{endpoint}/purge-queue`, and the fields of its result.

use reqwest::Method;
use serde_json::json;

use crate::support::{echo, forever, one_worker, paused, shared};

/// It takes no body; a body is ignored.
#[tokio::test]
async fn no_body() {
    let endpoint = shared("purge-body", paused()).await;
    let answer = endpoint.with_nonsense_body(Method::POST, "purge-queue").await;
    assert_eq!(answer.ok()["status"], "completed");
}

/// It removes all waiting jobs; running and ended jobs stay.
#[tokio::test]
async fn removes_the_waiting_jobs() {
    let endpoint = shared("purge-removes", one_worker()).await;
    let done = endpoint.finish(echo()).await;
    let running = endpoint.running(json!({ "op": "sleep", "ms": 8_000 })).await;
    let waiting = [endpoint.submit(echo()).await, endpoint.submit(forever()).await];
    endpoint.purge().await.ok();
    for job in &waiting {
        endpoint.assert_gone(job).await;
    }
    endpoint.until(&running, "COMPLETED").await;
    assert_eq!(endpoint.status(done["id"].as_str().unwrap()).await.ok(), done);
    assert_eq!(endpoint.finish(echo()).await["status"], "COMPLETED", "jobs are taken as before");
}

/// `removed` is the number of jobs that were removed.
#[tokio::test]
async fn removed() {
    let endpoint = shared("purge-removed", paused()).await;
    for _ in 0..5 {
        endpoint.submit(echo()).await;
    }
    assert_eq!(endpoint.purge().await.ok()["removed"], 5);
    assert_eq!(endpoint.purge().await.ok()["removed"], 0);
}

/// `status` is always `completed`, and there is no third field.
#[tokio::test]
async fn status() {
    let endpoint = shared("purge-status", paused()).await;
    assert_eq!(endpoint.purge().await.ok(), json!({ "removed": 0, "status": "completed" }));
}
