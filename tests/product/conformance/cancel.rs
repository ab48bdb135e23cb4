//! `POST /{endpoint}/cancel/{job}`, sentence by sentence.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;

use crate::support::{computing, echo, forever, one_worker, paused, shared};

/// It takes no body; a body is ignored.
#[tokio::test]
async fn no_body() {
    let endpoint = shared("cancel-body", paused()).await;
    let job = endpoint.submit(echo()).await;
    let answer = endpoint.with_nonsense_body(Method::POST, &format!("cancel/{job}")).await;
    assert_eq!(answer.ok()["status"], "CANCELLED");
}

/// It stops a running job or removes a waiting one, and answers at once.
#[tokio::test]
async fn stops_or_removes_at_once() {
    let endpoint = shared("cancel-stops", one_worker()).await;
    let running = endpoint.running(computing()).await;
    let queued = endpoint.submit(forever()).await;
    let begun = Instant::now();
    endpoint.cancel(&queued).await.ok();
    endpoint.cancel(&running).await.ok();
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    assert_eq!(endpoint.finish(echo()).await["status"], "COMPLETED", "the worker is free");
    for job in [&running, &queued] {
        assert_eq!(endpoint.status(job).await.ok()["status"], "CANCELLED");
    }
}

/// The answer is an object with the id and the status CANCELLED.
#[tokio::test]
async fn response() {
    let endpoint = shared("cancel-response", paused()).await;
    let job = endpoint.submit(echo()).await;
    let answer = endpoint.cancel(&job).await.ok();
    assert_eq!(answer, json!({ "id": job, "status": "CANCELLED" }));
}
