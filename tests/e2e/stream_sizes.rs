//! How much one chunk, one answer and one stream carry.

use gristmill_tests::{guests, shared_host};
use serde_json::json;

const CHUNK_BYTES_MAX: usize = 1 << 20;

#[tokio::test]
async fn a_chunk_over_one_megabyte_is_split_and_nothing_is_lost() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sizes-split", json!({})).await;
    let bytes = 2_500_000;
    let done = host.client.finish(&endpoint, json!({ "op": "chunk", "bytes": bytes })).await;
    assert_eq!(done["status"], "COMPLETED", "{}", done["error"]);
    let answer = host.client.stream(&endpoint, done["id"].as_str().unwrap()).await;
    let chunks = answer.ok();
    let chunks = chunks.as_array().unwrap();
    assert!(chunks.len() >= 3, "{} chunks", chunks.len());
    for (index, chunk) in chunks.iter().enumerate() {
        assert!(chunk["output"].to_string().len() <= CHUNK_BYTES_MAX, "chunk {index}");
        assert_eq!(chunk["metrics"]["stream_index"], index);
    }
    let parts = chunks.iter().map(|chunk| chunk["output"].as_str().unwrap());
    assert_eq!(parts.clone().map(str::len).sum::<usize>(), bytes);
    assert_eq!(done["output"], json!(parts.collect::<Vec<_>>()));
}

#[tokio::test]
async fn a_chunk_of_just_one_megabyte_is_not_split() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sizes-whole", json!({})).await;
    let bytes = CHUNK_BYTES_MAX - 2; // and its two quotes
    let done = host.client.finish(&endpoint, json!({ "op": "chunk", "bytes": bytes })).await;
    let chunks = host.client.stream(&endpoint, done["id"].as_str().unwrap()).await.ok();
    assert_eq!(chunks.as_array().unwrap().len(), 1);
    assert_eq!(chunks[0]["output"].as_str().unwrap().len(), bytes);
}

#[tokio::test]
async fn a_long_stream_arrives_whole_over_several_answers() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sizes-long", json!({})).await;
    let count = 12_000;
    let job = host.client.submit(&endpoint, json!({ "op": "stream", "count": count })).await;
    let (mut next, mut calls) = (0, 0);
    loop {
        let answer = host.client.stream(&endpoint, &job).await;
        calls += 1;
        for chunk in answer.ok().as_array().unwrap() {
            assert_eq!(chunk["output"]["i"], next, "call {calls}");
            next += 1;
        }
        if answer.header("x-job-status") == Some("COMPLETED") {
            break;
        }
        assert!(calls < 1_500, "{next} chunks in {calls} calls");
    }
    assert_eq!(next, count);
    println!("{count} chunks came in {calls} answers");
    let document = host.client.status(&endpoint, &job).await.ok();
    assert_eq!(document["output"].as_array().map(Vec::len), Some(count));
}

#[tokio::test]
async fn large_outputs_come_back_whole() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sizes-output", json!({})).await;
    for bytes in [0, 4 << 10, 64 << 10, 1 << 20, 8 << 20] {
        let input = json!({ "op": "output", "bytes": bytes });
        let document = host.client.run_sync(&endpoint, "", input).await.ok();
        let output = document["output"].as_str().unwrap_or_else(|| panic!("{}", document["error"]));
        assert!(output.len() == bytes && output.bytes().all(|byte| byte == b'x'), "{bytes}");
        let again = host.client.status(&endpoint, document["id"].as_str().unwrap()).await.ok();
        assert!(again["output"].as_str() == Some(output), "{bytes}");
    }
}
