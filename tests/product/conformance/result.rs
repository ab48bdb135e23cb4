//! Fields of a job's result, as /runsync and /status answer it.

use serde_json::{Value, json};

use crate::support::{clocked, echo, failing, forever, id, paused, shared};

/// `id` is the job's id, the same in all answers.
#[tokio::test]
async fn job_id() {
    let endpoint = shared("result-id", json!({})).await;
    let done = endpoint.run_sync("", echo()).await.ok();
    assert_eq!(endpoint.status(&id(&done)).await.ok()["id"], done["id"]);
    let job = endpoint.submit(echo()).await;
    assert_eq!(endpoint.status(&job).await.ok()["id"], json!(job));
    assert_ne!(done["id"], json!(job));
}

/// `status` is the job's status, in /runsync's answer as in /status's.
#[tokio::test]
async fn status() {
    let endpoint = shared("result-status", json!({})).await;
    for (input, status) in [(echo(), "COMPLETED"), (failing(), "FAILED")] {
        let answer = endpoint.run_sync("", input).await.ok();
        assert_eq!(answer["status"], status);
        assert_eq!(endpoint.status(&id(&answer)).await.ok()["status"], status);
    }
}

/// `delayTime` is the time that the job waited: it grows while the job waits, and then stays.
#[tokio::test]
async fn delay_time() {
    let endpoint = clocked("result-delay", paused()).await;
    let job = endpoint.submit(forever()).await;
    let delay = async || endpoint.status(&job).await.ok()["delayTime"].clone();
    assert_eq!(delay().await, 0);
    endpoint.host.advance(1_234);
    assert_eq!(delay().await, 1_234);
    endpoint.host.advance(4_766);
    assert_eq!(delay().await, 6_000);
    endpoint.set_workers_max(1).await;
    endpoint.until(&job, "IN_PROGRESS").await;
    endpoint.host.advance(777);
    assert_eq!(delay().await, 6_000);
    endpoint.cancel(&job).await.ok();
    endpoint.host.advance(777);
    assert_eq!(delay().await, 6_000);
}

/// `executionTime` is the time that the handler ran: 0 before, growing meanwhile, and together with
/// delayTime the job's age at its end.
#[tokio::test]
async fn execution_time() {
    let endpoint = clocked("result-execution", paused()).await;
    let job = endpoint.submit(json!({ "op": "sleep", "ms": 8_000 })).await;
    endpoint.host.advance(250);
    assert_eq!(endpoint.status(&job).await.ok()["executionTime"], 0);
    endpoint.set_workers_max(1).await;
    endpoint.until(&job, "IN_PROGRESS").await;
    endpoint.host.advance(4_321);
    let running = endpoint.status(&job).await.ok();
    assert_eq!(
        (&running["status"], &running["executionTime"]),
        (&json!("IN_PROGRESS"), &json!(4_321))
    );
    let done = endpoint.until(&job, "COMPLETED").await;
    endpoint.host.advance(60_000);
    assert_eq!(endpoint.status(&job).await.ok(), done);
    assert_eq!((&done["delayTime"], &done["executionTime"]), (&json!(250), &json!(4_321)));
}

/// `output` is any JSON value, as the handler returned it; a job without a result has none.
#[tokio::test]
async fn output() {
    let endpoint = shared("result-output", json!({})).await;
    let values =
        [json!(null), json!(false), json!(-0.5), json!(""), json!([[], {}]), json!({ "a": 1 })];
    for value in values {
        let input = json!({ "op": "echo", "value": value });
        let done = endpoint.run_sync("", input).await.ok();
        assert_eq!(done["output"], json!({ "echo": value }));
        assert_eq!(endpoint.status(&id(&done)).await.ok()["output"], done["output"]);
    }
    let text = endpoint.run_sync("", json!({ "op": "output", "bytes": 3 })).await.ok();
    assert_eq!(text["output"], "xxx");
    let failed = endpoint.run_sync("", failing()).await.ok();
    assert_eq!(failed.get("output"), None::<&Value>, "{failed}");
    let job = endpoint.running(forever()).await;
    assert_eq!(endpoint.status(&job).await.ok().get("output"), None::<&Value>);
    endpoint.cancel(&job).await.ok();
}
