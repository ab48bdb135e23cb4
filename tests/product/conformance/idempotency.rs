//! `Idempotency-Key`: a repeated submission refers to the first one's job.

use futures::future::join_all;
use gristmill_tests::{Answer, Client, TestHost, guests, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

async fn send(client: &Client, endpoint: &str, operation: &str, key: &str, body: &Value) -> Answer {
    let request = client.request(Method::POST, &client.path(endpoint, operation));
    client.send(request.header("idempotency-key", key).json(body)).await
}

#[tokio::test]
async fn a_submission_that_is_sent_again_runs_once() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "idempotent", json!({})).await;
    let client = &host.client;
    let body = json!({ "input": { "n": 1 } });
    let first = send(client, &endpoint, "run", "k-1", &body).await;
    assert_eq!(first.header("idempotent-replayed"), None);
    let id = first.ok()["id"].as_str().unwrap().to_owned();
    client.until(&endpoint, &id, "COMPLETED").await;
    let again = send(client, &endpoint, "run", "k-1", &body).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(
        again.ok(),
        json!({ "id": id, "status": "IN_QUEUE" }),
        "the answer is the first one"
    );
    assert_eq!(client.health(&endpoint).await["jobs"]["completed"], 1);

    let first = send(client, &endpoint, "runsync", "k-2", &body).await.ok();
    let again = send(client, &endpoint, "runsync", "k-2", &body).await;
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(again.ok(), first);
    assert_eq!(client.health(&endpoint).await["jobs"]["completed"], 2);
}

#[tokio::test]
async fn a_key_with_something_else_is_refused() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "idempotent-other", json!({})).await;
    let other = host.deploy(&guests::echo(), "idempotent-apart", json!({})).await;
    let client = &host.client;
    let body = json!({ "input": { "n": 1 } });
    send(client, &endpoint, "run", "k", &body).await.ok();
    let changed = json!({ "input": { "n": 2 } });
    for (operation, body) in [("run", &changed), ("runsync", &body)] {
        let refused = send(client, &endpoint, operation, "k", body).await;
        assert_eq!(refused.json()["code"], "idempotency_mismatch");
        assert!(refused.refused(422).contains("another operation or body"));
    }
    // Another endpoint has separate keys.
    send(client, &other, "run", "k", &changed).await.ok();
    for key in ["", "a\tb", &"k".repeat(256)] {
        let sentence = send(client, &endpoint, "run", key, &body).await.refused(400);
        assert!(sentence.contains("1 to 255 printable ASCII characters"), "{sentence}");
    }
}

#[tokio::test]
async fn of_many_at_one_time_one_becomes_a_job() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "idempotent-race", json!({})).await;
    let body = json!({ "input": {} });
    let calls = (0..50).map(|_| send(&host.client, &endpoint, "runsync", "race", &body));
    let answers = join_all(calls).await;
    let ids: Vec<_> = answers.iter().map(|answer| answer.ok()["id"].clone()).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    assert_eq!(host.client.health(&endpoint).await["jobs"]["completed"], 1);
}

#[tokio::test]
async fn a_key_outlives_the_host_and_the_job() {
    let mut host = TestHost::start();
    let endpoint = host.deploy(&guests::echo(), "e", json!({ "workersMax": 0 })).await;
    let body = json!({ "input": {} });
    let first = send(&host.client(), &endpoint, "run", "k", &body).await.ok();
    host.client().purge(&endpoint).await.ok();
    host.kill9();
    host.start_again();
    let again = send(&host.client(), &endpoint, "run", "k", &body).await.ok();
    assert_eq!(again["id"], first["id"]);
    assert_eq!(host.client().health(&endpoint).await["jobs"]["inQueue"], 0);
    // A duplicate runsync answers with the job, which has been deleted here.
    send(&host.client(), &endpoint, "runsync?wait=1000", "s", &body).await.ok();
    host.client().purge(&endpoint).await.ok();
    send(&host.client(), &endpoint, "runsync", "s", &body).await.refused(404);
}
