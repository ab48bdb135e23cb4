//! `POST /{endpoint}/retry/{job}`, sentence by sentence.

use reqwest::Method;
use serde_json::json;

use crate::support::{MINUTE, clocked, echo, failing, forever, id, one_worker, shared};

/// It takes no body; a body is ignored.
#[tokio::test]
async fn no_body() {
    let endpoint = shared("retry-body", json!({})).await;
    let job = id(&endpoint.finish(failing()).await);
    let answer = endpoint.with_nonsense_body(Method::POST, &format!("retry/{job}")).await;
    assert_eq!(answer.ok()["status"], "IN_QUEUE");
}

/// It works for FAILED and TIMED_OUT jobs only; in any other state the job stays as it is.
#[tokio::test]
async fn only_failed_or_timed_out() {
    let endpoint = shared("retry-states", one_worker()).await;
    let completed = id(&endpoint.finish(echo()).await);
    let failed = id(&endpoint.finish(failing()).await);
    let timed_out = endpoint.timed_out().await;
    let running = endpoint.running(forever()).await;
    let queued = endpoint.submit(echo()).await;
    let cancelled = endpoint.submit(echo()).await;
    endpoint.cancel(&cancelled).await.ok();
    for (job, status) in [
        (&completed, "COMPLETED"),
        (&running, "IN_PROGRESS"),
        (&queued, "IN_QUEUE"),
        (&cancelled, "CANCELLED"),
    ] {
        endpoint.retry(job).await.refused(400);
        assert_eq!(endpoint.status(job).await.ok()["status"], status);
    }
    for job in [&failed, &timed_out] {
        assert_eq!(endpoint.retry(job).await.ok()["status"], "IN_QUEUE");
        // It waits now, and cannot be retried a second time.
        endpoint.retry(job).await.refused(400);
    }
    endpoint.cancel(&running).await.ok();
}

/// It keeps the id, queues the job again with its input, and deletes the results of the last
/// attempt.
#[tokio::test]
async fn keeps_the_id_and_input() {
    let endpoint = shared("retry-keeps", json!({})).await;
    let input = json!({ "op": "fail", "message": "no rye", "value": "half a sack" });
    let failed = endpoint.finish(input).await;
    assert_eq!((&failed["error"], &failed["output"]), (&json!("no rye"), &json!("half a sack")));
    let input = json!({ "op": "emit", "values": [1, 2], "message": "no oats" });
    let (job, streamed) = (id(&failed), id(&endpoint.finish(input).await));
    let chunks =
        async || endpoint.stream(&format!("{streamed}?from=0&wait=0")).await.chunks().len();
    assert_eq!(chunks().await, 2);
    endpoint.set_workers_max(0).await;
    endpoint.retry(&job).await.ok();
    endpoint.retry(&streamed).await.ok();
    assert_eq!(chunks().await, 0);
    let document = endpoint.status(&job).await.ok();
    assert_eq!((&document["id"], &document["status"]), (&json!(job), &json!("IN_QUEUE")));
    assert!(document.get("error").is_none() && document.get("output").is_none(), "{document}");
    endpoint.set_workers_max(1).await;
    assert_eq!(endpoint.until(&job, "FAILED").await["error"], "no rye");
}

/// On an endpoint whose queue is full it is refused like a submission, and the job stays as it is.
#[tokio::test]
async fn a_full_queue_takes_no_retry() {
    let endpoint = shared("retry-full", json!({ "maxWaitingJobs": 2 })).await;
    let mut failed = vec![];
    for _ in 0..3 {
        failed.push(id(&endpoint.finish(failing()).await));
    }
    endpoint.set_workers_max(0).await;
    for job in &failed[..2] {
        endpoint.retry(job).await.ok();
    }
    let refused = endpoint.retry(&failed[2]).await;
    assert_eq!((refused.status, &refused.json()["code"]), (429, &json!("queue_full")));
    assert!(refused.header("retry-after").is_some());
    assert_eq!(endpoint.status(&failed[2]).await.ok()["status"], "FAILED");
    endpoint.cancel(&failed[0]).await.ok();
    endpoint.retry(&failed[2]).await.ok();
}

/// The answer is an object with the id and the status IN_QUEUE.
#[tokio::test]
async fn response() {
    let endpoint = shared("retry-response", json!({})).await;
    let job = id(&endpoint.finish(failing()).await);
    let answer = endpoint.retry(&job).await.ok();
    assert_eq!(answer, json!({ "id": job, "status": "IN_QUEUE" }));
}

/// A caller who has shortened the life of a job can rely on its end.
#[tokio::test]
async fn a_shortened_ttl_survives_a_retry() {
    let endpoint = clocked("retry-short", one_worker()).await;
    let failed = id(&endpoint.finish(failing()).await);
    endpoint.status(&format!("{failed}?ttl={MINUTE}")).await.ok();
    endpoint.retry(&failed).await.ok();
    endpoint.until(&failed, "FAILED").await;
    endpoint.host.advance(MINUTE - 1);
    endpoint.status(&failed).await.ok();
    endpoint.host.advance(1);
    endpoint.assert_gone(&failed).await;
}
