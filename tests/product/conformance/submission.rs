//! Fields of a submission.

use serde_json::{Value, json};

use crate::support::{echo, id, paused, shared};

/// `input` is an object, required, and reaches the handler unchanged.
#[tokio::test]
async fn input() {
    let endpoint = shared("submission-input", json!({})).await;
    let value = json!({ "a": [1, { "b": null }], "ü": "☼", "": 1.5 });
    let input = json!({ "op": "echo", "value": value });
    let answer = endpoint.run_sync("", input).await.ok();
    assert_eq!(answer["output"]["echo"], value, "{answer}");
    for operation in ["run", "runsync"] {
        for wrong in [json!({}), json!({ "webhook": "http://example.com/" })] {
            let sentence = endpoint.post(operation, &wrong).await.refused(400);
            assert!(sentence.contains("input"), "{sentence}");
        }
        for wrong in [json!(null), json!(7), json!("text"), json!([]), json!(true)] {
            let sentence = endpoint.post(operation, &json!({ "input": wrong })).await.refused(400);
            assert!(sentence.contains("input"), "{wrong}: {sentence}");
        }
    }
}

/// `webhook` is a URL and optional. (Its calls: `events`.)
#[tokio::test]
async fn webhook() {
    let endpoint = shared("submission-webhook", paused()).await;
    let submit = async |webhook: Value| {
        endpoint.post("run", &json!({ "input": echo(), "webhook": webhook })).await
    };
    submit(json!("http://hooks.invalid/done")).await.ok();
    submit(json!("https://example.com/hook?a=1")).await.ok();
    submit(json!(null)).await.ok();
    for wrong in [
        json!(7),
        json!("not a url"),
        json!("/path"),
        json!("ftp://example.com/"),
        json!("http://127.0.0.1:9/"),
    ] {
        let sentence = submit(wrong.clone()).await.refused(400);
        assert!(sentence.contains("webhook"), "{wrong}: {sentence}");
    }
}

/// `policy` is an object and optional. (Its fields: `policy`.)
#[tokio::test]
async fn policy() {
    let endpoint = shared("submission-policy", paused()).await;
    let nulls = json!({ "executionTimeout": null, "ttl": null, "lowPriority": null });
    for right in [json!({}), json!({ "ttl": 60_000 }), nulls, json!(null)] {
        let body = json!({ "input": echo(), "policy": right });
        id(&endpoint.post("run", &body).await.ok());
    }
    for wrong in [json!(7), json!("fast"), json!([]), json!([60_000, 60_000, false]), json!(false)]
    {
        let body = json!({ "input": echo(), "policy": wrong });
        let sentence = endpoint.post("run", &body).await.refused(400);
        assert!(sentence.contains("policy"), "{sentence}");
    }
}
