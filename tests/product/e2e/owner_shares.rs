//! Two owners on one host: jobs that run for days leave sandboxes for the other owner.

use gristmill_tests::{Client, TestHost, eventually, guests};
use serde_json::{Value, json};

/// Submits a job that runs for seven days.
async fn park(client: &Client, endpoint: &str) -> String {
    let policy = json!({ "executionTimeout": 604_800_000 });
    client.submit_with(endpoint, json!({ "op": "sleep_forever" }), policy).await
}

/// Waits for so many running workers, and at least so many that wait for a sandbox. A worker whose
/// job was cancelled waits beside the one that was started for the next job.
async fn until_workers(client: &Client, endpoint: &str, running: u64, throttled_min: u64) {
    eventually(&format!("{running} running and {throttled_min} throttled workers"), async || {
        let workers = client.health(endpoint).await["workers"].clone();
        let throttled = workers["throttled"].as_u64();
        (workers["running"] == running && throttled >= Some(throttled_min)).then_some(())
    })
    .await;
}

async fn reason(client: &Client, endpoint: &str, job: &str) -> String {
    let status = client.status(endpoint, job).await.ok();
    assert_eq!(status["status"], "IN_QUEUE", "{status}");
    status["reason"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn jobs_that_run_for_a_week_leave_sandboxes_for_other_owners() {
    let host = TestHost::start_with(&["--max-running-jobs", "4"]);
    let first = host.client();
    first.deploy(&guests::playground(), "parks", json!({ "workersMax": 6, "memoryMib": 16 })).await;
    let mut parked = vec![];
    for _ in 0..4 {
        let job = park(&first, "parks").await;
        first.until("parks", &job, "IN_PROGRESS").await;
        parked.push(job);
    }
    let waits = park(&first, "parks").await;
    until_workers(&first, "parks", 4, 1).await;
    assert!(reason(&first, "parks", &waits).await.contains("no sandbox of the host is free"));

    // A second owner comes while the first one holds everything: the next free sandbox is the
    // second owner's.
    let second = host.client_of("second").await;
    second
        .deploy(&guests::playground(), "works", json!({ "workersMax": 1, "memoryMib": 16 }))
        .await;
    let job = second.submit("works", json!({ "op": "echo" })).await;
    until_workers(&second, "works", 0, 1).await;
    assert!(reason(&second, "works", &job).await.contains("no sandbox of the host is free"));
    first.cancel("parks", &parked.remove(0)).await.ok();
    second.until("works", &job, "COMPLETED").await;
    until_workers(&first, "parks", 3, 1).await;
    let sentence = reason(&first, "parks", &waits).await;
    assert!(sentence.contains("the endpoint's owner has its share"), "{sentence}");
    for _ in 0..3 {
        assert_eq!(second.finish("works", json!({ "op": "echo" })).await["status"], "COMPLETED");
    }

    // Alone again, the first owner may use the whole host: the other one has neither an endpoint
    // nor a key.
    assert_eq!(second.delete("/v1/endpoints/works").await.status, 204);
    let keys = first.get("/v1/keys").await.ok();
    let is_second = |key: &&Value| key["owner"] == "second";
    let key = keys.as_array().unwrap().iter().find(is_second).unwrap()["id"].clone();
    let path = format!("/v1/keys/{}", key.as_str().unwrap());
    assert_eq!(first.delete(&path).await.status, 204);
    first.until("parks", &waits, "IN_PROGRESS").await;
    until_workers(&first, "parks", 4, 0).await;
}
