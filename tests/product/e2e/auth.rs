//! The permissions of scopes, and the information that a caller without a key can get.

use std::cell::OnceCell;

use gristmill_tests::{Answer, Client, PATIENCE, clocked_host, eventually, guests, shared_host};
use reqwest::Method;
use serde_json::json;
use tokio::time::timeout;

#[tokio::test]
async fn an_unauthenticated_caller_does_not_learn_what_exists() {
    let host = shared_host();
    host.deploy(&guests::playground(), "auth-hidden", json!({})).await;
    let nobody = host.client.with_authorization(None);
    for path in ["/v2/auth-hidden/health", "/v2/no-such-endpoint/health", "/metrics"] {
        nobody.get(path).await.refused(401);
    }
    for path in ["/v1/templates/auth-hidden", "/v1/templates/no-such-template"] {
        nobody.get(path).await.refused(401);
    }
}

#[tokio::test]
async fn a_key_that_only_reads_cannot_delete_a_running_job() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "auth-ttl", json!({})).await;
    let job = host.client.submit(&endpoint, json!({ "op": "sleep", "ms": 600_000 })).await;
    host.client.until(&endpoint, &job, "IN_PROGRESS").await;
    let reader = host.client.with_scopes(&["read"]).await;
    for query in ["ttl=0", "ttl=86400000", "ttl=1&ttl=0"] {
        let refused = reader.status(&endpoint, &format!("{job}?{query}")).await;
        assert!(refused.refused(401).contains("`submit`"), "{query}: {refused:?}");
    }
    let path = reader.path(&endpoint, &format!("status/{job}?ttl=0"));
    reader.post_empty(&path).await.refused(401);
    // The answer is the same for a job that does not exist.
    let unknown = "00000000-0000-7000-8000-000000000000-0000";
    reader.status(&endpoint, &format!("{unknown}?ttl=0")).await.refused(401);
    assert_eq!(host.client.status(&endpoint, &job).await.ok()["status"], "IN_PROGRESS");
    let submitter = host.client.with_scopes(&["submit"]).await;
    submitter.status(&endpoint, &format!("{job}?ttl=0")).await.ok();
    host.client.status(&endpoint, &job).await.refused(404);
}

#[tokio::test]
async fn a_key_is_limited_to_its_scopes() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "auth-scopes", json!({})).await;
    let done = host.client.finish(&endpoint, json!({ "op": "echo" })).await;
    let job = done["id"].as_str().unwrap();
    let template = "/v1/templates/auth-scopes?includeEndpointBoundTemplates=true";

    let reader = host.client.with_scopes(&["read"]).await;
    reader.status(&endpoint, job).await.ok();
    reader.stream(&endpoint, job).await.ok();
    reader.health(&endpoint).await;
    reader.run(&endpoint, json!({ "op": "echo" })).await.refused(401);
    reader.run_sync(&endpoint, "", json!({ "op": "echo" })).await.refused(401);
    reader.cancel(&endpoint, job).await.refused(401);
    reader.retry(&endpoint, job).await.refused(401);
    reader.purge(&endpoint).await.refused(401);
    reader.get(template).await.refused(401);

    let submitter = host.client.with_scopes(&["submit"]).await;
    assert_eq!(submitter.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
    submitter.cancel(&endpoint, job).await.ok();
    submitter.get(template).await.refused(401);
    submitter.post("/v1/keys", &json!({ "name": "x", "scopes": ["admin"] })).await.refused(401);

    let manager = host.client.with_scopes(&["manage"]).await;
    manager.get(template).await.ok();
    manager.run(&endpoint, json!({ "op": "echo" })).await.refused(401);
    manager.post("/v1/keys", &json!({ "name": "x", "scopes": ["admin"] })).await.refused(401);

    reader.status(&endpoint, &format!("{job}?ttl=0")).await.refused(401);
    reader.status(&endpoint, job).await.ok();
    submitter.status(&endpoint, &format!("{job}?ttl=60000")).await.ok();

    let both = host.client.with_scopes(&["manage", "read"]).await;
    both.get(template).await.ok();
    both.status(&endpoint, job).await.ok();
}

/// The answers to waiting calls whose key is no longer valid when they are answered.
struct Ended {
    status_sync: Answer,
    run_sync: Answer,
    stream: Answer,
    openai: Answer,
    /// Server-sent events, of a job and of a log.
    followed: [Answer; 2],
}

/// Makes calls that wait for five minutes, ends the key by `end`, and reads their answers.
async fn calls_of_a_key_that_ends(
    client: &Client,
    endpoint: &str,
    job: &str,
    end: impl Future<Output = ()>,
) -> Ended {
    let path = |rest: &str| client.path(endpoint, rest);
    let (wait, sleeps) = ("wait=300000", json!({ "op": "sleep", "ms": 600_000 }));
    let follows_log = OnceCell::new();
    let follow = async |path: String| {
        let request = client.request(Method::GET, &path).header("accept", "text/event-stream");
        let response = request.send().await.unwrap();
        if path.ends_with("/logs") {
            follows_log.set(()).unwrap();
        }
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Answer { call: path, status, headers, text: response.text().await.unwrap() }
    };
    let (status_path, stream_path) =
        (path(&format!("status-sync/{job}?{wait}")), path(&format!("stream/{job}?{wait}")));
    let query = format!("?{wait}");
    let calls = async {
        tokio::join!(
            client.get(&status_path),
            client.run_sync(endpoint, &query, sleeps.clone()),
            client.get(&stream_path),
            client.openai(endpoint, "v1/chat/completions", &sleeps),
            follow(path(&format!("stream/{job}"))),
            follow(format!("/v1/endpoints/{endpoint}/logs")),
        )
    };
    let ended = async {
        // Two of the six calls run jobs beside `job`, and all but the one for the log wait for
        // jobs.
        eventually("the jobs of the calls to run", async || {
            (client.health(endpoint).await["jobs"]["inProgress"] == 3).then_some(())
        })
        .await;
        client.calls_waiting(5).await;
        eventually("the log to be followed", async || follows_log.get().copied()).await;
        end.await;
    };
    let calls = timeout(PATIENCE, calls);
    let (calls, ()) = tokio::join!(calls, ended);
    let (status_sync, run_sync, stream, openai, job_events, log_events) =
        calls.expect("the calls end with their key");
    Ended { status_sync, run_sync, stream, openai, followed: [job_events, log_events] }
}

fn assert_refused(ended: &Ended) {
    for answer in [&ended.status_sync, &ended.run_sync, &ended.stream] {
        assert!(answer.refused(401).contains("during the call"), "{answer:?}");
    }
    assert!(ended.run_sync.header("x-job-id").is_some(), "its job goes on: {:?}", ended.run_sync);
    ended.openai.refused_as_openai(401);
    for events in &ended.followed {
        assert_eq!(events.status, 200);
        assert!(!events.text.contains("event: end"), "{events:?}");
    }
}

#[tokio::test]
async fn revoking_a_key_ends_its_waiting_calls() {
    let host = clocked_host();
    let endpoint = host.deploy(&guests::playground(), "auth-revoked", json!({})).await;
    let job = host.client.submit(&endpoint, json!({ "op": "sleep", "ms": 600_000 })).await;
    host.client.until(&endpoint, &job, "IN_PROGRESS").await;
    let made = json!({ "name": "short", "scopes": ["submit", "manage"] });
    let made = host.client.post("/v1/keys", &made).await.ok();
    let client = host.client.with_key(made["key"].as_str().unwrap());
    let revoke = async {
        let path = format!("/v1/keys/{}", made["id"].as_str().unwrap());
        assert_eq!(host.client.delete(&path).await.status, 204);
    };
    let ended = Box::pin(calls_of_a_key_that_ends(&client, &endpoint, &job, revoke)).await;
    assert_refused(&ended);
    assert_eq!(host.client.status(&endpoint, &job).await.ok()["status"], "IN_PROGRESS");
    let other = ended.run_sync.header("x-job-id").unwrap();
    assert_eq!(host.client.status(&endpoint, other).await.ok()["status"], "IN_PROGRESS");
    // The job of `openai` belongs to its call.
    eventually("the third job to be cancelled", async || {
        (host.client.health(&endpoint).await["jobs"]["inProgress"] == 2).then_some(())
    })
    .await;
    for job in [&*job, other] {
        host.client.cancel(&endpoint, job).await.ok();
    }
}

#[tokio::test]
async fn the_expiry_of_a_key_ends_its_waiting_calls() {
    let host = clocked_host();
    let endpoint = host.deploy(&guests::playground(), "auth-expired", json!({})).await;
    let job = host.client.submit(&endpoint, json!({ "op": "sleep", "ms": 600_000 })).await;
    host.client.until(&endpoint, &job, "IN_PROGRESS").await;
    let made = json!({ "name": "short", "scopes": ["submit", "manage"], "expiresInSeconds": 60 });
    let made = host.client.post("/v1/keys", &made).await.ok();
    let client = host.client.with_key(made["key"].as_str().unwrap());
    let expire = async {
        host.advance(60_000);
    };
    let ended = Box::pin(calls_of_a_key_that_ends(&client, &endpoint, &job, expire)).await;
    assert_refused(&ended);
    host.client.cancel(&endpoint, &job).await.ok();
}
