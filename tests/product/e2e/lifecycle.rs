//! Each way in which a job ends, on the real clock, and a run of every sample handler.

use gristmill_tests::{eventually, guests, shared_host};
use serde_json::json;

#[tokio::test]
async fn a_runsync_job_of_a_disconnected_client_continues() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "life-gone", json!({})).await;
    let call = tokio::spawn({
        let (client, endpoint) = (host.client.clone(), endpoint.clone());
        async move { client.run_sync(&endpoint, "", json!({ "op": "sleep", "ms": 5_000 })).await }
    });
    eventually("the job to run", async || {
        (host.client.health(&endpoint).await["jobs"]["inProgress"] == 1).then_some(())
    })
    .await;
    call.abort();
    let cut = call.await;
    assert!(cut.is_err(), "{cut:?}");
    eventually("the job to complete", async || {
        (host.client.health(&endpoint).await["jobs"]["completed"] == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn execution_time_is_that_of_the_handler_in_milliseconds() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "life-times", json!({})).await;
    let job = host.client.submit(&endpoint, json!({ "op": "sleep", "ms": 5_000 })).await;
    let running = host.client.until(&endpoint, &job, "IN_PROGRESS").await;
    assert!(running["workerId"].is_string(), "{running}");
    assert!(running.get("output").is_none(), "{running}");
    let document = host.client.until(&endpoint, &job, "COMPLETED").await;
    let took = document["executionTime"].as_u64().unwrap();
    println!("a sleep of 5,000 ms has an executionTime of {took} ms");
    assert!((5_000..30_000).contains(&took), "{document}");
    assert!(document["delayTime"].as_u64().unwrap() < 10_000, "{document}");
}

#[tokio::test]
async fn every_sample_handler_runs() {
    let host = shared_host();
    let words = host.deploy(&guests::word_count(), "life-words", json!({})).await;
    let input = json!({ "text": "the mill, the wheel", "top": 1 });
    let document = host.client.run_sync(&words, "", input).await.ok();
    assert_eq!(document["output"]["words"], 4, "{document}");
    assert_eq!(document["output"]["most_common"], json!([{ "word": "the", "count": 2 }]));

    let thumbnails = host.deploy(&guests::thumbnail(), "life-thumbnail", json!({})).await;
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let document = host.client.run_sync(&thumbnails, "", json!({ "image": pixel })).await.ok();
    assert_eq!(document["output"]["format"], "png", "{document}");
    assert_eq!(document["output"]["width"], 1, "{document}");
}
