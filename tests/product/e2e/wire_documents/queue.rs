//! The documents of the queue API, of OpenAI's route, of webhooks, and the refusals.

use gristmill_tests::{Answer, Client, Receiver, TestHost, eventually, guests};
use reqwest::Method;
use serde_json::{Value, json};

use super::{check, check_text, host, shown};

/// A host with an endpoint `mill` that runs one job at a time.
async fn mill() -> (TestHost, Client) {
    let host = host(&[]);
    host.deploy(&guests::playground(), "mill", json!({ "workersMax": 1 })).await;
    let client = host.client();
    (host, client)
}

fn echo() -> Value {
    json!({ "op": "echo", "value": { "grain": "rye" } })
}

fn id(answer: &Answer) -> String {
    answer.ok()["id"].as_str().unwrap().to_owned()
}

async fn events(client: &Client, path: &str) -> Answer {
    let request = client.request(Method::GET, path).header("accept", "text/event-stream");
    client.send(request).await
}

#[tokio::test]
async fn submissions_and_states_of_jobs() {
    let (_host, client) = mill().await;
    let run_sync = client.run_sync("mill", "", echo()).await;
    check("queue-runsync", &run_sync);
    let body = json!({ "input": echo(), "tags": { "batch": "one" } });
    let accepted = client.post("/v2/mill/run", &body).await;
    check("queue-run", &accepted);
    let job = id(&accepted);
    client.until("mill", &job, "COMPLETED").await;
    check("queue-status-completed", &client.status("mill", &job).await);
    check(
        "queue-status-sync",
        &client.get(&client.path("mill", &format!("status-sync/{job}"))).await,
    );

    let failed = client.finish("mill", json!({ "op": "fail", "message": "no flour" })).await;
    check("queue-status-failed", &client.status("mill", failed["id"].as_str().unwrap()).await);
    check("queue-retry", &client.retry("mill", failed["id"].as_str().unwrap()).await);
    client.finished("mill", failed["id"].as_str().unwrap()).await;
    check(
        "queue-status-failed-again",
        &client.status("mill", failed["id"].as_str().unwrap()).await,
    );
    check("queue-retry-refused", &client.retry("mill", &job).await);

    let running =
        client.submit("mill", json!({ "op": "progress", "steps": 2, "delay_ms": 600_000 })).await;
    eventually("the progress", async || {
        client.status("mill", &running).await.ok().get("output").cloned()
    })
    .await;
    check("queue-status-running", &client.status("mill", &running).await);
    let waiting = client.submit("mill", echo()).await;
    client.workers_running("mill", 1).await;
    check("queue-status-waiting", &client.status("mill", &waiting).await);
    check("queue-health", &client.get(&client.path("mill", "health")).await);
    check("queue-requests", &client.get(&client.path("mill", "requests?status=FAILED")).await);
    check("queue-timeline", &client.get(&client.path("mill", &format!("timeline/{job}"))).await);
    check("queue-cancel", &client.cancel("mill", &running).await);
    check("queue-status-cancelled", &client.status("mill", &running).await);
    client.finished("mill", &waiting).await;
    client.patch("/v1/endpoints/mill", &json!({ "workersMax": 0 })).await.ok();
    client.submit("mill", echo()).await;
    check("queue-purge", &client.purge("mill").await);
}

#[tokio::test]
async fn streams() {
    let (_host, client) = mill().await;
    let input = json!({ "op": "emit", "values": [0, { "grain": "rye" }], "message": "no flour" });
    let job = id(&client.run("mill", input).await);
    client.until("mill", &job, "FAILED").await;
    check("queue-stream", &client.stream("mill", &format!("{job}?from=0")).await);
    check("queue-stream-sdk", &client.sdk().stream("mill", &format!("{job}?from=0")).await);
    check(
        "queue-stream-events",
        &events(&client, &client.path("mill", &format!("stream/{job}?from=0"))).await,
    );
    client.retry("mill", &job).await.ok();
    client.until("mill", &job, "FAILED").await;
    let path = client.path("mill", &format!("stream/{job}"));
    let request = client.request(Method::GET, &path).header("accept", "text/event-stream");
    check(
        "queue-stream-events-restart",
        &client.send(request.header("last-event-id", "1-1")).await,
    );
}

#[tokio::test]
async fn answers_and_errors_of_openai() {
    let (_host, client) = mill().await;
    check("openai-answer", &client.openai("mill", "v1/chat/completions", &echo()).await);
    let stream = json!({ "op": "emit", "values": [{ "grain": "rye" }], "stream": true });
    check("openai-stream", &client.openai("mill", "v1/chat/completions", &stream).await);
    let failing = json!({ "op": "fail", "message": "no flour" });
    check("openai-error", &client.openai("mill", "v1/chat/completions", &failing).await);
}

#[tokio::test]
async fn a_webhook() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let host = host(&["--webhook-allow", &receiver.host()]);
    host.deploy(&guests::playground(), "mill", json!({})).await;
    let client = host.client();
    let body = json!({ "input": echo(), "webhook": receiver.url("/") });
    client.post("/v2/mill/run", &body).await.ok();
    let calls = receiver.until(1).await;
    let mut document = calls[0].json();
    assert_eq!(document["webhook"], receiver.url("/"));
    document["webhook"] = "http://receiver/".into();
    check_text("webhook", &shown::document(document));
}

#[tokio::test]
async fn refusals() {
    let (_host, client) = mill().await;
    let unknown = "0192f3a0-0000-7000-8000-000000000000-0000";
    check("refused-job-not-found", &client.status("mill", unknown).await);
    check("refused-endpoint-not-found", &client.run("no-such-endpoint", echo()).await);
    check("refused-without-key", &client.with_authorization(None).run("mill", echo()).await);
    check("refused-wrong-key", &client.with_key("wrong").run("mill", echo()).await);
    check("refused-method", &client.get("/v2/mill/run").await);
    check("refused-path", &client.get("/v1/no-such-path").await);
    check("refused-json", &client.post_text("/v2/mill/run", "{\"input\":").await);
    check("refused-without-input", &client.post("/v2/mill/run", &json!({})).await);
    let policy = json!({ "input": echo(), "policy": { "ttl": 1 } });
    check("refused-policy", &client.post("/v2/mill/run", &policy).await);
    check("refused-wait", &client.run_sync("mill", "?wait=soon", echo()).await);
    let keyed = async |input: Value| {
        let request = client.request(Method::POST, "/v2/mill/run").header("idempotency-key", "one");
        client.send(request.json(&json!({ "input": input }))).await
    };
    keyed(echo()).await.ok();
    check("refused-key-reused", &keyed(json!({ "op": "fail" })).await);
    let field = json!({ "id": "x", "templateId": "mill", "workersMaximum": 1 });
    check("refused-field", &client.post("/v1/endpoints", &field).await);
    let number = json!({ "id": "x", "templateId": "mill", "workersMax": -1 });
    check("refused-number", &client.post("/v1/endpoints", &number).await);
    check("refused-used-template", &client.delete("/v1/templates/mill").await);
    check("refused-component", &client.upload("text:latest", "no component").await);
}
