//! `/stream`: chunks as a JSON array on `/v2`, inside the SDKs' object on `/sdk/v2`.

use std::time::{Duration, Instant};

use gristmill_tests::{Answer, Client, guests, shared_host};
use serde_json::{Value, json};

const FINAL: [&str; 4] = ["COMPLETED", "FAILED", "CANCELLED", "TIMED_OUT"];

fn chunks(answer: &Answer) -> Vec<Value> {
    answer.ok().as_array().unwrap_or_else(|| panic!("no array: {answer:?}")).clone()
}

fn job_status(answer: &Answer) -> &str {
    answer.header("x-job-status").unwrap_or_else(|| panic!("no X-Job-Status: {answer:?}"))
}

/// Calls until the answer that carries a final status; returns each call's chunks.
async fn read_to_end(client: &Client, endpoint: &str, job: &str) -> (Vec<Vec<Value>>, String) {
    let mut pages = vec![];
    for _ in 0..200 {
        let answer = client.stream(endpoint, job).await;
        pages.push(chunks(&answer));
        let total: usize = pages.iter().map(Vec::len).sum();
        assert_eq!(answer.header("x-stream-next"), Some(total.to_string().as_str()), "{answer:?}");
        if FINAL.contains(&job_status(&answer)) {
            let status = job_status(&answer).to_owned();
            return (pages, status);
        }
    }
    panic!("the stream of {job} does not end");
}

#[tokio::test]
async fn each_chunk_is_delivered_once_and_the_final_answer_carries_the_rest() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "stream-drain", json!({})).await;
    let input = json!({ "op": "stream", "count": 5, "delay_ms": 150 });
    let job = host.client.submit(&endpoint, input).await;
    let (pages, status) = read_to_end(&host.client, &endpoint, &job).await;
    assert_eq!(status, "COMPLETED");
    assert!(pages.len() > 1, "chunks come while the job runs: {pages:?}");
    let expected: Vec<_> =
        (0..5).map(|i| json!({ "output": { "i": i }, "metrics": { "stream_index": i } })).collect();
    assert_eq!(pages.concat(), expected);
    // Drained: nothing more, at once, with the same status.
    let begun = Instant::now();
    let after = host.client.stream(&endpoint, &job).await;
    assert_eq!((chunks(&after), job_status(&after)), (vec![], "COMPLETED"));
    assert_eq!(after.header("x-stream-next"), Some("5"));
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn calls_that_follow_each_other_at_once_never_deliver_a_chunk_twice() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "stream-twice", json!({})).await;
    for turn in 0..60 {
        let done = host.client.finish(&endpoint, json!({ "op": "stream", "count": 3 })).await;
        let job = done["id"].as_str().unwrap();
        let first = host.client.stream(&endpoint, job).await;
        let second = host.client.stream(&endpoint, job).await;
        assert_eq!((chunks(&first).len(), chunks(&second).len()), (3, 0), "turn {turn}");
    }
}

#[tokio::test]
async fn a_job_that_waits_has_an_empty_stream_with_its_status() {
    let host = shared_host();
    let settings = json!({ "workersMax": 0 });
    let endpoint = host.deploy(&guests::playground(), "stream-queued", settings).await;
    let job = host.client.submit(&endpoint, json!({ "op": "stream" })).await;
    let answer = host.client.stream(&endpoint, &format!("{job}?wait=0")).await;
    assert_eq!((chunks(&answer), job_status(&answer)), (vec![], "IN_QUEUE"));
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

#[tokio::test]
async fn from_replays_and_leaves_the_read_position_alone() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "stream-from", json!({})).await;
    let done = host.client.finish(&endpoint, json!({ "op": "stream", "count": 4 })).await;
    let job = done["id"].as_str().unwrap();
    let replay = host.client.stream(&endpoint, &format!("{job}?from=1")).await;
    let indexes = |answer: &Answer| -> Vec<u64> {
        chunks(answer).iter().map(|c| c["metrics"]["stream_index"].as_u64().unwrap()).collect()
    };
    assert_eq!(indexes(&replay), [1, 2, 3]);
    assert_eq!(indexes(&host.client.stream(&endpoint, job).await), [0, 1, 2, 3]);
    assert_eq!(indexes(&host.client.stream(&endpoint, job).await), [] as [u64; 0]);
    let again = host.client.stream(&endpoint, &format!("{job}?from=0")).await;
    assert_eq!((indexes(&again), job_status(&again)), (vec![0, 1, 2, 3], "COMPLETED"));
    for wrong in ["-1", "x"] {
        host.client.stream(&endpoint, &format!("{job}?from={wrong}")).await.refused(400);
    }
}

#[tokio::test]
async fn a_handler_that_returns_nothing_has_the_list_of_its_chunks_as_output() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "stream-list", json!({})).await;
    let done = host.client.finish(&endpoint, json!({ "op": "stream", "count": 3 })).await;
    assert_eq!(done["output"], json!([{ "i": 0 }, { "i": 1 }, { "i": 2 }]));
    // Reading the stream takes nothing away from it.
    let job = done["id"].as_str().unwrap();
    read_to_end(&host.client, &endpoint, job).await;
    assert_eq!(host.client.status(&endpoint, job).await.ok()["output"], done["output"]);
    let input = json!({ "op": "stream", "count": 2 });
    let document = host.client.run_sync(&endpoint, "", input).await.ok();
    assert_eq!(document["output"], json!([{ "i": 0 }, { "i": 1 }]));
}

#[tokio::test]
async fn metrics_are_the_handlers_with_the_index_of_the_chunk() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::token_stream(), "stream-metrics", json!({})).await;
    let input = json!({ "prompt": "Slow mills grind fine." });
    let done = host.client.finish(&endpoint, input).await;
    let (pages, _) = read_to_end(&host.client, &endpoint, done["id"].as_str().unwrap()).await;
    let all = pages.concat();
    let tokens: Vec<_> = all.iter().map(|chunk| chunk["output"].as_str().unwrap()).collect();
    assert_eq!(tokens.concat(), "Slow mills grind fine.");
    assert_eq!(done["output"], json!(tokens));
    for (index, chunk) in all.iter().enumerate() {
        assert_eq!(chunk["metrics"]["stream_index"], index, "{chunk}");
        assert_eq!(chunk["metrics"]["output_tokens"], index + 1, "{chunk}");
        assert_eq!(chunk["metrics"]["input_tokens"], tokens.len(), "{chunk}");
    }
}

#[tokio::test]
async fn a_call_with_nothing_to_tell_is_held_and_wakes_on_a_chunk() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "stream-hold", json!({})).await;
    let input = json!({ "op": "stream", "count": 1, "delay_ms": 1500 });
    let job = host.client.submit(&endpoint, input).await;
    host.client.until(&endpoint, &job, "IN_PROGRESS").await;
    let begun = Instant::now();
    let empty = host.client.stream(&endpoint, &format!("{job}?wait=0")).await;
    assert_eq!((chunks(&empty), job_status(&empty)), (vec![], "IN_PROGRESS"));
    assert_eq!(empty.header("x-stream-next"), Some("0"));
    assert!(begun.elapsed() < Duration::from_millis(1200), "{:?}", begun.elapsed());
    let answer = host.client.stream(&endpoint, &format!("{job}?wait=60000")).await;
    let held = begun.elapsed();
    println!("a chunk that comes after 1.5 s woke the reader after {held:?}");
    assert_eq!(chunks(&answer).len(), 1);
    assert!(held > Duration::from_millis(900) && held < Duration::from_secs(10), "{held:?}");
    host.client.until(&endpoint, &job, "COMPLETED").await;

    // The hold without `wait` is 4 s: long enough to save calls, short enough for every client.
    let job = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    let begun = Instant::now();
    let answer = host.client.stream(&endpoint, &job).await;
    let held = begun.elapsed();
    assert_eq!(chunks(&answer), [] as [Value; 0]);
    assert!(held > Duration::from_millis(3_500) && held < Duration::from_secs(9), "{held:?}");
    host.client.cancel(&endpoint, &job).await.ok();
}

#[tokio::test]
async fn a_call_that_is_held_wakes_on_the_end_of_the_job() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "stream-end", json!({})).await;
    let job = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    host.client.until(&endpoint, &job, "IN_PROGRESS").await;
    let begun = Instant::now();
    let path = format!("{job}?wait=60000");
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        host.client.cancel(&endpoint, &job).await.ok();
    };
    let (answer, ()) = tokio::join!(host.client.stream(&endpoint, &path), cancelling);
    assert_eq!((chunks(&answer), job_status(&answer)), (vec![], "CANCELLED"));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_handler_that_does_not_stream_has_an_empty_stream() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "stream-none", json!({})).await;
    for (op, status) in [("echo", "COMPLETED"), ("fail", "FAILED"), ("trap", "FAILED")] {
        let job = host.client.submit(&endpoint, json!({ "op": op })).await;
        let (pages, end) = read_to_end(&host.client, &endpoint, &job).await;
        assert_eq!((pages.concat(), end.as_str()), (vec![], status), "{op}");
    }
    let unknown = "0192f3a0-0000-7000-8000-000000000000-0000";
    host.client.stream(&endpoint, unknown).await.refused(404);
}
