//! Secrets reach the handler that they are for, and nobody else.

use gristmill_tests::{Receiver, TestHost, guests};
use serde_json::json;
use std::fs;

#[tokio::test(flavor = "multi_thread")]
async fn s3_settings_reach_the_handler_and_nobody_else() {
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
        assert!(!text.contains("only-for-the-handler"), "{what} tells the secret: {text}");
    }
    for entry in fs::read_dir(host.data_dir()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        let tells = bytes.windows(20).any(|window| window == b"only-for-the-handler");
        assert!(!tells, "{} tells the secret", path.display());
    }
    // The one that waits still has it after the restart.
    host.start_again();
    let client = host.client();
    client.patch("/v1/endpoints/paused", &json!({ "workersMax": 1 })).await.ok();
    client.until(&paused, waiting.ok()["id"].as_str().unwrap(), "COMPLETED").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_an_endpoint_are_not_on_disk_in_clear() {
    let mut host = TestHost::start();
    host.deploy(&guests::echo(), "e", json!({ "env": { "TOKEN": "token-of-the-endpoint" } })).await;
    host.kill9();
    for name in ["store.db", "store.db-wal"] {
        let bytes = fs::read(host.data_dir().join(name)).unwrap();
        assert!(!bytes.windows(21).any(|window| window == b"token-of-the-endpoint"), "{name}");
    }
    host.start_again();
    let document = host.client().get("/v1/endpoints/e").await.ok();
    assert_eq!(document["env"]["TOKEN"], "token-of-the-endpoint");
}
