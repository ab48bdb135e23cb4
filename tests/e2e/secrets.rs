//! What an operator has entrusted to the host is not on disk in clear.

use std::fs;

use gristmill_tests::{TestHost, guests};
use serde_json::json;

#[tokio::test]
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

/// A submission's credentials are on disk from the moment it is acknowledged, in the journal first.
#[tokio::test]
async fn credentials_of_a_submission_are_not_on_disk_in_clear() {
    let mut host = TestHost::start();
    host.deploy(&guests::playground(), "e", json!({ "workersMax": 0 })).await;
    let s3 = json!({
        "accessId": "id", "accessSecret": "secret-of-the-submission", "bucketName": "b",
        "endpointUrl": "https://s3.example",
    });
    let body = json!({ "input": { "marker": "the-input-itself" }, "s3Config": s3 });
    host.client().post("/v2/e/run", &body).await.ok();
    host.kill9();
    let journal = fs::read(host.data_dir().join("journal/000001.seg")).unwrap();
    let holds = |text: &str| journal.windows(text.len()).any(|part| part == text.as_bytes());
    assert!(holds("the-input-itself") && !holds("secret-of-the-submission"));
}
