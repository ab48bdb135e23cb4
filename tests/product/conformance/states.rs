//! States and transitions.

use gristmill_tests::{LocalServer, eventually};
use serde_json::json;

use crate::support::{
    DAY, MINUTE, clocked, echo, failing, forever, id, one_worker, paused, shared,
};

/// An accepted /run is a job that waits; the answer has its id and this status.
#[tokio::test]
async fn new_run() {
    let endpoint = shared("states-new-run", paused()).await;
    let answer = endpoint.post("run", &json!({ "input": echo() })).await.ok();
    let job = id(&answer);
    assert_eq!(answer, json!({ "id": job, "status": "IN_QUEUE" }));
    assert_eq!(endpoint.status(&job).await.ok()["status"], "IN_QUEUE");
}

/// An accepted /runsync answers with the job's status at the time of the answer: at its end, or
/// when the wait is over.
#[tokio::test]
async fn new_runsync() {
    let endpoint = shared("states-new-runsync", one_worker()).await;
    assert_eq!(endpoint.run_sync("", echo()).await.ok()["status"], "COMPLETED");
    assert_eq!(endpoint.run_sync("", failing()).await.ok()["status"], "FAILED");
    // A loaded machine may need more than a second to start the job.
    let running = endpoint.run_sync("?wait=5000", forever()).await.ok();
    assert_eq!(running["status"], "IN_PROGRESS");
    assert_eq!(endpoint.run_sync("?wait=1000", echo()).await.ok()["status"], "IN_QUEUE");
    endpoint.cancel(&id(&running)).await.ok();
}

/// A waiting job runs as soon as there is a worker, and its handler gets the input.
#[tokio::test]
async fn in_queue_worker_available() {
    let endpoint = shared("states-worker", one_worker()).await;
    let first = endpoint.running(forever()).await;
    let second = endpoint.submit(json!({ "op": "sleep", "ms": 5_000, "value": "rye" })).await;
    assert_eq!(endpoint.status(&second).await.ok()["status"], "IN_QUEUE");
    endpoint.cancel(&first).await.ok();
    endpoint.until(&second, "IN_PROGRESS").await;
    let done = endpoint.until(&second, "COMPLETED").await;
    assert_eq!(done["output"], json!({ "slept": 5_000, "echo": "rye" }));
}

/// A job cancelled while it waits is CANCELLED and never starts.
#[tokio::test]
async fn in_queue_cancel() {
    let endpoint = shared("states-queued-cancel", paused()).await;
    let job = endpoint.submit(echo()).await;
    let answer = endpoint.cancel(&job).await.ok();
    assert_eq!(answer, json!({ "id": job, "status": "CANCELLED" }));
    assert_eq!(endpoint.health().await["jobs"]["inQueue"], 0);
    // It stays so when workers start.
    endpoint.set_workers_max(1).await;
    assert_eq!(endpoint.finish(echo()).await["status"], "COMPLETED");
    let document = endpoint.status(&job).await.ok();
    assert_eq!(document["status"], "CANCELLED");
    assert!(document.get("workerId").is_none() && document.get("output").is_none(), "{document}");
    assert_eq!(endpoint.health().await["jobs"]["completed"], 1);
}

/// A job cancelled while it runs is CANCELLED at once, and stopped.
#[tokio::test]
async fn in_progress_cancel() {
    let endpoint = shared("states-running-cancel", one_worker()).await;
    let job = endpoint.running(forever()).await;
    let answer = endpoint.cancel(&job).await.ok();
    assert_eq!(answer, json!({ "id": job, "status": "CANCELLED" }));
    assert_eq!(endpoint.status(&job).await.ok()["status"], "CANCELLED");
    // The only worker is free for the next job.
    assert_eq!(endpoint.finish(echo()).await["status"], "COMPLETED");
    assert_eq!(endpoint.status(&job).await.ok()["status"], "CANCELLED");
}

/// A FAILED job that is retried waits again under its id, without its error, and runs with its
/// original input.
#[tokio::test]
async fn failed_retry() {
    let server = LocalServer::start().await;
    let endpoint = shared("states-failed-retry", json!({})).await;
    let input = json!({ "op": "fetch", "url": server.url("/flour") });
    let failed = endpoint.finish(input).await;
    assert_eq!(failed["status"], "FAILED", "the endpoint allows no host: {failed}");
    let job = id(&failed);
    let path = format!("/v1/endpoints/{}", endpoint.id);
    let allowed = json!({ "allowedHosts": [server.host()], "workersMax": 0 });
    endpoint.client.patch(&path, &allowed).await.ok();

    let answer = endpoint.retry(&job).await.ok();
    assert_eq!(answer, json!({ "id": job, "status": "IN_QUEUE" }));
    let document = endpoint.status(&job).await.ok();
    assert_eq!(document["status"], "IN_QUEUE");
    assert!(document.get("error").is_none(), "{document}");
    endpoint.set_workers_max(1).await;
    let done = endpoint.until(&job, "COMPLETED").await;
    assert_eq!(done["output"]["body"], "hello from /flour");
    assert_eq!(endpoint.health().await["jobs"]["retried"], 1);
}

/// A TIMED_OUT job can be retried like a FAILED one; the results of its last attempt are deleted.
#[tokio::test]
async fn timed_out_retry() {
    let endpoint = shared("states-timeout-retry", one_worker()).await;
    let input = json!({ "op": "stream", "count": 1000, "delay_ms": 500 });
    let job = endpoint.submit_with(input, json!({ "executionTimeout": 5_000 })).await;
    let document = endpoint.until(&job, "TIMED_OUT").await;
    assert!(document["error"].is_string(), "{document}");
    assert_ne!(endpoint.stream(&job).await.ok(), json!([]));

    endpoint.set_workers_max(0).await;
    let answer = endpoint.retry(&job).await.ok();
    assert_eq!(answer, json!({ "id": job, "status": "IN_QUEUE" }));
    let document = endpoint.status(&job).await.ok();
    assert_eq!(document["status"], "IN_QUEUE");
    assert!(document.get("error").is_none() && document.get("output").is_none(), "{document}");
    assert_eq!(endpoint.stream(&format!("{job}?from=0&wait=0")).await.ok(), json!([]));
    endpoint.set_workers_max(1).await;
    endpoint.until(&job, "IN_PROGRESS").await;
    assert_eq!(endpoint.stream(&job).await.ok()[0]["output"], json!({ "i": 0 }));
    endpoint.cancel(&job).await.ok();
}

/// A purge removes the waiting jobs and counts them; the running job continues.
#[tokio::test]
async fn in_queue_purge() {
    let endpoint = shared("states-purge", one_worker()).await;
    let running = endpoint.running(forever()).await;
    let waiting = [endpoint.submit(echo()).await, endpoint.submit(echo()).await];
    assert_eq!(endpoint.purge().await.ok()["removed"], 2);
    for job in &waiting {
        endpoint.assert_gone(job).await;
    }
    assert_eq!(endpoint.status(&running).await.ok()["status"], "IN_PROGRESS");
    endpoint.cancel(&running).await.ok();
}

/// When the ttl is over, counted from the submission, the job is deleted in any state: not a
/// millisecond earlier, and a running job is stopped.
#[tokio::test]
async fn any_state_ttl() {
    let endpoint = clocked("states-ttl", one_worker()).await;
    let ttl = json!({ "ttl": 20 * MINUTE });
    let submit = async |input, status| {
        let job = endpoint.submit_with(input, ttl.clone()).await;
        endpoint.until(&job, status).await;
        job
    };
    let timed_out = endpoint
        .submit_with(forever(), json!({ "ttl": 20 * MINUTE, "executionTimeout": 5_000 }))
        .await;
    endpoint.until(&timed_out, "TIMED_OUT").await;
    let completed = submit(echo(), "COMPLETED").await;
    let failed = submit(failing(), "FAILED").await;
    let running = submit(forever(), "IN_PROGRESS").await;
    let queued = submit(echo(), "IN_QUEUE").await;
    let cancelled = submit(echo(), "IN_QUEUE").await;
    endpoint.cancel(&cancelled).await.ok();
    let survivor = endpoint.submit(echo()).await;

    let jobs = [timed_out, completed, failed, running, queued, cancelled];
    endpoint.host.advance(20 * MINUTE - 1);
    for job in &jobs {
        endpoint.status(job).await.ok();
    }
    endpoint.host.advance(1);
    for job in &jobs {
        endpoint.assert_gone(job).await;
    }
    // The only worker was stopped with its job, and takes the next job whose ttl is not over.
    endpoint.until(&survivor, "COMPLETED").await;
    eventually("nothing to be counted", async || {
        let jobs = &endpoint.health().await["jobs"];
        (jobs["inQueue"] == 0 && jobs["inProgress"] == 0).then_some(())
    })
    .await;
}

/// Results are deleted 30 minutes after the end of a /run and 1 minute after that of a /runsync,
/// however long the job took; then the job cannot be retried either.
#[tokio::test]
async fn completed_retention() {
    let endpoint = clocked("states-retention", paused()).await;
    let late = endpoint.submit(echo()).await;
    endpoint.host.advance(DAY / 2);
    endpoint.set_workers_max(1).await;
    endpoint.until(&late, "COMPLETED").await;
    let failed = id(&endpoint.finish(failing()).await);
    let sync = id(&endpoint.run_sync("", failing()).await.ok());

    endpoint.host.advance(MINUTE - 1);
    endpoint.status(&sync).await.ok();
    endpoint.host.advance(1);
    endpoint.assert_gone(&sync).await;
    endpoint.host.advance(29 * MINUTE - 1);
    endpoint.status(&late).await.ok();
    endpoint.status(&failed).await.ok();
    endpoint.host.advance(1);
    endpoint.assert_gone(&late).await;
    endpoint.assert_gone(&failed).await;
}
