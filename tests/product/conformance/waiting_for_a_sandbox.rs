//! A host that runs its maximum of jobs: the state of further jobs until one of them ends.

use gristmill_tests::{Client, TestHost, eventually, guests};
use serde_json::{Value, json};

use crate::support::{MINUTE, clocked, echo, failing, forever, id, one_worker};

/// A host with two sandboxes, both taken by jobs of the endpoint `busy`.
struct Full {
    host: TestHost,
    client: Client,
    running: [String; 2],
}

impl Full {
    async fn start() -> Self {
        let host = TestHost::start_with(&["--max-running-jobs", "2"]);
        let client = host.client();
        let busy = host.deploy(&guests::playground(), "busy", json!({})).await;
        let running =
            [client.submit(&busy, forever()).await, client.submit(&busy, forever()).await];
        for job in &running {
            client.until(&busy, job, "IN_PROGRESS").await;
        }
        Self { host, client, running }
    }

    async fn endpoint(&self, settings: Value) -> String {
        self.host.deploy(&guests::playground(), "waits", settings).await
    }

    /// Ends the running jobs.
    async fn release(&self) {
        for job in &self.running {
            self.client.cancel("busy", job).await.ok();
        }
    }
}

/// A job that waits for a sandbox is IN_QUEUE: its executionTimeout has not begun, its wait counts
/// as delayTime, and its worker is throttled, not running.
#[tokio::test]
async fn the_execution_timeout_does_not_run() {
    let full = Full::start().await;
    let endpoint = full.endpoint(json!({})).await;
    let policy = json!({ "executionTimeout": 5_000 });
    let job = full.client.submit_with(&endpoint, echo(), policy).await;
    let health = eventually("a throttled worker", async || {
        let health = full.client.health(&endpoint).await;
        (health["workers"]["throttled"].as_u64() >= Some(1)).then_some(health)
    })
    .await;
    assert_eq!(health["workers"]["running"], 0, "{health}");
    assert_eq!((&health["jobs"]["inQueue"], &health["jobs"]["inProgress"]), (&json!(1), &json!(0)));
    let waiting = eventually("the job to wait for longer than its executionTimeout", async || {
        let waiting = full.client.status(&endpoint, &job).await.ok();
        assert_eq!(
            (&waiting["status"], &waiting["executionTime"]),
            (&json!("IN_QUEUE"), &json!(0))
        );
        (waiting["delayTime"].as_u64() >= Some(5_500)).then_some(waiting)
    })
    .await;
    let reason = waiting["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("--max-running-jobs"), "{waiting}");
    full.release().await;
    let done = full.client.until(&endpoint, &job, "COMPLETED").await;
    assert!(done["delayTime"].as_u64() >= Some(5_500), "{done}");
    assert!(done["executionTime"].as_u64() < Some(5_000), "{done}");
}

/// delayTime counts from when the job was last queued, without its first run and without the time
/// in which it was FAILED.
#[tokio::test]
async fn delay_time_begins_when_the_job_is_queued_again() {
    let endpoint = clocked("waiting-again", one_worker()).await;
    let failed = endpoint.finish(failing()).await;
    let job = id(&failed);
    endpoint.host.advance(10 * MINUTE);
    assert_eq!(endpoint.status(&job).await.ok()["delayTime"], failed["delayTime"]);
    endpoint.set_workers_max(0).await;
    endpoint.retry(&job).await.ok();
    endpoint.host.advance(MINUTE);
    assert_eq!(endpoint.status(&job).await.ok()["delayTime"], MINUTE);
    endpoint.set_workers_max(1).await;
    let failed = endpoint.until(&job, "FAILED").await;
    let delay = failed["delayTime"].as_u64().unwrap();
    assert!((MINUTE..2 * MINUTE).contains(&delay), "{failed}");
    assert!(failed["executionTime"].as_u64() < Some(MINUTE), "{failed}");
}

/// purge-queue removes a job that waits for a sandbox.
#[tokio::test]
async fn purge_queue_removes_it() {
    let full = Full::start().await;
    let endpoint = full.endpoint(json!({})).await;
    let job = full.client.submit(&endpoint, echo()).await;
    eventually("a throttled worker", async || {
        (full.client.health(&endpoint).await["workers"]["throttled"].as_u64() >= Some(1))
            .then_some(())
    })
    .await;
    assert_eq!(full.client.purge(&endpoint).await.ok()["removed"], 1);
    full.client.status(&endpoint, &job).await.refused(404);
    full.release().await;
    assert_eq!(full.client.finish(&endpoint, echo()).await["status"], "COMPLETED");
}

/// An earlier lowPriority job that waits for a sandbox lets a normal one pass.
#[tokio::test]
async fn low_priority_lets_others_pass() {
    let full = Full::start().await;
    let settings = json!({ "workersMax": 1, "workersMin": 1 });
    let endpoint = full.endpoint(settings).await;
    let low = json!({ "lowPriority": true });
    let low = full.client.submit_with(&endpoint, forever(), low).await;
    eventually("a throttled worker", async || {
        (full.client.health(&endpoint).await["workers"]["throttled"].as_u64() >= Some(1))
            .then_some(())
    })
    .await;
    let normal = full.client.submit(&endpoint, forever()).await;
    full.release().await;
    full.client.until(&endpoint, &normal, "IN_PROGRESS").await;
    let waiting = full.client.status(&endpoint, &low).await.ok();
    assert_eq!(waiting["status"], "IN_QUEUE", "{waiting}");
}

/// An endpoint with many waiting workers does not keep another one from its turn.
#[tokio::test]
async fn endpoints_take_turns() {
    let full = Full::start().await;
    let many = full.endpoint(json!({ "workersMax": 200 })).await;
    let slow = json!({ "op": "sleep", "ms": 200 });
    let mut jobs = vec![];
    for _ in 0..200 {
        jobs.push(full.client.submit(&many, slow.clone()).await);
    }
    let other = full.host.deploy(&guests::playground(), "other", json!({})).await;
    let job = full.client.submit(&other, echo()).await;
    eventually("a throttled worker", async || {
        (full.client.health(&other).await["workers"]["throttled"].as_u64() >= Some(1)).then_some(())
    })
    .await;
    full.release().await;
    full.client.until(&other, &job, "COMPLETED").await;
    let left = full.client.health(&many).await;
    assert!(left["jobs"]["inQueue"].as_u64() > Some(100), "{left}");
}
