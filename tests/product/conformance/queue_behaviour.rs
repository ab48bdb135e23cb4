//! Our decisions where the contract is silent, about the queue. (Ends of jobs: `job_ends`; streams:
//! `stream_behaviour`; webhooks: `events`; limits: `rate_limits`, `dynamic_limit`.)

use std::time::{Duration, Instant};

use gristmill_tests::{TestHost, eventually, guests};
use serde_json::json;

use crate::support::{
    MINUTE, SECOND, clocked, echo, failing, forever, id, one_worker, paused, shared,
};

/// `wait`: a number out of range is clamped, and a text that is not a number is refused.
#[tokio::test]
async fn wait() {
    let endpoint = shared("behaviour-wait", json!({})).await;
    let quick = || json!({ "op": "sleep", "ms": 300 });
    for (query, is_low) in [
        ("", false),
        ("?wait=1", true),
        ("?wait=0", true),
        ("?wait=-5", true),
        ("?wait=99999999999999999999", false),
    ] {
        let begun = Instant::now();
        let answer = endpoint.run_sync(query, quick()).await.ok();
        // The minimum of the wait is 1 s, and a loaded machine may need longer for the job.
        let is_over = is_low && begun.elapsed() >= Duration::from_secs(1);
        assert!(answer["status"] == "COMPLETED" || is_over, "{query}: {answer}");
    }
    for query in ["?wait=soon", "?wait=1.5", "?wait="] {
        let sentence = endpoint.run_sync(query, quick()).await.refused(400);
        assert!(sentence.contains("wait"), "{sentence}");
    }
}

/// A policy out of bounds is refused, and clamped by a host with that setting.
#[tokio::test]
async fn policy_out_of_bounds() {
    let body = json!({ "input": failing(), "policy": { "executionTimeout": 3_000, "ttl": 1 } });
    let strict = shared("behaviour-strict", json!({})).await;
    strict.post("run", &body).await.refused(400);
    let host = TestHost::start_with_clock(&["--lenient-policy"]);
    let endpoint = host.deploy(&guests::playground(), "lenient", paused()).await;
    let client = host.client();
    let job = id(&client.post(&client.path(&endpoint, "run"), &body).await.ok());
    host.advance(10 * SECOND - 1);
    client.status(&endpoint, &job).await.ok();
    host.advance(1);
    client.status(&endpoint, &job).await.refused(404);
}

/// A /runsync whose wait is over answers 200 with the id and the present status, and the id in the
/// header X-Job-Id; the job continues, and its result is kept from its end on.
#[tokio::test]
async fn runsync_past_its_wait() {
    let endpoint = clocked("behaviour-past", one_worker()).await;
    let done = endpoint.run_sync("", echo()).await;
    assert_eq!(done.header("x-job-id"), done.ok()["id"].as_str());
    // The job starts within the wait and outlasts it, also on a loaded machine.
    let input = json!({ "op": "sleep", "ms": 8_000, "value": "x" });
    let answer = endpoint.run_sync("?wait=5000", input).await;
    let document = answer.ok();
    assert_eq!(document["status"], "IN_PROGRESS");
    let job = id(&document);
    assert_eq!(answer.header("x-job-id"), Some(job.as_str()));
    endpoint.host.advance(10 * MINUTE);
    let done = endpoint.until(&job, "COMPLETED").await;
    assert_eq!(done["output"], json!({ "slept": 8_000, "echo": "x" }));
    endpoint.host.advance(MINUTE - 1);
    endpoint.status(&job).await.ok();
    endpoint.host.advance(1);
    endpoint.assert_gone(&job).await;
}

/// `/status?ttl=` shortens the remaining lifetime of a job and never lengthens it; invalid and
/// negative numbers are refused.
#[tokio::test]
async fn status_ttl() {
    let endpoint = clocked("behaviour-ttl", paused()).await;
    let job = endpoint.submit_with(echo(), json!({ "ttl": 60_000 })).await;
    endpoint.host.advance(20 * SECOND);
    endpoint.status(&format!("{job}?ttl=30000")).await.ok();
    endpoint.status(&format!("{job}?ttl=604800000")).await.ok();
    for wrong in ["-1", "soon", "1.5", ""] {
        let sentence = endpoint.status(&format!("{job}?ttl={wrong}")).await.refused(400);
        assert!(sentence.contains("ttl"), "{sentence}");
    }
    endpoint.host.advance(30 * SECOND - 1);
    endpoint.status(&job).await.ok();
    endpoint.host.advance(1);
    endpoint.assert_gone(&job).await;
    let now = endpoint.submit(echo()).await;
    endpoint.status(&format!("{now}?ttl=0")).await.ok();
    endpoint.status(&now).await.refused(404);
}

/// `/status-sync` waits for the end of the job, or for `wait`; its calls count as those of
/// `/status`.
#[tokio::test]
async fn status_sync() {
    let endpoint = shared("behaviour-sync", one_worker()).await;
    let job = endpoint.submit(json!({ "op": "sleep", "ms": 700 })).await;
    let done = endpoint.get(&format!("status-sync/{job}?wait=30000")).await.ok();
    assert_eq!(done["status"], "COMPLETED");
    assert_eq!(endpoint.status(&job).await.ok(), done);
    let running = endpoint.running(forever()).await;
    let begun = Instant::now();
    let answer = endpoint.get(&format!("status-sync/{running}?wait=1")).await.ok();
    assert_eq!(answer["status"], "IN_PROGRESS");
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    endpoint.get(&format!("status-sync/{running}?wait=soon")).await.refused(400);
    endpoint.cancel(&running).await.ok();
}

/// Health reports six kinds of workers; `ready` is the number of idle ones. `completed`, `failed`
/// and `retried` count since the endpoint was created, even after its jobs were deleted.
#[tokio::test]
async fn health() {
    let settings = json!({ "workersMin": 1, "workersMax": 1 });
    let endpoint = clocked("behaviour-health", settings).await;
    let failed = id(&endpoint.finish(failing()).await);
    endpoint.retry(&failed).await.ok();
    endpoint.until(&failed, "FAILED").await;
    endpoint.finish(echo()).await;
    endpoint.host.advance(60 * MINUTE);
    endpoint.assert_gone(&failed).await;
    let report = eventually("the worker to be idle", async || {
        let report = endpoint.health().await;
        (report["workers"]["idle"] == 1).then_some(report)
    })
    .await;
    let jobs = json!({ "completed": 1, "failed": 2, "inProgress": 0, "inQueue": 0, "retried": 1 });
    assert_eq!(report["jobs"], jobs);
    let workers = json!({
        "idle": 1, "initializing": 0, "ready": 1, "running": 0, "throttled": 0, "unhealthy": 0,
    });
    assert_eq!(report["workers"], workers);
}

/// A lowPriority job on an endpoint without workers waits, for `/runsync` as long as any other
/// call, and gives the reason. A normal job starts a worker, which runs both.
#[tokio::test]
async fn low_priority_without_a_worker_waits_and_says_why() {
    let endpoint = clocked("behaviour-low-alone", json!({})).await;
    let body = json!({ "input": echo(), "policy": { "lowPriority": true } });
    let begun = Instant::now();
    let waiting = endpoint.post("runsync?wait=1000", &body).await.ok();
    assert!(begun.elapsed() >= Duration::from_secs(1), "{:?}", begun.elapsed());
    assert_eq!(waiting["status"], "IN_QUEUE", "{waiting}");
    let reason = waiting["reason"].as_str().unwrap_or_default();
    assert_eq!(reason, "no worker runs, and a lowPriority job does not start one");
    let workers = endpoint.health().await["workers"].clone();
    assert_eq!((&workers["idle"], &workers["running"]), (&json!(0), &json!(0)), "{workers}");
    let held = async { endpoint.post("runsync?wait=60000", &body).await.ok() };
    let normal = async {
        endpoint.client.calls_waiting(1).await;
        endpoint.finish(echo()).await
    };
    let (held, normal) = tokio::join!(held, normal);
    assert_eq!((&held["status"], &normal["status"]), (&json!("COMPLETED"), &json!("COMPLETED")));
    endpoint.until(&id(&waiting), "COMPLETED").await;
}

/// A lowPriority job starts no worker, and later normal jobs pass it.
#[tokio::test]
async fn low_priority() {
    let endpoint = shared("behaviour-low", one_worker()).await;
    let first = endpoint.running(forever()).await;
    let low = endpoint.submit_with(echo(), json!({ "lowPriority": true })).await;
    let mut normal = vec![];
    for _ in 0..3 {
        normal.push(endpoint.submit(json!({ "op": "sleep", "ms": 100 })).await);
    }
    endpoint.cancel(&first).await.ok();
    endpoint.until(&low, "COMPLETED").await;
    for job in &normal {
        assert_eq!(endpoint.status(job).await.ok()["status"], "COMPLETED", "before the low one");
    }
}
