//! Conditions of a job that the contract lists: waiting, failed, timed out, expired.

use serde_json::json;

use crate::support::{MINUTE, clocked, echo, failing, forever, id, one_worker, paused, shared};

/// A job stays in the queue while there is no worker, or while the maximum of workers is busy.
#[tokio::test]
async fn stays_in_queue() {
    let busy = shared("condition-busy", one_worker()).await;
    let running = busy.running(forever()).await;
    let none = shared("condition-paused", paused()).await;
    for endpoint in [&busy, &none] {
        let job = endpoint.submit(echo()).await;
        let document = endpoint.status(&job).await.ok();
        assert_eq!(document["status"], "IN_QUEUE");
        assert!(!document["reason"].as_str().unwrap_or_default().is_empty(), "{document}");
    }
    busy.cancel(&running).await.ok();
}

/// A job that runs longer than its executionTimeout times out.
#[tokio::test]
async fn timeout() {
    let endpoint = shared("condition-timeout", one_worker()).await;
    let job = endpoint.timed_out().await;
    let document = endpoint.status(&job).await.ok();
    assert_eq!(document["status"], "TIMED_OUT");
    assert!(document["executionTime"].as_u64() >= Some(5_000), "{document}");
}

/// A job fails by its handler's own error, by a trap, and by an input that the handler rejects.
#[tokio::test]
async fn failed_job() {
    let endpoint = shared("condition-failed", json!({})).await;
    for input in [failing(), json!({ "op": "trap" }), json!({ "op": "no such op" })] {
        let document = endpoint.finish(input).await;
        assert_eq!(document["status"], "FAILED");
        assert!(!document["error"].as_str().unwrap_or_default().is_empty(), "{document}");
    }
}

/// A result is missing once it has expired: 30 minutes after a /run, 1 minute after a /runsync.
#[tokio::test]
async fn missing_result() {
    let endpoint = clocked("condition-missing", json!({})).await;
    let job = id(&endpoint.finish(echo()).await);
    let sync = id(&endpoint.run_sync("", echo()).await.ok());
    endpoint.host.advance(MINUTE);
    endpoint.status(&sync).await.refused(404);
    endpoint.status(&job).await.ok();
    endpoint.host.advance(29 * MINUTE);
    endpoint.status(&job).await.refused(404);
}

/// An expired job cannot be retried.
#[tokio::test]
async fn retry_of_an_expired_job() {
    let endpoint = clocked("condition-expired", json!({})).await;
    let job = id(&endpoint.finish(failing()).await);
    endpoint.host.advance(30 * MINUTE);
    endpoint.retry(&job).await.refused(404);
    assert_eq!(endpoint.health().await["jobs"]["inQueue"], 0);
}
