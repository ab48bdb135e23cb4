//! Rate limits: at most N calls of an operation in ten seconds, for each endpoint and key owner.

use futures::future::join_all;
use gristmill_tests::{Client, TestHost, guests, shared_host};
use serde_json::{Value, json};

/// The documented limit of `/run`, in calls per ten seconds.
const RUN_CALLS: usize = 1_000;

/// Sends `count` submissions, 50 at a time, and returns the statuses of the answers.
async fn submit_many(client: &Client, endpoint: &str, count: usize) -> Vec<u16> {
    let mut statuses = vec![];
    while statuses.len() < count {
        let batch = 50.min(count - statuses.len());
        let calls = (0..batch).map(|_| client.run(endpoint, json!({ "op": "echo" })));
        statuses.extend(join_all(calls).await.into_iter().map(|answer| answer.status));
    }
    statuses
}

fn accepted(statuses: &[u16]) -> usize {
    assert!(statuses.iter().all(|status| matches!(status, 200 | 429)), "{statuses:?}");
    statuses.iter().filter(|status| **status == 200).count()
}

#[tokio::test]
async fn exactly_the_allowed_number_of_calls_is_accepted() {
    let host = shared_host();
    let paused = json!({ "workersMin": 0, "workersMax": 0 });
    let endpoint = host.deploy(&guests::playground(), "limited", paused.clone()).await;
    let started = std::time::Instant::now();
    let statuses = submit_many(&host.client, &endpoint, RUN_CALLS + 200).await;
    // A slower machine may see calls leave the window; then there is nothing exact to say.
    if started.elapsed().as_secs() < 10 {
        assert_eq!(accepted(&statuses), RUN_CALLS);
    }

    let refused = host.client.run(&endpoint, json!({ "op": "echo" })).await;
    assert_eq!(refused.json()["code"], "rate_limited");
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=11).contains(&seconds), "{seconds}");
    assert_eq!(refused.header("ratelimit-policy"), Some("\"run\";q=1000;w=10"));
    let left = format!("\"run\";r=0;t={seconds}");
    assert_eq!(refused.header("ratelimit"), Some(left.as_str()));
    let sentence = refused.refused(429);
    assert!(sentence.contains("at most 1000 in 10 seconds"), "{sentence}");

    // Another operation and another endpoint are counted apart.
    host.client.health(&endpoint).await;
    let other = host.deploy(&guests::playground(), "unlimited", paused).await;
    host.client.run(&other, json!({ "op": "echo" })).await.ok();
}

#[tokio::test]
async fn running_workers_raise_the_limit_at_once() {
    let host = shared_host();
    let settings = json!({ "workersMax": 6 });
    let endpoint = host.deploy(&guests::playground(), "raised", settings).await;
    let statuses = submit_many(&host.client, &endpoint, RUN_CALLS).await;
    assert_eq!(accepted(&statuses), RUN_CALLS);
    // Six workers, 200 calls each: 1,200 instead of 1,000.
    let hold = || host.client.run_sync(&endpoint, "?wait=1000", json!({ "op": "sleep_forever" }));
    let held: Vec<Value> =
        join_all((0..6).map(|_| hold())).await.iter().map(gristmill_tests::Answer::ok).collect();
    let health: Value = host.client.health(&endpoint).await;
    assert_eq!(health["workers"]["running"], 6, "{health}");
    host.client.run(&endpoint, json!({ "op": "echo" })).await.ok();
    for job in held {
        host.client.cancel(&endpoint, job["id"].as_str().unwrap()).await.ok();
    }
}

#[tokio::test]
async fn the_third_purge_in_ten_seconds_is_refused() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "purge-limit", json!({})).await;
    host.client.purge(&endpoint).await.ok();
    host.client.purge(&endpoint).await.ok();
    let refused = host.client.purge(&endpoint).await;
    assert_eq!(refused.header("ratelimit-policy"), Some("\"purge-queue\";q=2;w=10"));
    refused.refused(429);
}

#[tokio::test]
async fn callers_without_a_key_are_limited_by_their_address() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("config.toml");
    let limit = "[rate-limits.unauthenticated]\ncalls-per-10s = 20\n";
    std::fs::write(&config, limit).unwrap();
    let host = TestHost::start_with(&["--config", config.to_str().unwrap()]);
    let client = host.client();
    let strangers = [client.with_authorization(None), client.with_key("gm_0000_wrong")];
    let mut statuses = vec![];
    for n in 0..30 {
        // Each of these asks for something without a key that opens it.
        let stranger = &strangers[n % 2];
        let path = ["/v1/templates", "/v2/x/health", "/nowhere"][n % 3];
        statuses.push(stranger.get(path).await.status);
    }
    let let_in = statuses.iter().filter(|status| matches!(status, 401 | 404)).count();
    assert!((20..30).contains(&let_in), "{statuses:?}");
    assert!(statuses[29] == 429, "{statuses:?}");
    let refused = strangers[0].get("/v1/templates").await;
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=10).contains(&wait), "{wait}");
    assert!(refused.refused(429).contains("without a valid API key"), "{refused:?}");
    // A valid key from the same address is not affected.
    client.get("/v1/templates").await.ok();
}
