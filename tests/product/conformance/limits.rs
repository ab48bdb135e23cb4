//! Limits in combination: ttl with executionTimeout, and `wait` with the retention of results.

use gristmill_tests::eventually;
use serde_json::json;

use crate::support::{DAY, MINUTE, clocked, echo, forever, id, one_worker, paused, shared};

/// ttl covers the time in the queue and the time of execution together.
#[tokio::test]
async fn ttl_covers_queue_and_execution() {
    let endpoint = clocked("limits-ttl", paused()).await;
    let job = endpoint.submit_with(forever(), json!({ "ttl": 10 * MINUTE })).await;
    endpoint.host.advance(6 * MINUTE);
    endpoint.set_workers_max(1).await;
    endpoint.until(&job, "IN_PROGRESS").await;
    endpoint.host.advance(4 * MINUTE - 1);
    let running = endpoint.status(&job).await.ok();
    assert_eq!(running["delayTime"], 6 * MINUTE);
    assert_eq!(running["executionTime"], 4 * MINUTE - 1);
    endpoint.host.advance(1);
    endpoint.assert_gone(&job).await;
    assert_eq!(endpoint.finish(echo()).await["status"], "COMPLETED", "its worker is free");
}

/// executionTimeout counts only while a worker executes the job, not while it waits.
#[tokio::test]
async fn execution_timeout_counts_execution_only() {
    let endpoint = shared("limits-timeout", one_worker()).await;
    let first = endpoint.running(forever()).await;
    let job = endpoint.submit_with(echo(), json!({ "executionTimeout": 5_000 })).await;
    eventually("the second job to wait for longer than its executionTimeout", async || {
        let waiting = endpoint.status(&job).await.ok();
        assert_eq!(waiting["status"], "IN_QUEUE", "{waiting}");
        (waiting["delayTime"].as_u64() >= Some(5_500)).then_some(())
    })
    .await;
    endpoint.cancel(&first).await.ok();
    let done = endpoint.until(&job, "COMPLETED").await;
    assert!(done["delayTime"].as_u64() >= Some(5_500), "{done}");
}

/// With a ttl of 7 days, the maximum, and 2 days in the queue, 5 days remain for execution.
#[tokio::test]
async fn two_of_seven_days_queued_leave_five() {
    let endpoint = clocked("limits-days", paused()).await;
    let week = json!({ "ttl": 7 * DAY, "executionTimeout": 7 * DAY });
    let job = endpoint.submit_with(forever(), week).await;
    endpoint.host.advance(2 * DAY);
    endpoint.set_workers_max(1).await;
    endpoint.until(&job, "IN_PROGRESS").await;
    endpoint.host.advance(5 * DAY - 1);
    let running = endpoint.status(&job).await.ok();
    assert_eq!(running["status"], "IN_PROGRESS");
    assert_eq!(
        (&running["delayTime"], &running["executionTime"]),
        (&json!(2 * DAY), &json!(5 * DAY - 1))
    );
    endpoint.host.advance(1);
    endpoint.assert_gone(&job).await;
}

/// /runsync waits for at most 300000 ms, and keeps the result for no longer than that, however long
/// the requested wait.
#[tokio::test]
async fn longest_wait() {
    let endpoint = clocked("limits-wait", json!({})).await;
    let job = id(&endpoint.run_sync("?wait=86400000", echo()).await.ok());
    endpoint.host.advance(5 * MINUTE - 1);
    endpoint.status(&job).await.ok();
    endpoint.host.advance(1);
    endpoint.assert_gone(&job).await;
}
