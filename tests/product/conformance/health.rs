//! `GET /{endpoint}/health`, and the fields of its report.

use gristmill_tests::eventually;
use reqwest::Method;
use serde_json::json;

use crate::support::{echo, failing, forever, id, one_worker, paused, shared};

/// It reports numbers of workers and jobs, all of them integers.
#[tokio::test]
async fn reports_jobs_and_workers() {
    let endpoint = shared("health-purpose", json!({})).await;
    let report = endpoint.health().await;
    let expected = [
        ("jobs", vec!["completed", "failed", "inProgress", "inQueue", "retried"]),
        ("workers", vec!["idle", "running"]),
    ];
    for (group, fields) in expected {
        for field in fields {
            assert_eq!(report[group][field], 0, "{group}.{field}: {report}");
        }
    }
}

/// It takes no body; a body is ignored.
#[tokio::test]
async fn no_body() {
    let endpoint = shared("health-body", json!({})).await;
    let answer = endpoint.with_nonsense_body(Method::GET, "health").await;
    assert!(answer.ok()["jobs"].is_object());
}

/// `jobs.completed` counts this endpoint's jobs that were COMPLETED.
#[tokio::test]
async fn jobs_completed() {
    let endpoint = shared("health-completed", json!({})).await;
    let other = shared("health-completed-other", json!({})).await;
    for count in 1..=3 {
        endpoint.finish(echo()).await;
        assert_eq!(endpoint.health().await["jobs"]["completed"], count);
    }
    assert_eq!(other.health().await["jobs"]["completed"], 0);
}

/// `jobs.failed` counts the jobs that were FAILED.
#[tokio::test]
async fn jobs_failed() {
    let endpoint = shared("health-failed", json!({})).await;
    for (count, op) in [(1, "fail"), (2, "trap")] {
        endpoint.finish(json!({ "op": op })).await;
        assert_eq!(endpoint.health().await["jobs"]["failed"], count);
    }
    assert_eq!(endpoint.health().await["jobs"]["completed"], 0);
}

/// `jobs.inProgress` counts the jobs that run now.
#[tokio::test]
async fn jobs_in_progress() {
    let endpoint = shared("health-in-progress", json!({})).await;
    let running = [endpoint.running(forever()).await, endpoint.running(forever()).await];
    assert_eq!(endpoint.health().await["jobs"]["inProgress"], 2);
    for job in &running {
        endpoint.cancel(job).await.ok();
    }
    assert_eq!(endpoint.health().await["jobs"]["inProgress"], 0);
}

/// `jobs.inQueue` counts the jobs that wait now.
#[tokio::test]
async fn jobs_in_queue() {
    let endpoint = shared("health-in-queue", paused()).await;
    for count in 1..=3 {
        endpoint.submit(echo()).await;
        assert_eq!(endpoint.health().await["jobs"]["inQueue"], count);
    }
    endpoint.purge().await.ok();
    assert_eq!(endpoint.health().await["jobs"]["inQueue"], 0);
}

/// `jobs.retried` counts the retries.
#[tokio::test]
async fn jobs_retried() {
    let endpoint = shared("health-retried", json!({})).await;
    let job = id(&endpoint.finish(failing()).await);
    for count in 1..=2 {
        endpoint.retry(&job).await.ok();
        assert_eq!(endpoint.health().await["jobs"]["retried"], count);
        endpoint.until(&job, "FAILED").await;
    }
}

/// `workers.idle` counts the workers that have nothing to do.
#[tokio::test]
async fn workers_idle() {
    let settings = json!({ "workersMin": 2, "workersMax": 2 });
    let endpoint = shared("health-idle", settings).await;
    let until_idle = async |count: u64| {
        eventually(&format!("{count} idle workers"), async || {
            (endpoint.health().await["workers"]["idle"] == count).then_some(())
        })
        .await;
    };
    until_idle(2).await;
    let job = endpoint.running(forever()).await;
    until_idle(1).await;
    endpoint.cancel(&job).await.ok();
    until_idle(2).await;
}

/// `workers.running` counts the workers that run a job.
#[tokio::test]
async fn workers_running() {
    let endpoint = shared("health-running", one_worker()).await;
    let job = endpoint.running(forever()).await;
    endpoint.submit(forever()).await;
    endpoint.workers_running(1).await;
    endpoint.purge().await.ok();
    endpoint.cancel(&job).await.ok();
    endpoint.workers_running(0).await;
}
