//! One data directory, one host.

use std::process::Stdio;

use gristmill_tests::{TestHost, command, guests};
use serde_json::json;

#[tokio::test]
async fn a_second_host_on_the_same_data_is_refused_and_the_first_goes_on() {
    let mut host = TestHost::start();
    let endpoint = host.deploy(&guests::playground(), "locked", json!({})).await;
    let data = host.data_dir();
    let second = tokio::task::spawn_blocking(move || {
        command()
            .args(["serve", "--listen", "127.0.0.1:0", "--json", "--data-dir"])
            .arg(data)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    });
    let second = tokio::time::timeout(gristmill_tests::PATIENCE, second).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    println!("the second host said: {said}");
    assert!(!second.status.success(), "{said}");
    assert!(second.stdout.is_empty(), "no ready line: {}", String::from_utf8_lossy(&second.stdout));
    let lower = said.to_lowercase();
    assert!(
        lower.contains("in use") || lower.contains("another") || lower.contains("lock"),
        "{said}"
    );
    assert!(!lower.contains("panicked"), "{said}");

    let client = host.client();
    assert_eq!(client.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
    // The lock goes with its process, not with a file.
    host.kill9();
    host.start_again();
    assert_eq!(host.client().health(&endpoint).await["jobs"]["completed"], 1);
}
