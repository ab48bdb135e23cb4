//! The dynamic rate limit: with running workers the limit is the higher of the documented limit and
//! workers x requests per worker. The host's clock stands still, so every call keeps counting.

use futures::future::join_all;
use gristmill_tests::{Answer, Clocked, TestHost, eventually, guests};
use serde_json::json;

use crate::support::{Endpoint, SECOND, UNKNOWN_JOB, clocked, forever};

/// Makes calls until one is refused; returns the number of admitted calls.
async fn admitted(call: &impl AsyncFn() -> Answer) -> usize {
    let mut count = 0;
    loop {
        let answers = join_all((0..20).map(|_| call())).await;
        let admitted = answers.iter().filter(|answer| answer.status != 429).count();
        count += admitted;
        if admitted < answers.len() {
            return count;
        }
        assert!(count < 5_000, "nobody is refused");
    }
}

async fn six_workers(name: &str) -> Endpoint<Clocked> {
    clocked(name, json!({ "workersMax": 6 })).await
}

/// Runs this many more endless jobs, and returns one of them.
async fn run_more(endpoint: &Endpoint<Clocked>, count: u64) -> String {
    let before = endpoint.health().await["workers"]["running"].as_u64().unwrap();
    let mut jobs = vec![];
    for _ in 0..count {
        jobs.push(endpoint.running(forever()).await);
    }
    endpoint.workers_running(before + count).await;
    jobs.remove(0)
}

/// With few workers the base limit applies; six of them raise /cancel from 100 to 120 at once, and
/// further calls are refused.
#[tokio::test]
async fn higher_of_base_and_workers() {
    let endpoint = six_workers("dynamic-rule").await;
    let cancel = async || endpoint.cancel(UNKNOWN_JOB).await;
    let running = run_more(&endpoint, 1).await;
    assert_eq!(admitted(&cancel).await, 100);
    run_more(&endpoint, 5).await;
    assert_eq!(admitted(&cancel).await, 20);
    let refused = endpoint.cancel(&running).await;
    assert_eq!(refused.header("ratelimit-policy"), Some("\"cancel\";q=120;w=10"));
    refused.refused(429);
}

/// Running workers are those that `health` counts as running.
#[tokio::test]
async fn idle_workers_do_not_count() {
    let settings = json!({ "workersMax": 6, "workersMin": 6 });
    let endpoint = clocked("dynamic-idle", settings).await;
    eventually("six idle workers", async || {
        let workers = &endpoint.health().await["workers"];
        (workers["idle"] == 6 && workers["running"] == 0).then_some(())
    })
    .await;
    assert_eq!(admitted(&async || endpoint.cancel(UNKNOWN_JOB).await).await, 100);
}

/// requests_per_worker: run 200, runsync, openai, status and stream 400, cancel and retry 20, purge
/// and requests none.
#[tokio::test]
async fn requests_per_worker() {
    let endpoint = six_workers("dynamic-numbers").await;
    run_more(&endpoint, 6).await;
    // The six jobs, and the calls that observe them, do not count any more.
    endpoint.host.advance(11 * SECOND);
    raises(1_200, async || endpoint.post_empty("run").await).await;
    raises(2_400, async || endpoint.post_empty("runsync").await).await;
    let chat = endpoint.path("openai/v1/chat/completions");
    raises(2_400, async || endpoint.client.post_text(&chat, "no JSON").await).await;
    raises(2_400, async || endpoint.status(UNKNOWN_JOB).await).await;
    raises(2_400, async || endpoint.stream(UNKNOWN_JOB).await).await;
    raises(120, async || endpoint.cancel(UNKNOWN_JOB).await).await;
    raises(120, async || endpoint.retry(UNKNOWN_JOB).await).await;
    raises(2, async || endpoint.purge().await).await;
    // At most two of these calls are admitted at one time.
    let list = async || endpoint.get("requests").await;
    assert_eq!(admitted_one_by_one(&list).await, 10);
    names(10, &list().await);
}

/// Asserts that exactly this many calls are admitted, and that the refusal then names the number.
async fn raises(limit: usize, call: impl AsyncFn() -> Answer) {
    assert_eq!(admitted(&call).await, limit);
    names(limit, &call().await);
}

/// Asserts that a refusal names this number of calls.
fn names(limit: usize, refused: &Answer) {
    assert_eq!(refused.status, 429, "{limit}: {refused:?}");
    let policy = refused.header("ratelimit-policy").unwrap_or_default();
    assert!(policy.ends_with(&format!(";q={limit};w=10")), "{limit}: {refused:?}");
}

/// Each of these numbers is a setting. A table keeps the defaults of missing numbers.
#[tokio::test]
async fn numbers_are_settings() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("gristmill.toml");
    let limit = "calls-per-10s = 1\nconcurrent = 5\ncalls-per-worker = 3\n";
    let tables = format!("[rate-limits.cancel]\n{limit}[rate-limits.run]\n{limit}");
    let partly = "[rate-limits.purge-queue]\ncalls-per-10s = 3\n\
        [rate-limits.requests]\ncalls-per-10s = 1\nconcurrent = \"unlimited\"\n\
        [rate-limits.retry]\ncalls-per-worker = 0\n";
    std::fs::write(&file, tables + partly).unwrap();
    let host = TestHost::start_with_clock(&["--config", file.to_str().unwrap()]);
    let id = host.deploy(&guests::playground(), "settings", json!({})).await;
    let endpoint = Endpoint { client: host.client(), id, host: Box::new(host) };
    endpoint.running(forever()).await;
    endpoint.workers_running(1).await;
    assert_eq!(admitted_one_by_one(async || endpoint.cancel(UNKNOWN_JOB).await).await, 3);
    // The job itself was one of the three.
    assert_eq!(admitted_one_by_one(async || endpoint.post_empty("run").await).await, 2);
    assert_eq!(admitted_one_by_one(async || endpoint.purge().await).await, 3);
    assert_eq!(admitted_one_by_one(async || endpoint.get("requests").await).await, 1);
    assert_eq!(admitted_one_by_one(async || endpoint.retry(UNKNOWN_JOB).await).await, 100);
}

async fn admitted_one_by_one(call: impl AsyncFn() -> Answer) -> usize {
    let mut count = 0;
    while call().await.status != 429 {
        count += 1;
        assert!(count < 1_000, "nobody is refused");
    }
    count
}
