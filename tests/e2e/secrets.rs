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
