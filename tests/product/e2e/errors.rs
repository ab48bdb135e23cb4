//! Refusals of submissions have a helpful sentence.

use gristmill_tests::{guests, shared_host};
use reqwest::Method;
use serde_json::json;

#[tokio::test]
async fn a_body_that_is_no_submission_is_refused() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "errors-body", json!({})).await;
    let cases = [
        ("", ""),
        ("{", "JSON"),
        ("{\"input\":{}", "JSON"),
        ("[]", "object"),
        ("\"text\"", "object"),
        ("{}", "input"),
        ("{\"input\":null}", "input"),
        ("{\"input\":7}", "input"),
        ("{\"input\":\"text\"}", "input"),
        ("{\"input\":[]}", "input"),
        ("{\"input\":{\"a\":nul}}", "JSON"),
        ("{\"input\":{}} trailing", "JSON"),
    ];
    for operation in ["run", "runsync"] {
        for (body, word) in cases {
            let path = host.client.path(&endpoint, operation);
            let answer = host.client.post_text(&path, body).await;
            assert!(answer.refused(400).contains(word), "{body}: {answer:?}");
        }
    }
    let not_utf8 = host.client.request(Method::POST, &host.client.path(&endpoint, "run"));
    host.client.send(not_utf8.body(b"{\"input\":{\"a\":\"\xff\"}}".to_vec())).await.refused(400);
    let deep = format!("{{\"input\":{{\"a\":{}1{}}}}}", "[".repeat(100_000), "]".repeat(100_000));
    let answer = host.client.post_text(&host.client.path(&endpoint, "run"), deep).await;
    assert!(answer.refused(400).contains("deeper than 128 levels"), "{answer:?}");
    assert_eq!(host.client.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
}
