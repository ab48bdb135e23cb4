//! A host whose standard error is a pipe that no program reads.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use gristmill_tests::{Client, PATIENCE, command, guests};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Ends the process when the test panics.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn jobs_run_and_the_host_ends_while_no_program_reads_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let child = command()
        .args(["serve", "--listen", "127.0.0.1:0", "--json", "--drain-timeout", "1", "--data-dir"])
        .arg(&data)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut host = Guard(child);
    let mut line = String::new();
    let stdout = host.0.stdout.take().unwrap();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap();
    let url = ready["ready"]["url"].as_str().unwrap().trim_end_matches('/').to_owned();
    let key = fs::read_to_string(data.join("admin.key")).unwrap();
    let client = Client::new(&url, key.trim());

    let component = fs::read(guests::playground()).unwrap();
    let upload = client.request(reqwest::Method::PUT, "/v1/handlers/playground:latest");
    client.send(upload.header("content-type", "application/wasm").body(component)).await.ok();
    let template = json!({ "id": "t", "name": "t", "imageName": "playground:latest" });
    client.post("/v1/templates", &template).await.ok();
    for id in ["loud", "quiet"] {
        client.post("/v1/endpoints", &json!({ "id": id, "templateId": "t" })).await.ok();
    }
    // A pipe has room for 64 KiB; a job logs 256 KiB at most.
    for _ in 0..8 {
        client.submit("loud", json!({ "op": "stdout", "bytes": 2_000_000 })).await;
    }
    for _ in 0..8 {
        let document = client.run_sync("quiet", "", json!({ "op": "echo", "value": 1 })).await.ok();
        assert_eq!(document["status"], "COMPLETED", "{document}");
    }
    kill_process(Pid::from_child(&host.0), Signal::TERM).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while host.0.try_wait().unwrap().is_none() {
        assert!(std::time::Instant::now() < deadline, "the host did not end");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
