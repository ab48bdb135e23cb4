//! `POST /{endpoint}/runsync`, sentence by sentence.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::run::submission;
use crate::support::{MIB, MINUTE, clocked, echo, failing, forever, id, shared};

/// Submits a job and waits for its result.
#[tokio::test]
async fn submits_a_job_and_waits() {
    let endpoint = shared("runsync-purpose", json!({})).await;
    let input = json!({ "op": "sleep", "ms": 400, "value": "rye" });
    let done = endpoint.run_sync("", input).await.ok();
    assert_eq!(done["status"], "COMPLETED");
    assert_eq!(done["output"], json!({ "slept": 400, "echo": "rye" }));
}

/// The body is the submission: `input` required, the other fields optional.
#[tokio::test]
async fn body() {
    let endpoint = shared("runsync-body", json!({})).await;
    let full = json!({
        "input": echo(),
        "webhook": "https://example.com/",
        "policy": { "executionTimeout": 60_000, "ttl": 60_000, "lowPriority": false },
    });
    for body in [json!({ "input": echo() }), full] {
        assert_eq!(endpoint.post("runsync", &body).await.ok()["status"], "COMPLETED");
    }
    endpoint.post("runsync", &json!({ "policy": {} })).await.refused(400);
    endpoint.post_empty("runsync").await.refused(400);
}

/// A body of 20 MB is accepted, and not one byte more.
#[tokio::test]
async fn payload_maximum() {
    let endpoint = shared("runsync-payload", json!({})).await;
    let path = endpoint.path("runsync");
    for bytes in [10 * MIB + 1, 20 * MIB] {
        let answer = endpoint.client.post_text(&path, submission(bytes)).await.ok();
        assert_eq!(answer["status"], "COMPLETED", "{bytes}");
    }
    let sentence = crate::raw::refused_by_its_length(&endpoint, "runsync", 20 * MIB + 1).await;
    assert!(sentence.contains(&(20 * MIB).to_string()), "{sentence}");
}

/// `wait` is how long the call waits, at least 1000 ms; the default is longer.
#[tokio::test]
async fn wait_query() {
    let endpoint = shared("runsync-wait", json!({})).await;
    let begun = Instant::now();
    // A loaded machine may need more than a second to start the job.
    let answer = endpoint.run_sync("?wait=5000", forever()).await.ok();
    assert_eq!(answer["status"], "IN_PROGRESS");
    assert!(begun.elapsed() >= Duration::from_millis(5_000), "{:?}", begun.elapsed());
    endpoint.cancel(&id(&answer)).await.ok();
    let slow = json!({ "op": "sleep", "ms": 1_500 });
    assert_eq!(endpoint.run_sync("", slow.clone()).await.ok()["status"], "COMPLETED");
    assert_eq!(endpoint.run_sync("?wait=300000", slow).await.ok()["status"], "COMPLETED");
}

/// The answer is the job's result: id, status, delayTime, executionTime and output.
#[tokio::test]
async fn response() {
    let endpoint = shared("runsync-response", json!({})).await;
    let answer = endpoint.run_sync("", echo()).await.ok();
    assert!(!id(&answer).is_empty());
    assert_eq!(answer["status"], "COMPLETED");
    assert!(answer["delayTime"].is_u64() && answer["executionTime"].is_u64(), "{answer}");
    assert_eq!(answer["output"], json!({ "echo": "grain" }));
}

/// The result is kept for 1 minute after the job's end; with a longer `wait` for that time, 5
/// minutes at most. A wait below a minute does not shorten it.
#[tokio::test]
async fn result_is_kept_1_minute() {
    let endpoint = clocked("runsync-retention", json!({})).await;
    let mut kept = vec![];
    for (query, ms) in [
        ("", MINUTE),
        ("?wait=1000", MINUTE),
        ("?wait=60001", MINUTE + 1),
        ("?wait=300000", 5 * MINUTE),
        ("?wait=999999", 5 * MINUTE),
    ] {
        for input in [echo(), failing()] {
            kept.push((id(&endpoint.run_sync(query, input).await.ok()), ms));
        }
    }
    let mut shown = 0;
    for (job, ms) in kept {
        if shown < ms {
            endpoint.host.advance(ms - 1 - shown);
            endpoint.status(&job).await.ok();
            endpoint.host.advance(1);
            shown = ms;
        }
        endpoint.assert_gone(&job).await;
    }
}
