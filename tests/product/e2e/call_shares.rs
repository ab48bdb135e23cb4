//! Handlers that call others while all sandboxes are in use: each chain of calls ends, and other
//! endpoints and owners are served meanwhile.

use gristmill_tests::{Client, TestHost, guests};
use serde_json::{Value, json};

/// The input of a playground job that calls `endpoint`, which calls itself until the chain has this
/// depth. The last job takes 20 ms.
fn chain(endpoint: &str, depth: usize) -> Value {
    let last = json!({ "op": "sleep", "ms": 20 });
    (0..depth).fold(last, |next, _| json!({ "op": "call", "endpoint": endpoint, "value": next }))
}

async fn submit_many(client: &Client, endpoint: &str, input: &Value, count: usize) -> Vec<String> {
    let mut jobs = Vec::with_capacity(count);
    for _ in 0..count {
        jobs.push(client.submit(endpoint, input.clone()).await);
    }
    jobs
}

async fn all_completed(client: &Client, endpoint: &str, jobs: Vec<String>) {
    for job in jobs {
        let ended = client.finished(endpoint, &job).await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
    }
}

fn settings(calls: &[&str]) -> Value {
    json!({ "callEndpoints": calls, "workersMax": 100, "memoryMib": 16 })
}

#[tokio::test]
async fn callers_of_twice_as_many_jobs_as_sandboxes_end_beside_an_innocent_endpoint() {
    let host = TestHost::start_with(&["--max-running-jobs", "16"]);
    let client = host.client();
    for (id, calls) in [("calls", &["called"][..]), ("called", &["calls"]), ("innocent", &[])] {
        host.deploy(&guests::playground(), id, settings(calls)).await;
    }
    let last = json!({ "op": "sleep", "ms": 50 });
    let input = json!({ "op": "call", "endpoint": "called", "value": last });
    let jobs = submit_many(&client, "calls", &input, 32).await;
    for _ in 0..5 {
        let done = client.finish("innocent", json!({ "op": "echo" })).await;
        assert_eq!(done["status"], "COMPLETED", "{done}");
    }
    let counts = client.health("calls").await["jobs"].clone();
    assert!(counts["completed"].as_u64() < Some(32), "the innocent endpoint was served meanwhile");
    all_completed(&client, "calls", jobs).await;
}

#[tokio::test]
async fn jobs_that_call_their_own_endpoint_end_on_a_host_of_eight_sandboxes() {
    let host = TestHost::start_with(&["--max-running-jobs", "8"]);
    let client = host.client();
    let own = host.deploy(&guests::playground(), "own", settings(&["own"])).await;
    for depth in [1, 2] {
        let jobs = submit_many(&client, &own, &chain(&own, depth), 24).await;
        all_completed(&client, &own, jobs).await;
    }
}

#[tokio::test]
async fn chains_of_the_greatest_depth_end_while_all_sandboxes_are_in_use() {
    let host = TestHost::start_with(&["--max-running-jobs", "64"]);
    let client = host.client();
    let deep = host.deploy(&guests::playground(), "deep", settings(&["deep"])).await;
    let jobs = submit_many(&client, &deep, &chain(&deep, 8), 100).await;
    all_completed(&client, &deep, jobs).await;
}

#[tokio::test]
async fn callers_of_one_owner_leave_sandboxes_to_another() {
    let host = TestHost::start_with(&["--max-running-jobs", "16"]);
    let (first, second) = (host.client(), host.client_of("second").await);
    first.deploy(&guests::playground(), "own", settings(&["own"])).await;
    second.deploy(&guests::playground(), "other", settings(&["other"])).await;
    let jobs = submit_many(&first, "own", &chain("own", 1), 32).await;
    let of_other = submit_many(&second, "other", &chain("other", 1), 8).await;
    let done = second.finish("other", json!({ "op": "echo" })).await;
    assert_eq!(done["status"], "COMPLETED", "{done}");
    all_completed(&second, "other", of_other).await;
    all_completed(&first, "own", jobs).await;
}

/// A job may keep its sandbox for a week.
#[tokio::test]
async fn jobs_that_run_for_a_week_leave_a_sandbox_to_the_other_endpoints_of_their_owner() {
    let host = TestHost::start_with(&["--max-running-jobs", "4"]);
    let client = host.client();
    for id in ["parks", "works"] {
        host.deploy(&guests::playground(), id, settings(&[])).await;
    }
    let jobs = submit_many(&client, "parks", &json!({ "op": "sleep_forever" }), 5).await;
    client.workers_running("parks", 3).await;
    let done = client.finish("works", json!({ "op": "echo" })).await;
    assert_eq!(done["status"], "COMPLETED", "{done}");
    let waits = client.status("parks", &jobs[4]).await.ok();
    let reason = waits["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("the endpoint has its share"), "{waits}");
    // Alone again, it may use the whole host.
    assert_eq!(client.delete("/v1/endpoints/works").await.status, 204);
    client.workers_running("parks", 4).await;
}
