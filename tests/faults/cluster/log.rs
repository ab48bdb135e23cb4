//! The log of a host with a database.

use gristmill_tests::{TestHost, guests};
use serde_json::json;

use crate::hosts::arguments;
use crate::postgres::Database;

/// The driver of the database logs each statement with its parameters.
#[tokio::test]
async fn inputs_and_outputs_are_not_in_the_log() {
    let Some(database) = Database::new() else { return };
    let mut arguments = arguments(&database);
    arguments.extend(["--log", "debug"].map(str::to_owned));
    let host = TestHost::start_with(&arguments);
    host.deploy(&guests::playground(), "play", json!({})).await;
    host.client().finish("play", json!({ "op": "echo", "value": "secret flour" })).await;
    let log = host.log();
    assert!(log.contains("DEBUG"), "{log:.999}");
    let bytes = format!("{:?}", b"secret flour");
    let bytes = bytes.trim_matches(['[', ']']);
    assert!(!log.contains(bytes) && !log.contains("secret flour"));
}
