//! `s3Config`: for the handler, and hidden everywhere else.

use gristmill_tests::{Receiver, TestHost, files_without_keys, guests};
use serde_json::json;

use crate::support::shared;

/// All four fields reach the handler unchanged, and appear nowhere else: not in documents, lists,
/// webhooks, metrics or the log, and not in the files of the data directory.
#[tokio::test]
async fn reaches_the_handler_only() {
    let receiver = Receiver::start(&["200 OK"]).await;
    let mut host = TestHost::start_with(&["--webhook-allow", &receiver.host(), "--log", "trace"]);
    let endpoint = host.deploy(&guests::playground(), "s3", json!({})).await;
    let paused = host.deploy(&guests::playground(), "paused", json!({ "workersMax": 0 })).await;
    let secret = "wJalrXUtnFEMI/K7MDENG/only-for-the-handler";
    let body = |op: &str| {
        json!({
            "input": { "op": op }, "webhook": receiver.url(""),
            "s3Config": { "accessId": "a", "accessSecret": secret, "bucketName": "b",
                          "endpointUrl": "https://s3.example.com" },
        })
    };
    let client = host.client();
    let mut seen = Vec::new();
    let done = client.post(&client.path(&endpoint, "runsync"), &body("s3")).await;
    let document = done.ok();
    // printf 'a\nwJalrXUtnFEMI/K7MDENG/only-for-the-handler\nb\nhttps://s3.example.com' | sha256sum
    assert_eq!(
        document["output"]["s3"],
        "eb70add7eec327d7df06d86511c0fd40c430aff425188bee47b67aa927a70053",
        "{document}"
    );
    let waiting = client.post(&client.path(&paused, "run"), &body("echo")).await;
    let calls = [
        client.status(&endpoint, document["id"].as_str().unwrap()).await,
        client.stream(&endpoint, document["id"].as_str().unwrap()).await,
        client.get(&client.path(&endpoint, "requests")).await,
        client.get(&client.path(&paused, "requests")).await,
        client.status(&paused, waiting.ok()["id"].as_str().unwrap()).await,
        client.get("/v1/endpoints/s3/deliveries").await,
        client.get("/metrics").await,
    ];
    seen.push(("runsync", done.text));
    seen.extend(calls.into_iter().map(|answer| ("a call", answer.text)));
    let delivered = receiver.until(1).await.remove(0);
    assert_eq!(delivered.json()["input"], json!({ "op": "s3" }));
    seen.push(("the webhook", format!("{delivered:?} {}", delivered.json())));
    host.kill9();
    seen.push(("the log", host.log()));
    for (what, text) in &seen {
        assert!(!text.contains("only-for-the-handler"), "{what} reveals the secret: {text}");
    }
    for (path, bytes) in files_without_keys(&host.data_dir()) {
        let tells = bytes.windows(20).any(|window| window == b"only-for-the-handler");
        assert!(!tells, "{} tells the secret", path.display());
    }
    // The waiting job still has it after the restart.
    host.start_again();
    let client = host.client();
    client.patch("/v1/endpoints/paused", &json!({ "workersMax": 1 })).await.ok();
    client.until(&paused, waiting.ok()["id"].as_str().unwrap(), "COMPLETED").await;
}

/// Each field is a string; a missing field is empty, and null counts as missing.
#[tokio::test]
async fn fields_are_optional_strings() {
    let endpoint = shared("s3-fields", json!({})).await;
    let run = async |s3: serde_json::Value| {
        let body = json!({ "input": { "op": "s3" }, "s3Config": s3 });
        endpoint.post("runsync", &body).await
    };
    for field in ["accessId", "accessSecret", "bucketName", "endpointUrl"] {
        let sentence = run(json!({ field: 7 })).await.refused(400);
        assert!(sentence.contains(&format!("`s3Config.{field}` must be a string")), "{sentence}");
    }
    run(json!("text")).await.refused(400);
    // printf '\n\nb\n' | sha256sum
    let digest = "721c5a0bd8099d523f4a08ddcd86b9bcdeed5a1185f44d822f33a2f386386d72";
    for s3 in [json!({ "bucketName": "b" }), json!({ "bucketName": "b", "accessId": null })] {
        assert_eq!(run(s3).await.ok()["output"]["s3"], digest);
    }
    assert_eq!(run(json!(null)).await.ok()["output"]["s3"], json!(null));
}
