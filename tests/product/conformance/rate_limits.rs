//! Rate limits with their documented numbers: calls of an operation in ten seconds, for each
//! endpoint. The host's clock stands still unless a test moves it.

use futures::future::join_all;
use gristmill_tests::{Answer, Clocked, guests};
use serde_json::json;

use crate::support::{Endpoint, SECOND, UNKNOWN_JOB, clocked, echo, paused};

/// Asserts that without earlier calls exactly `limit` calls are admitted, `at_once` at one time,
/// and that the next one is refused.
async fn assert_limit(
    name: &str,
    limit: usize,
    at_once: usize,
    call: impl AsyncFn(&Endpoint<Clocked>) -> Answer,
) {
    let endpoint = clocked(name, paused()).await;
    let mut left = limit;
    while left > 0 {
        let batch = left.min(at_once);
        for answer in join_all((0..batch).map(|_| call(&endpoint))).await {
            assert_ne!(answer.status, 429, "{left} of {limit} calls are left: {answer:?}");
        }
        left -= batch;
    }
    let refused = call(&endpoint).await;
    assert_eq!(refused.status, 429, "{refused:?}");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
}

/// /run: 1000 in 10 seconds.
#[tokio::test]
async fn run() {
    assert_limit("rate-run", 1_000, 40, async |endpoint| {
        let answer = endpoint.post("run", &json!({ "input": echo() })).await;
        assert!(matches!(answer.status, 200 | 429), "{answer:?}");
        answer
    })
    .await;
}

/// /runsync: 2000 in 10 seconds. Invalid calls count too: these have no body.
#[tokio::test]
async fn runsync() {
    assert_limit("rate-runsync", 2_000, 40, async |endpoint| endpoint.post_empty("runsync").await)
        .await;
}

/// /status: 2000 in 10 seconds.
#[tokio::test]
async fn status() {
    assert_limit("rate-status", 2_000, 40, async |endpoint| endpoint.status(UNKNOWN_JOB).await)
        .await;
}

/// /stream: 2000 in 10 seconds.
#[tokio::test]
async fn stream() {
    assert_limit("rate-stream", 2_000, 40, async |endpoint| endpoint.stream(UNKNOWN_JOB).await)
        .await;
}

/// /cancel: 100 in 10 seconds.
#[tokio::test]
async fn cancel() {
    assert_limit("rate-cancel", 100, 10, async |endpoint| endpoint.cancel(UNKNOWN_JOB).await).await;
}

/// /purge-queue: 2 in 10 seconds.
#[tokio::test]
async fn purge_queue() {
    assert_limit("rate-purge", 2, 1, async |endpoint| endpoint.purge().await).await;
}

/// /openai/*: 2000 in 10 seconds. Invalid calls count too: these bodies are not objects.
#[tokio::test]
async fn openai() {
    assert_limit("rate-openai", 2_000, 40, async |endpoint| {
        endpoint.post("openai/v1/models", &json!([])).await
    })
    .await;
}

/// /requests: 10 in 10 seconds.
#[tokio::test]
async fn requests() {
    assert_limit("rate-requests", 10, 1, async |endpoint| endpoint.get("requests").await).await;
}

/// The limits count separately for each endpoint and operation, and for all keys of one owner
/// together.
#[tokio::test]
async fn for_each_endpoint_and_operation() {
    let endpoint = clocked("rate-apart", paused()).await;
    let other = endpoint.host.deploy(&guests::playground(), "rate-apart-other", paused()).await;
    let second = endpoint.client.with_scopes(&["submit"]).await;
    endpoint.purge().await.ok();
    second.sdk().purge(&endpoint.id).await.ok();
    endpoint.purge().await.refused(429);
    second.purge(&endpoint.id).await.refused(429);
    endpoint.client.purge(&other).await.ok();
    endpoint.submit(echo()).await;
    endpoint.health().await;
}

/// A refusal is a 429 with Retry-After, RateLimit and RateLimit-Policy. Retry-After is correct: a
/// call after that time is admitted.
#[tokio::test]
async fn a_true_retry_after() {
    let endpoint = clocked("rate-retry-after", paused()).await;
    endpoint.purge().await.ok();
    endpoint.host.advance(SECOND);
    endpoint.purge().await.ok();
    let refused = endpoint.purge().await;
    refused.refused(429);
    assert_eq!(refused.header("retry-after"), Some("4"), "{refused:?}");
    assert_eq!(refused.header("ratelimit-policy"), Some("\"purge-queue\";q=2;w=10"));
    assert_eq!(refused.header("ratelimit"), Some("\"purge-queue\";r=0;t=4"));

    endpoint.host.advance(3 * SECOND);
    endpoint.purge().await.refused(429);
    endpoint.host.advance(SECOND);
    endpoint.purge().await.ok();
    endpoint.purge().await.refused(429);
}

/// A client that keeps the documented pace is never refused, also after a burst of the whole limit.
#[tokio::test]
async fn the_documented_pace() {
    let endpoint = clocked("rate-pace", paused()).await;
    for _ in 0..2 {
        endpoint.purge().await.ok();
    }
    for _ in 0..10 {
        endpoint.get("requests").await.ok();
    }
    for second in 1..=30 {
        endpoint.host.advance(SECOND);
        endpoint.get("requests").await.ok();
        if second % 5 == 0 {
            endpoint.purge().await.ok();
        }
    }
}
