//! Clients that end their side of the connection after a request: those that wait for the answer,
//! and those that have left.

use std::time::Duration;

use gristmill_tests::{PATIENCE, TestHost, Wire, eventually, guests, shared_host};
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::time::sleep;

const OPENAI: &str = "openai/v1/chat/completions";

/// Sends a whole call.
async fn send(wire: &mut Wire, host: &TestHost, path: &str, body: &str) {
    let length = format!("content-length: {}\r\n", body.len());
    wire.send_head(host, "POST", path, &length).await;
    wire.writer.write_all(body.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_client_that_ends_its_side_after_its_call_is_answered() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "half-closed", json!({})).await;
    let body = json!({ "input": { "op": "sleep", "ms": 700, "value": 5 } }).to_string();
    let mut wire = Wire::connect(&host).await;
    // An end 100 ms after the call would mean that the client has left.
    wire.cork();
    send(&mut wire, &host, &format!("/v2/{endpoint}/runsync"), &body).await;
    wire.writer.shutdown().await.unwrap();
    let answer = wire.answer(PATIENCE).await.expect("an answer");
    assert_eq!(answer.status, 200);
    assert!(answer.body.contains("COMPLETED") && answer.body.contains("\"echo\":5"), "{answer:?}");
    assert_eq!(wire.answer(PATIENCE).await, None, "the connection ends after it");

    // Two calls at once; the host reads the second one long after the client's end.
    let body = json!({ "op": "sleep", "ms": 300 }).to_string();
    let path = format!("/v2/{endpoint}/{OPENAI}");
    let mut wire = Wire::connect(&host).await;
    wire.cork();
    for _ in 0..2 {
        send(&mut wire, &host, &path, &body).await;
    }
    wire.writer.shutdown().await.unwrap();
    for _ in 0..2 {
        let answer = wire.answer(PATIENCE).await.expect("an answer");
        assert_eq!((answer.status, answer.body.contains("slept")), (200, true), "{answer:?}");
    }
}

#[tokio::test]
async fn a_client_that_ends_its_side_later_has_left() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "half-gone", json!({})).await;
    let body = json!({ "op": "sleep_forever" }).to_string();
    let mut wire = Wire::connect(&host).await;
    send(&mut wire, &host, &format!("/v2/{endpoint}/{OPENAI}"), &body).await;
    let running = async || host.client.health(&endpoint).await["jobs"]["inProgress"].clone();
    eventually("the job to run", async || (running().await == 1).then_some(())).await;
    // The subject: an end within 100 ms of the call would not mean that the client has left.
    sleep(Duration::from_millis(500)).await;
    wire.writer.shutdown().await.unwrap();
    eventually("its cancel", async || (running().await == 0).then_some(())).await;
    let jobs = &host.client.health(&endpoint).await["jobs"];
    assert_eq!((&jobs["completed"], &jobs["failed"]), (&json!(0), &json!(0)), "{jobs}");
    assert_eq!(wire.answer(PATIENCE).await, None);
}

#[tokio::test]
async fn an_end_in_the_middle_of_a_body_ends_the_call_at_once() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "half-sent", json!({})).await;
    for sent in [0, 100, 100_000] {
        let mut wire = Wire::connect(&host).await;
        let path = format!("/v2/{endpoint}/run");
        wire.send_head(&host, "POST", &path, "content-length: 200000\r\n").await;
        wire.writer.write_all(&vec![b' '; sent]).await.unwrap();
        wire.writer.shutdown().await.unwrap();
        // Long before the 30 s after which a body that stops is given up.
        let answer = wire.answer(Duration::from_secs(15)).await;
        assert!(answer.is_none_or(|answer| answer.status == 400), "{sent} bytes");
    }
}
