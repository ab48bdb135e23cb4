//! `/retry`: FAILED and TIMED_OUT jobs run again under their id, with their input.

use gristmill_tests::{LocalServer, guests, shared_host};
use serde_json::json;

#[tokio::test]
async fn a_failed_job_runs_again_with_its_input() {
    let host = shared_host();
    let server = LocalServer::start().await;
    let endpoint = host.deploy(&guests::playground(), "retry-failed", json!({})).await;
    let input = json!({ "op": "fetch", "url": server.url("/flour") });
    let failed = host.client.finish(&endpoint, input).await;
    assert_eq!(failed["status"], "FAILED", "the endpoint allows no host: {failed}");
    let job = failed["id"].as_str().unwrap();
    let allowed = json!({ "allowedHosts": [server.host()] });
    host.client.patch(&format!("/v1/endpoints/{endpoint}"), &allowed).await.ok();

    let answer = host.client.retry(&endpoint, job).await.ok();
    assert_eq!(answer, json!({ "id": job, "status": "IN_QUEUE" }));
    let document = host.client.until(&endpoint, job, "COMPLETED").await;
    assert_eq!(document["output"]["body"], "hello from /flour");
    assert!(document.get("error").is_none(), "{document}");
    assert_eq!(host.client.health(&endpoint).await["jobs"]["retried"], 1);
}

#[tokio::test]
async fn a_timed_out_job_starts_anew_without_its_old_error_and_chunks() {
    let host = shared_host();
    let settings = json!({ "executionTimeoutMs": 5000, "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "retry-timeout", settings).await;
    let input = json!({ "op": "stream", "count": 1000, "delay_ms": 500 });
    let job = host.client.submit(&endpoint, input).await;
    let document = host.client.until(&endpoint, &job, "TIMED_OUT").await;
    assert!(document["error"].is_string(), "{document}");
    let chunks = host.client.stream(&endpoint, &job).await.ok();
    assert!(!chunks.as_array().unwrap().is_empty());

    let path = format!("/v1/endpoints/{endpoint}");
    host.client.patch(&path, &json!({ "workersMax": 0 })).await.ok();
    let answer = host.client.retry(&endpoint, &job).await.ok();
    assert_eq!(answer, json!({ "id": job, "status": "IN_QUEUE" }));
    let document = host.client.status(&endpoint, &job).await.ok();
    assert_eq!(document["status"], "IN_QUEUE", "{document}");
    assert!(document.get("error").is_none() && document.get("output").is_none(), "{document}");
    let answer = host.client.stream(&endpoint, &format!("{job}?from=0&wait=0")).await;
    assert_eq!((answer.ok(), answer.header("x-stream-next")), (json!([]), Some("0")));

    host.client.patch(&path, &json!({ "workersMax": 1 })).await.ok();
    host.client.until(&endpoint, &job, "IN_PROGRESS").await;
    // The read position started anew too: the first chunk of this run comes first.
    let answer = host.client.stream(&endpoint, &job).await;
    assert_eq!(answer.ok()[0], json!({ "output": { "i": 0 }, "metrics": { "stream_index": 0 } }));
    host.client.cancel(&endpoint, &job).await.ok();
}

#[tokio::test]
async fn only_failed_and_timed_out_jobs_can_be_retried() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "retry-wrong", settings).await;
    let completed = host.client.finish(&endpoint, json!({ "op": "echo" })).await;
    let running = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    host.client.until(&endpoint, &running, "IN_PROGRESS").await;
    let queued = host.client.submit(&endpoint, json!({ "op": "echo" })).await;
    let check = async |job: &str, status: &str| {
        let sentence = host.client.retry(&endpoint, job).await.refused(400);
        let expected = format!("only FAILED or TIMED_OUT jobs can be retried; job is {status}");
        assert_eq!(sentence, expected);
    };
    check(completed["id"].as_str().unwrap(), "COMPLETED").await;
    check(&running, "IN_PROGRESS").await;
    check(&queued, "IN_QUEUE").await;
    host.client.cancel(&endpoint, &running).await.ok();
    check(&running, "CANCELLED").await;
    let unknown = "0192f3a0-0000-7000-8000-000000000000-0000";
    host.client.retry(&endpoint, unknown).await.refused(404);
    host.client.retry(&endpoint, "no-such-job").await.refused(404);
}
