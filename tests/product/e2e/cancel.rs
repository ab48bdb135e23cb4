//! `/cancel`: queued jobs are removed, and running ones are stopped, whatever they do.

use std::time::{Duration, Instant};

use gristmill_tests::{Client, TestHost, clocked_host, guests, shared_host};
use serde_json::json;

/// Cancels a running job and returns the time until no worker runs, as health shows it.
async fn stop_latency(client: &Client, endpoint: &str, input: serde_json::Value) -> Duration {
    let job = client.submit(endpoint, input).await;
    client.until(endpoint, &job, "IN_PROGRESS").await;
    let begun = Instant::now();
    let answer = client.cancel(endpoint, &job).await.ok();
    assert_eq!(answer, json!({ "id": job, "status": "CANCELLED" }));
    client.workers_running(endpoint, 0).await;
    let took = begun.elapsed();
    // The only worker continues with the next job, and the cancelled one keeps its status.
    let next = client.finish(endpoint, json!({ "op": "echo", "value": 1 })).await;
    assert_eq!(next["output"], json!({ "echo": 1 }));
    assert_eq!(client.status(endpoint, &job).await.ok()["status"], "CANCELLED");
    took
}

async fn check_stop(
    host: &TestHost,
    client: &Client,
    name: &str,
    settings: serde_json::Value,
    op: &str,
) {
    let endpoint = host.deploy(&guests::playground(), name, settings).await;
    client.finish(&endpoint, json!({ "op": "echo" })).await; // the component is loaded
    let mut worst = Duration::ZERO;
    for _ in 0..3 {
        worst = worst.max(stop_latency(client, &endpoint, json!({ "op": op })).await);
    }
    println!("{op} ({name}) stopped within {worst:?} of its cancellation, polling included");
    // This only excludes a hang, since the test's machine may be busy.
    assert!(worst < Duration::from_secs(20), "{worst:?}");
}

#[tokio::test]
async fn a_job_that_computes_for_ever_is_stopped() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1 });
    check_stop(&host, &host.client, "cancel-spin", settings, "spin").await;
}

#[tokio::test]
async fn a_job_that_computes_without_fuel_metering_is_stopped() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1, "metering": "epoch" });
    check_stop(&host, &host.client, "cancel-epoch", settings, "spin").await;
}

#[tokio::test]
async fn a_job_that_waits_for_ever_is_stopped() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1 });
    check_stop(&host, &host.client, "cancel-sleep", settings, "sleep_forever").await;
}

#[tokio::test]
async fn a_call_that_waits_for_the_end_returns_at_the_cancellation() {
    let host = clocked_host();
    let endpoint = host.deploy(&guests::playground(), "cancel-parked", json!({})).await;
    let job = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    host.client.until(&endpoint, &job, "IN_PROGRESS").await;
    let path = host.client.path(&endpoint, &format!("status-sync/{job}?wait=60000"));
    let begun = Instant::now();
    let cancelling = async {
        host.client.calls_waiting(1).await;
        host.client.cancel(&endpoint, &job).await.ok();
    };
    let (answer, ()) = tokio::join!(host.client.get(&path), cancelling);
    assert_eq!(answer.ok()["status"], "CANCELLED");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn cancelling_a_stream_ends_it_and_keeps_what_was_emitted() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::token_stream(), "cancel-stream", json!({})).await;
    let input = json!({ "prompt": "slow mills grind fine ".repeat(200), "delay_ms": 50 });
    let job = host.client.submit(&endpoint, input).await;
    let first = host.client.stream(&endpoint, &job).await;
    assert!(!first.ok().as_array().unwrap().is_empty(), "{first:?}");
    host.client.cancel(&endpoint, &job).await.ok();
    let rest = host.client.stream(&endpoint, &job).await;
    assert_eq!(rest.header("x-job-status"), Some("CANCELLED"));
    let kept = rest.header("x-stream-next").unwrap().to_owned();
    // No handler is left that could emit more.
    host.client.workers_running(&endpoint, 0).await;
    let later = host.client.stream(&endpoint, &format!("{job}?from=0")).await;
    assert_eq!(later.header("x-stream-next"), Some(kept.as_str()));
    assert_eq!(later.ok().as_array().unwrap().len().to_string(), kept);
}
