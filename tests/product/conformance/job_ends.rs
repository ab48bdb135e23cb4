//! Our decisions where the contract is silent, about the ends of jobs and about jobs that have
//! ended.

use gristmill_tests::{TestHost, eventually, guests};
use serde_json::{Value, json};

use crate::support::{
    MINUTE, clocked, computing, echo, failing, forever, id, one_worker, paused, shared,
};

/// A job that has ended keeps its status when it is cancelled, and the answer is a 200 with that
/// status; a second cancellation gets the same answer.
#[tokio::test]
async fn cancel_of_a_finished_job() {
    let endpoint = shared("behaviour-late", json!({})).await;
    for input in [echo(), failing()] {
        let done = endpoint.finish(input).await;
        let answer = endpoint.cancel(&id(&done)).await.ok();
        assert_eq!(answer, json!({ "id": done["id"], "status": done["status"] }));
        assert_eq!(endpoint.status(&id(&done)).await.ok(), done);
    }
    let job = endpoint.running(forever()).await;
    for _ in 0..2 {
        assert_eq!(endpoint.cancel(&job).await.ok(), json!({ "id": job, "status": "CANCELLED" }));
    }
}

/// A retry in a wrong state is a 400 that names the state; a correct retry does not change the ttl,
/// and restarts the stream.
#[tokio::test]
async fn retry_in_a_wrong_state() {
    let endpoint = clocked("behaviour-retry", json!({})).await;
    let done = id(&endpoint.finish(echo()).await);
    let sentence = endpoint.retry(&done).await.refused(400);
    assert_eq!(sentence, "only FAILED or TIMED_OUT jobs can be retried; job is COMPLETED");

    let job = endpoint.submit_with(failing(), json!({ "ttl": 20 * MINUTE })).await;
    endpoint.until(&job, "FAILED").await;
    endpoint.set_workers_max(0).await;
    endpoint.host.advance(15 * MINUTE);
    endpoint.retry(&job).await.ok();
    let document = endpoint.status(&job).await.ok();
    assert!(document.get("error").is_none() && document.get("output").is_none(), "{document}");
    let stream = endpoint.stream(&format!("{job}?wait=0")).await;
    assert_eq!((stream.ok(), stream.header("x-stream-next")), (json!([]), Some("0")));
    endpoint.host.advance(5 * MINUTE - 1);
    endpoint.status(&job).await.ok();
    endpoint.host.advance(1);
    endpoint.assert_gone(&job).await;
}

/// A FAILED job shows the newest progress value of its last attempt as its output, as its webhook
/// does; a retry clears it.
#[tokio::test]
async fn a_failed_job_keeps_its_partial_output() {
    let endpoint = shared("behaviour-partial", json!({})).await;
    let partial = json!({ "pages": [1, 2], "of": 9_007_199_254_740_993_u64 });
    let failed = endpoint.finish(json!({ "op": "fail", "value": partial })).await;
    assert_eq!((&failed["status"], &failed["output"]), (&json!("FAILED"), &partial), "{failed}");
    assert_eq!(failed["error"], "asked to fail");
    assert!(endpoint.finish(failing()).await.get("output").is_none(), "it handed nothing out");
    endpoint.set_workers_max(0).await;
    endpoint.retry(&id(&failed)).await.ok();
    let waiting = endpoint.status(&id(&failed)).await.ok();
    assert!(waiting.get("output").is_none() && waiting.get("error").is_none(), "{waiting}");
}

/// A purged job is a 404 afterwards, and a /runsync that waited for it gets 404 with the reason.
#[tokio::test]
async fn purged_job() {
    let endpoint = shared("behaviour-purge", paused()).await;
    let job = endpoint.submit(echo()).await;
    let parked = endpoint.run_sync("?wait=60000", echo());
    let purging = async {
        eventually("both jobs to wait", async || {
            (endpoint.health().await["jobs"]["inQueue"] == 2).then_some(())
        })
        .await;
        endpoint.purge().await.ok()
    };
    let (parked, purged) = tokio::join!(parked, purging);
    assert_eq!(purged["removed"], 2);
    assert!(parked.refused(404).contains("removed by purge-queue"), "{parked:?}");
    endpoint.assert_gone(&job).await;
}

/// A job that reaches its executionTimeout is TIMED_OUT, with an error that says so, and counts as
/// failed.
#[tokio::test]
async fn execution_timeout() {
    let endpoint = shared("behaviour-timeout", json!({})).await;
    let timeout = json!({ "executionTimeout": 5_000 });
    let computes = endpoint.submit_with(computing(), timeout.clone()).await;
    let waits = endpoint.submit_with(forever(), timeout).await;
    for job in [&computes, &waits] {
        let document = endpoint.until(job, "TIMED_OUT").await;
        assert_eq!(document["error"], "executionTimeout exceeded");
        assert!(document.get("output").is_none(), "{document}");
        let took = document["executionTime"].as_u64().unwrap();
        assert!((5_000..30_000).contains(&took), "{document}");
    }
    let jobs = &endpoint.health().await["jobs"];
    assert_eq!((&jobs["failed"], &jobs["completed"]), (&json!(2), &json!(0)));
}

/// When the ttl passes, the job is deleted at once and a running instance is stopped; every later
/// call is a 404, and so are the waiting calls.
#[tokio::test]
async fn ttl_passes() {
    let endpoint = clocked("behaviour-gone", one_worker()).await;
    let ttl = json!({ "ttl": MINUTE });
    let running = endpoint.submit_with(computing(), ttl.clone()).await;
    endpoint.until(&running, "IN_PROGRESS").await;
    let body = json!({ "input": echo(), "policy": ttl });
    let parked_runsync = endpoint.post("runsync?wait=60000", &body);
    let stream_path = format!("{running}?wait=60000");
    let parked_stream = endpoint.stream(&stream_path);
    let path = format!("status-sync/{running}?wait=60000");
    let parked_status = endpoint.get(&path);
    let passing = async {
        eventually("the second job to wait", async || {
            (endpoint.health().await["jobs"]["inQueue"] == 1).then_some(())
        })
        .await;
        endpoint.client.calls_waiting(3).await;
        endpoint.host.advance(MINUTE);
        endpoint.assert_gone(&running).await;
    };
    let (runsync, stream, status, ()) =
        tokio::join!(parked_runsync, parked_stream, parked_status, passing);
    runsync.refused(404);
    stream.refused(404);
    status.refused(404);
    assert_eq!(endpoint.finish(echo()).await["status"], "COMPLETED", "the worker is free");
}

/// A job whose host crashes while it runs is queued again, with `retries` one higher; the third
/// such crash makes it FAILED. A handler's own error is final at once.
#[tokio::test]
async fn delivery() {
    let mut host = TestHost::start();
    let endpoint = host.deploy(&guests::playground(), "delivery", one_worker()).await;
    let failed = host.client().finish(&endpoint, failing()).await;
    assert_eq!((&failed["status"], failed.get("retries")), (&json!("FAILED"), None));
    let stream = json!({ "op": "stream", "count": 10_000, "delay_ms": 100 });
    let job = host.client().submit(&endpoint, stream).await;
    for crashes in 0..3 {
        let document = host.client().until(&endpoint, &job, "IN_PROGRESS").await;
        assert_eq!(document.get("retries").and_then(Value::as_u64).unwrap_or(0), crashes);
        // A claim is on stable storage soon after it was made, and before a chunk can be read.
        let page = host.client().stream(&endpoint, &format!("{job}?from=0&wait=60000")).await.ok();
        assert_ne!(page, json!([]));
        host.kill9();
        host.start_again();
    }
    let document = host.client().finished(&endpoint, &job).await;
    assert_eq!(document["status"], "FAILED", "{document}");
    assert!(!document["error"].as_str().unwrap().is_empty(), "{document}");
}
