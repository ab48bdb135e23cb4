//! Handlers that compute on every core delay others only briefly.

use std::time::{Duration, Instant};

use gristmill_tests::{TestHost, guests, percentile};
use serde_json::json;

#[tokio::test]
async fn health_and_other_jobs_keep_answering_while_jobs_spin() {
    let host = TestHost::start();
    let client = host.client();
    let busy = host.deploy(&guests::playground(), "busy", json!({ "workersMax": 4 })).await;
    let calm = host.deploy(&guests::playground(), "calm", json!({ "workersMin": 1 })).await;
    client.finish(&calm, json!({ "op": "echo" })).await;
    let mut spinning = vec![];
    for _ in 0..4 {
        spinning.push(client.submit(&busy, json!({ "op": "spin" })).await);
    }
    for job in &spinning {
        client.until(&busy, job, "IN_PROGRESS").await;
    }
    let (mut health, mut echo) = (vec![], vec![]);
    for i in 0..100 {
        let begun = Instant::now();
        client.health(&busy).await;
        health.push(begun.elapsed());
        let begun = Instant::now();
        let document = client.run_sync(&calm, "", json!({ "op": "echo", "value": i })).await.ok();
        echo.push(begun.elapsed());
        assert_eq!(document["output"], json!({ "echo": i }), "{document}");
    }
    for (what, samples) in [("health", &mut health), ("runsync", &mut echo)] {
        let (middle, p99) = (percentile(samples, 50), percentile(samples, 99));
        println!("{what} beside 4 spinning jobs: median {middle:?}, p99 {p99:?}");
        // This only excludes a hang, since the test's machine may be busy.
        assert!(p99 < Duration::from_secs(10), "{what}: {p99:?}");
    }
    for job in &spinning {
        client.until(&busy, job, "IN_PROGRESS").await;
        client.cancel(&busy, job).await.ok();
    }
}
