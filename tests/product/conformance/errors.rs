//! HTTP statuses of refusals.

use serde_json::json;

use crate::support::{
    UNKNOWN_JOB, clocked, echo, failing, forever, id, one_worker, paused, shared,
};

/// 400: the call's structure or a parameter is invalid; the sentence names it. (Every kind of
/// malformed call on every route: `malformed`.)
#[tokio::test]
async fn bad_request() {
    let endpoint = shared("errors-400", paused()).await;
    let job = endpoint.submit(echo()).await;
    for (rest, word) in [
        (format!("status/{job}?ttl=soon"), "ttl"),
        (format!("status/{job}?ttl=-1"), "ttl"),
        (format!("status-sync/{job}?wait=soon"), "wait"),
        (format!("stream/{job}?wait=1.5"), "wait"),
        (format!("stream/{job}?from=-1"), "from"),
    ] {
        let sentence = endpoint.get(&rest).await.refused(400);
        assert!(sentence.contains(word), "{rest}: {sentence}");
    }
    let sentence = endpoint.run_sync("?wait=soon", echo()).await.refused(400);
    assert!(sentence.contains("wait"), "{sentence}");
    assert!(endpoint.post("run", &json!({})).await.refused(400).contains("input"));
}

/// 401: the key is wrong or lacks permission. (Every kind on every route: `authentication`.)
#[tokio::test]
async fn unauthorized() {
    let endpoint = shared("errors-401", json!({})).await;
    let nobody = endpoint.client.with_authorization(None);
    nobody.get(&endpoint.path("health")).await.refused(401);
    let reader = json!({ "name": "reader", "scopes": ["read"] });
    let made = endpoint.client.post("/v1/keys", &reader).await.ok();
    let reader = endpoint.client.with_key(made["key"].as_str().unwrap());
    reader.get(&endpoint.path("health")).await.ok();
    reader.run(&endpoint.id, echo()).await.refused(401);
}

/// 404: the endpoint or the job does not exist, the job is another endpoint's, or its ttl is over,
/// even if it ran.
#[tokio::test]
async fn not_found() {
    let endpoint = clocked("errors-404", one_worker()).await;
    let client = &endpoint.client;
    client.run("no-such-endpoint", echo()).await.refused(404);
    client.run_sync("no-such-endpoint", "", echo()).await.refused(404);
    client.purge("no-such-endpoint").await.refused(404);
    client.get("/v2/no-such-endpoint/health").await.refused(404);
    for job in [UNKNOWN_JOB, "no-such-job", "%20", &"x".repeat(2_000)] {
        endpoint.assert_gone(job).await;
        endpoint.get(&format!("status-sync/{job}")).await.refused(404);
    }
    let other = endpoint.host.deploy_image("playground:latest", "errors-404-b", json!({})).await;
    let running = endpoint.running(forever()).await;
    client.status(&other, &running).await.refused(404);
    client.stream(&other, &running).await.refused(404);
    client.cancel(&other, &running).await.refused(404);
    client.retry(&other, &running).await.refused(404);
    assert_eq!(endpoint.status(&running).await.ok()["status"], "IN_PROGRESS");
    endpoint.status(&format!("{running}?ttl=1000")).await.ok();
    endpoint.host.advance(1_000);
    endpoint.assert_gone(&running).await;
}

/// 429: more calls than the limit; the answer says when to try again.
#[tokio::test]
async fn too_many_requests() {
    let endpoint = shared("errors-429", paused()).await;
    endpoint.purge().await.ok();
    endpoint.purge().await.ok();
    let refused = endpoint.purge().await;
    refused.refused(429);
    assert!(refused.header("retry-after").unwrap().parse::<u64>().unwrap() >= 1, "{refused:?}");
}

/// A handler that crashes fails only its own job; no client gets a 500 for it, and the endpoint's
/// next job runs.
#[tokio::test]
async fn crashed_handler_is_no_500() {
    let endpoint = shared("errors-500", one_worker()).await;
    for op in ["trap", "recurse", "exit"] {
        let crashed = endpoint.run_sync("", json!({ "op": op })).await.ok();
        assert_eq!(crashed["status"], "FAILED", "{op}");
        let job = id(&crashed);
        endpoint.status(&job).await.ok();
        endpoint.stream(&job).await.ok();
        endpoint.health().await;
        assert_eq!(endpoint.run_sync("", echo()).await.ok()["status"], "COMPLETED");
    }
    endpoint.run_sync("", failing()).await.ok();
}
