//! The size limits of one answer and one stream.

use gristmill_tests::{guests, shared_host};
use serde_json::json;

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
