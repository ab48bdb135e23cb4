//! `/run`, `/runsync` and `/status`: from the submission to the result.

use std::time::{Duration, Instant};

use gristmill_tests::{eventually, guests, shared_host};
use serde_json::{Value, json};

/// Every status document: four fields always, nothing null, integers for times, one of six states.
fn check_document(document: &Value) {
    let fields = document.as_object().unwrap();
    assert!(fields.values().all(|value| !value.is_null()), "{document}");
    for required in ["id", "status", "delayTime", "executionTime"] {
        assert!(fields.contains_key(required), "{required}: {document}");
    }
    assert!(document["delayTime"].is_u64() && document["executionTime"].is_u64(), "{document}");
    let known = ["IN_QUEUE", "IN_PROGRESS", "COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"];
    assert!(known.contains(&document["status"].as_str().unwrap()), "{document}");
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    assert!(document["id"].as_str().unwrap().bytes().all(is_word), "{document}");
}

#[tokio::test]
async fn run_answers_an_id_and_status_leads_to_the_result() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "life-run", json!({})).await;
    let accepted = host.client.run(&endpoint, json!({ "op": "echo", "value": [1] })).await.ok();
    let names: Vec<_> = accepted.as_object().unwrap().keys().collect();
    assert_eq!(names, ["id", "status"], "{accepted}");
    assert_eq!(accepted["status"], "IN_QUEUE");
    let job = accepted["id"].as_str().unwrap();
    assert!(!job.starts_with("sync-"), "{job}");
    let document = host.client.until(&endpoint, job, "COMPLETED").await;
    check_document(&document);
    assert_eq!(document["id"], job);
    assert_eq!(document["output"], json!({ "echo": [1] }));
    assert!(document["workerId"].is_string(), "{document}");
    for absent in ["error", "retries", "reason"] {
        assert!(document.get(absent).is_none(), "{document}");
    }
}

#[tokio::test]
async fn runsync_answers_the_result_and_names_its_job_in_a_header() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "life-sync", json!({})).await;
    let answer = host.client.run_sync(&endpoint, "", json!({ "op": "echo", "value": 1 })).await;
    let document = answer.ok();
    check_document(&document);
    assert_eq!(document["status"], "COMPLETED");
    assert_eq!(document["output"], json!({ "echo": 1 }));
    let job = document["id"].as_str().unwrap();
    assert!(job.starts_with("sync-"), "{job}");
    assert_eq!(answer.header("x-job-id"), Some(job));
    // The result is kept for a while: the same document under its id.
    assert_eq!(host.client.status(&endpoint, job).await.ok()["output"], json!({ "echo": 1 }));
}

#[tokio::test]
async fn runsync_past_its_wait_tells_the_true_status_and_the_job_goes_on() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "life-wait", json!({})).await;
    let begun = Instant::now();
    let input = json!({ "op": "sleep", "ms": 2500, "value": "x" });
    let answer = host.client.run_sync(&endpoint, "?wait=1000", input).await;
    let waited = begun.elapsed();
    let document = answer.ok();
    check_document(&document);
    assert_eq!(document["status"], "IN_PROGRESS");
    assert!(waited >= Duration::from_millis(950), "answered after {waited:?}");
    let job = document["id"].as_str().unwrap();
    assert_eq!(answer.header("x-job-id"), Some(job));
    let document = host.client.until(&endpoint, job, "COMPLETED").await;
    assert_eq!(document["output"], json!({ "slept": 2500, "echo": "x" }));
}

#[tokio::test]
async fn a_runsync_whose_client_goes_away_is_a_job_like_any_other() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "life-gone", json!({})).await;
    let input = json!({ "op": "sleep", "ms": 800 });
    let call = host.client.run_sync(&endpoint, "", input);
    let cut = tokio::time::timeout(Duration::from_millis(300), call).await;
    assert!(cut.is_err(), "{cut:?}");
    eventually("the job to complete", async || {
        (host.client.health(&endpoint).await["jobs"]["completed"] == 1).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_wait_out_of_range_is_clamped_and_a_word_is_refused() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "life-clamp", json!({})).await;
    let quick = json!({ "op": "sleep", "ms": 200 });
    for query in ["?wait=1", "?wait=-5", "?wait=99999999999999999999"] {
        let document = host.client.run_sync(&endpoint, query, quick.clone()).await.ok();
        assert_eq!(document["status"], "COMPLETED", "{query}");
    }
    let answer = host.client.run_sync(&endpoint, "?wait=soon", quick).await;
    assert!(answer.refused(400).contains("wait"), "{answer:?}");
}

#[tokio::test]
async fn input_and_output_are_raw_json_so_large_integers_and_key_order_survive() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "life-raw", json!({})).await;
    let input =
        r#"{"z":9007199254740993,"a":1.50,"m":[12345678901234567890123,-0.0,1e3],"é":"é\u0001"}"#;
    let body = format!("{{\"input\":{input}}}");
    let document = host.client.post_text(&host.client.path(&endpoint, "runsync"), &body).await;
    assert!(document.text.contains(&format!("\"output\":{input}")), "{document:?}");
    let accepted = host.client.post_text(&host.client.path(&endpoint, "run"), &body).await.ok();
    let job = accepted["id"].as_str().unwrap();
    host.client.until(&endpoint, job, "COMPLETED").await;
    let document = host.client.status(&endpoint, job).await;
    assert!(document.text.contains(&format!("\"output\":{input}")), "{document:?}");
}

#[tokio::test]
async fn execution_time_is_that_of_the_handler_in_milliseconds() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "life-times", json!({})).await;
    let job = host.client.submit(&endpoint, json!({ "op": "sleep", "ms": 900 })).await;
    let running = host.client.until(&endpoint, &job, "IN_PROGRESS").await;
    check_document(&running);
    assert!(running["workerId"].is_string(), "{running}");
    assert!(running.get("output").is_none(), "{running}");
    let document = host.client.until(&endpoint, &job, "COMPLETED").await;
    let took = document["executionTime"].as_u64().unwrap();
    println!("a sleep of 900 ms has an executionTime of {took} ms");
    assert!((900..5_000).contains(&took), "{document}");
    assert!(document["delayTime"].as_u64().unwrap() < 10_000, "{document}");
}

#[tokio::test]
async fn a_job_that_cannot_run_yet_says_why_and_its_delay_grows() {
    let host = shared_host();
    let settings = json!({ "workersMax": 0 });
    let endpoint = host.deploy(&guests::playground(), "life-paused", settings).await;
    let job = host.client.submit(&endpoint, json!({ "op": "echo" })).await;
    let first = host.client.until(&endpoint, &job, "IN_QUEUE").await;
    check_document(&first);
    assert!(!first["reason"].as_str().unwrap_or_default().is_empty(), "{first}");
    assert!(first.get("workerId").is_none() && first.get("output").is_none(), "{first}");
    tokio::time::sleep(Duration::from_millis(120)).await;
    let second = host.client.until(&endpoint, &job, "IN_QUEUE").await;
    let grown = second["delayTime"].as_u64().unwrap() - first["delayTime"].as_u64().unwrap();
    assert!(grown >= 100, "{first} {second}");
    // Workers are allowed: the job runs, and the delay stands still.
    host.client.patch(&format!("/v1/endpoints/{endpoint}"), &json!({ "workersMax": 1 })).await.ok();
    let done = host.client.until(&endpoint, &job, "COMPLETED").await;
    assert!(done["delayTime"].as_u64() >= second["delayTime"].as_u64(), "{second} {done}");
    assert!(done.get("reason").is_none(), "{done}");
}

#[tokio::test]
async fn status_sync_waits_for_the_end() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "life-long", json!({})).await;
    let job = host.client.submit(&endpoint, json!({ "op": "sleep", "ms": 600 })).await;
    let path = host.client.path(&endpoint, &format!("status-sync/{job}?wait=20000"));
    let document = host.client.get(&path).await.ok();
    check_document(&document);
    assert_eq!(document["status"], "COMPLETED");
    // It answers what is true when the wait is over.
    let job = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    let path = host.client.path(&endpoint, &format!("status-sync/{job}?wait=1000"));
    assert_eq!(host.client.get(&path).await.ok()["status"], "IN_PROGRESS");
    host.client.cancel(&endpoint, &job).await.ok();
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
