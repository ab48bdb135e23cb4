//! `POST /{endpoint}/run`, sentence by sentence.

use serde_json::json;

use crate::support::{MIB, MINUTE, clocked, echo, failing, id, paused, shared};

/// Submits an asynchronous job: the call does not wait for the handler.
#[tokio::test]
async fn submits_an_asynchronous_job() {
    let endpoint = shared("run-purpose", json!({})).await;
    let job = id(&endpoint.post("run", &json!({ "input": echo() })).await.ok());
    let done = endpoint.until(&job, "COMPLETED").await;
    assert_eq!(done["output"], json!({ "echo": "grain" }));
}

/// The body is the submission: `input` required, the other fields optional.
#[tokio::test]
async fn body() {
    let endpoint = shared("run-body", json!({})).await;
    let full = json!({
        "input": echo(),
        "webhook": "https://example.com/",
        "policy": { "executionTimeout": 60_000, "ttl": 60_000, "lowPriority": false },
    });
    for body in [json!({ "input": echo() }), full] {
        let job = id(&endpoint.post("run", &body).await.ok());
        endpoint.until(&job, "COMPLETED").await;
    }
    endpoint.post("run", &json!({ "policy": {} })).await.refused(400);
    endpoint.post_empty("run").await.refused(400);
}

/// A submission of exactly this many bytes.
pub(crate) fn submission(bytes: usize) -> String {
    let frame = r#"{"input":{"op":"sleep","ms":1,"unread":""}}"#;
    let (start, end) = frame.split_at(frame.len() - 3);
    format!("{start}{}{end}", "x".repeat(bytes - frame.len()))
}

/// A body of 10 MB is accepted, and not one byte more.
#[tokio::test]
async fn payload_maximum() {
    let endpoint = shared("run-payload", json!({})).await;
    let path = endpoint.path("run");
    let answer = endpoint.client.post_text(&path, submission(10 * MIB)).await.ok();
    endpoint.until(&id(&answer), "COMPLETED").await;
    let sentence = crate::raw::refused_by_its_length(&endpoint, "run", 10 * MIB + 1).await;
    assert!(sentence.contains(&(10 * MIB).to_string()), "{sentence}");
}

/// The answer is an object with the id, a string, and the status IN_QUEUE, and nothing else.
#[tokio::test]
async fn response() {
    let endpoint = shared("run-response", json!({})).await;
    let answer = endpoint.post("run", &json!({ "input": echo() })).await.ok();
    assert_eq!(answer, json!({ "id": id(&answer), "status": "IN_QUEUE" }));
}

/// The result is available for 30 minutes after the job's end, with /status.
#[tokio::test]
async fn result_is_kept_30_minutes() {
    let endpoint = clocked("run-retention", paused()).await;
    let job = endpoint.submit(echo()).await;
    endpoint.host.advance(45 * MINUTE);
    endpoint.set_workers_max(1).await;
    let done = endpoint.until(&job, "COMPLETED").await;
    let failed = id(&endpoint.finish(failing()).await);
    endpoint.host.advance(30 * MINUTE - 1);
    assert_eq!(endpoint.status(&job).await.ok(), done);
    endpoint.status(&failed).await.ok();
    endpoint.host.advance(1);
    endpoint.assert_gone(&job).await;
    endpoint.assert_gone(&failed).await;
}
