//! The contract's rules about `GET /{endpoint}/status/{job}`, one test for each.

use reqwest::Method;
use serde_json::json;

use crate::support::{clocked, echo, failing, forever, id, one_worker, paused, shared};

/// Reads state, statistics and result of a job.
#[tokio::test]
async fn reads_a_job() {
    let endpoint = shared("status-purpose", json!({})).await;
    let job = endpoint.submit(echo()).await;
    let done = endpoint.until(&job, "COMPLETED").await;
    assert!(done["delayTime"].is_u64() && done["executionTime"].is_u64(), "{done}");
    assert_eq!(done["output"], json!({ "echo": "grain" }));
    assert_eq!(endpoint.status(&job).await.ok(), done, "reading changes nothing");
}

/// It takes no body; a body is ignored.
#[tokio::test]
async fn no_body() {
    let endpoint = shared("status-body", paused()).await;
    let job = endpoint.submit(echo()).await;
    let answer = endpoint.with_nonsense_body(Method::GET, &format!("status/{job}")).await;
    assert_eq!(answer.ok()["status"], "IN_QUEUE");
}

/// `?ttl=6000` leaves the job 6 more seconds, whether it waits, runs or has ended.
#[tokio::test]
async fn ttl_query() {
    let endpoint = clocked("status-ttl", one_worker()).await;
    let ended = id(&endpoint.finish(echo()).await);
    let running = endpoint.running(forever()).await;
    let queued = endpoint.submit(echo()).await;
    endpoint.host.advance(500);
    let jobs = [(ended, "COMPLETED"), (running, "IN_PROGRESS"), (queued, "IN_QUEUE")];
    for (job, status) in &jobs {
        let answer = endpoint.status(&format!("{job}?ttl=6000")).await.ok();
        assert_eq!(answer["status"], *status, "the call itself still finds the job");
    }
    endpoint.host.advance(5_999);
    for (job, _) in &jobs {
        endpoint.status(job).await.ok();
    }
    endpoint.host.advance(1);
    for (job, _) in &jobs {
        endpoint.assert_gone(job).await;
    }
}

/// The answer is the job's result, with its present status and an optional output.
#[tokio::test]
async fn response() {
    let endpoint = shared("status-response", one_worker()).await;
    let completed = id(&endpoint.finish(echo()).await);
    let failed = id(&endpoint.finish(failing()).await);
    let running = endpoint.running(forever()).await;
    let queued = endpoint.submit(echo()).await;
    for (job, status) in [
        (&completed, "COMPLETED"),
        (&failed, "FAILED"),
        (&running, "IN_PROGRESS"),
        (&queued, "IN_QUEUE"),
    ] {
        let document = endpoint.status(job).await.ok();
        assert_eq!((&document["id"], &document["status"]), (&json!(job), &json!(status)));
        assert!(document["delayTime"].is_u64(), "{document}");
        assert!(document["executionTime"].is_u64(), "{document}");
        assert_eq!(document.get("output").is_some(), status == "COMPLETED", "{document}");
    }
    endpoint.cancel(&running).await.ok();
}

/// A job that was deleted because its ttl is over is a 404.
#[tokio::test]
async fn deleted_is_404() {
    let endpoint = clocked("status-deleted", paused()).await;
    let job = endpoint.submit_with(echo(), json!({ "ttl": 10_000 })).await;
    endpoint.host.advance(10_000);
    endpoint.status(&job).await.refused(404);
}
