//! Several keys of one owner: no key uses up the limits of all.

use gristmill_tests::{Client, TestHost, eventually, guests};
use serde_json::json;
use tokio::task::JoinHandle;

const LIMITS: &str = "[rate-limits.status]\nconcurrent = 8\n\
    [rate-limits.runsync]\nconcurrent = 4\n\
    [rate-limits.retry]\ncalls-per-10s = 3\n";

/// Makes this many concurrent calls. Each waits for five minutes.
fn wait_at_once<F>(count: usize, call: impl Fn() -> F) -> Vec<JoinHandle<u16>>
where
    F: Future<Output = u16> + Send + 'static,
{
    (0..count).map(|_| tokio::spawn(call())).collect()
}

async fn ended(calls: &[JoinHandle<u16>], count: usize) {
    eventually("some calls to be refused", async || {
        (calls.iter().filter(|call| call.is_finished()).count() >= count).then_some(())
    })
    .await;
}

async fn with_waiting_jobs(host: &TestHost, endpoint: &str, count: u64) {
    eventually("jobs to wait", async || {
        (host.client().health(endpoint).await["jobs"]["inQueue"] == count).then_some(())
    })
    .await;
}

async fn places_are_shared(host: &TestHost, endpoint: &str, greedy: &Client, other: &Client) {
    let waits = |caller: Client| {
        let endpoint = endpoint.to_owned();
        async move {
            let input = json!({ "op": "echo" });
            caller.run_sync(&endpoint, "?wait=300000", input).await.status
        }
    };
    let first = wait_at_once(4, || waits(greedy.clone()));
    with_waiting_jobs(host, endpoint, 4).await;
    let beyond = wait_at_once(2, || waits(other.clone()));
    ended(&beyond, 1).await;
    with_waiting_jobs(host, endpoint, 5).await;
    host.client().purge(endpoint).await.ok();
    let answers = statuses(beyond).await;
    assert_eq!(answers, [404, 429], "only the first call of a key is admitted beyond the limit");
    ended(&first, 4).await;
    // Now two concurrent calls are reserved for the refused key.
    let second = wait_at_once(4, || waits(greedy.clone()));
    ended(&second, 2).await;
    with_waiting_jobs(host, endpoint, 2).await;
    let short = other.run_sync(endpoint, "?wait=1000", json!({ "op": "echo" })).await;
    assert_eq!(short.ok()["status"], "IN_QUEUE");
    host.client().purge(endpoint).await.ok();
    assert_eq!(statuses(second).await, [404, 404, 429, 429]);
}

/// Waits for the end of these calls, and returns their statuses in order.
async fn statuses(calls: Vec<JoinHandle<u16>>) -> Vec<u16> {
    let mut statuses = vec![];
    for call in calls {
        statuses.push(call.await.unwrap());
    }
    statuses.sort_unstable();
    statuses
}

#[tokio::test]
async fn one_key_does_not_use_up_the_permits_of_the_others() {
    let host = TestHost::start_configured(LIMITS);
    let endpoint = host.deploy(&guests::playground(), "fair", json!({ "workersMax": 0 })).await;
    let client = host.client();
    let (greedy, other) =
        (client.with_scopes(&["submit"]).await, client.with_scopes(&["submit"]).await);
    places_are_shared(&host, &endpoint, &greedy, &other).await;

    // Waiting calls may use three quarters of the cap, so that `status` still works.
    let job = host.client().submit(&endpoint, json!({ "op": "echo" })).await;
    let waits = wait_at_once(8, || {
        let greedy = greedy.clone();
        let path = greedy.path(&endpoint, &format!("status-sync/{job}?wait=300000"));
        async move { greedy.get(&path).await.status }
    });
    ended(&waits, 2).await;
    for client in [&other, &greedy, &other] {
        client.status(&endpoint, &job).await.ok();
    }
    assert_eq!(waits.iter().filter(|wait| wait.is_finished()).count(), 2);

    // A retry has a limit, like the other operations.
    for _ in 0..3 {
        other.retry(&endpoint, &job).await.refused(400);
    }
    other.retry(&endpoint, &job).await.refused(429);
}
