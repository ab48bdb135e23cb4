//! `ttl` in real time: the job's whole lifetime, whatever it does at its end.

use std::time::Instant;

use gristmill_tests::{eventually, guests, shared_host};
use serde_json::json;

#[tokio::test]
async fn a_job_is_stopped_and_deleted_at_its_ttl() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "ttl", settings).await;
    host.client.finish(&endpoint, json!({ "op": "echo" })).await;
    let running = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    host.client.until(&endpoint, &running, "IN_PROGRESS").await;
    let queued = host.client.submit(&endpoint, json!({ "op": "echo" })).await;
    let next = host.client.submit(&endpoint, json!({ "op": "echo" })).await;

    // The answer still has the present status; the call shortens the lifetime of the job.
    let document = host.client.status(&endpoint, &format!("{queued}?ttl=400")).await.ok();
    assert_eq!(document["status"], "IN_QUEUE");
    let document = host.client.status(&endpoint, &format!("{running}?ttl=900")).await.ok();
    assert_eq!(document["status"], "IN_PROGRESS");
    let begun = Instant::now();
    let path = host.client.path(&endpoint, &format!("status-sync/{running}"));
    host.client.get(&path).await.refused(404);
    println!("a call that waited heard of a ttl of 900 ms after {:?}", begun.elapsed());
    for job in [&queued, &running] {
        eventually("the job to be gone", async || {
            (host.client.status(&endpoint, job).await.status == 404).then_some(())
        })
        .await;
        host.client.status(&endpoint, job).await.refused(404);
        host.client.stream(&endpoint, job).await.refused(404);
        host.client.cancel(&endpoint, job).await.refused(404);
        host.client.retry(&endpoint, job).await.refused(404);
    }
    // The only worker is free again: the instance was stopped with its job.
    host.client.until(&endpoint, &next, "COMPLETED").await;
    let health = host.client.health(&endpoint).await;
    assert_eq!((&health["jobs"]["inQueue"], &health["jobs"]["inProgress"]), (&json!(0), &json!(0)));
}
