//! `/stream`: chunks as a JSON array on `/v2`, inside the SDKs' object on `/sdk/v2`.

use gristmill_tests::{guests, shared_host};
use serde_json::json;

const FINAL: [&str; 4] = ["COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"];

#[tokio::test]
async fn calls_that_follow_each_other_at_once_never_deliver_a_chunk_twice() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "stream-twice", json!({})).await;
    for turn in 0..60 {
        let done = host.client.finish(&endpoint, json!({ "op": "stream", "count": 3 })).await;
        let job = done["id"].as_str().unwrap();
        let first = host.client.stream(&endpoint, job).await;
        let second = host.client.stream(&endpoint, job).await;
        assert_eq!((first.chunks().len(), second.chunks().len()), (3, 0), "turn {turn}");
    }
}

#[tokio::test]
async fn a_job_that_waits_has_an_empty_stream_with_its_status() {
    let host = shared_host();
    let settings = json!({ "workersMax": 0 });
    let endpoint = host.deploy(&guests::playground(), "stream-queued", settings).await;
    let job = host.client.submit(&endpoint, json!({ "op": "stream" })).await;
    let answer = host.client.stream(&endpoint, &format!("{job}?wait=0")).await;
    assert_eq!((answer.chunks(), answer.job_status()), (vec![], "IN_QUEUE"));
    let page = host.client.sdk().stream(&endpoint, &format!("{job}?wait=0")).await.ok();
    assert_eq!(page, json!({ "status": "IN_QUEUE", "stream": [] }));
    host.client.stream(&endpoint, &format!("{job}?wait=soon")).await.refused(400);
}

#[tokio::test]
async fn the_sdk_mount_answers_the_object_that_the_sdks_read() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "stream-sdk", json!({})).await;
    let sdk = host.client.sdk();
    let job = sdk.submit(&endpoint, json!({ "op": "stream", "count": 4, "delay_ms": 100 })).await;
    let mut outputs = vec![];
    loop {
        let page = sdk.stream(&endpoint, &job).await.ok();
        let names: Vec<_> = page.as_object().unwrap().keys().collect();
        assert_eq!(names, ["status", "stream"], "{page}");
        let delivered = page["stream"].as_array().unwrap().iter();
        outputs.extend(delivered.map(|chunk| chunk["output"]["i"].as_u64().unwrap()));
        if FINAL.contains(&page["status"].as_str().unwrap()) {
            assert_eq!(page["status"], "COMPLETED");
            break;
        }
        assert!(outputs.len() <= 4, "delivered more than once: {outputs:?}");
    }
    assert_eq!(outputs, [0, 1, 2, 3]);
    let drained = sdk.stream(&endpoint, &job).await.ok();
    assert_eq!(drained, json!({ "status": "COMPLETED", "stream": [] }));
    // Nothing else differs: the same job, the same document, on either mount.
    let documents = [sdk.status(&endpoint, &job).await, host.client.status(&endpoint, &job).await];
    assert_eq!(documents[0].ok(), documents[1].ok());
}
