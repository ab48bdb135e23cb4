//! `/purge-queue`: all that waits goes, all that runs stays.

use gristmill_tests::{eventually, guests, shared_host};
use serde_json::json;

#[tokio::test]
async fn purge_removes_what_waits_and_spares_what_runs() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "purge", settings).await;
    let done = host.client.finish(&endpoint, json!({ "op": "echo" })).await;
    let running = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    host.client.until(&endpoint, &running, "IN_PROGRESS").await;
    let mut waiting = vec![];
    for _ in 0..4 {
        waiting.push(host.client.submit(&endpoint, json!({ "op": "echo" })).await);
    }
    let parked = tokio::spawn({
        let (client, endpoint) = (host.client.clone(), endpoint.clone());
        async move { client.run_sync(&endpoint, "?wait=60000", json!({ "op": "echo" })).await }
    });
    eventually("five jobs to wait", async || {
        (host.client.health(&endpoint).await["jobs"]["inQueue"] == 5).then_some(())
    })
    .await;

    let answer = host.client.purge(&endpoint).await.ok();
    assert_eq!(answer, json!({ "removed": 5, "status": "completed" }));
    for job in &waiting {
        host.client.status(&endpoint, job).await.refused(404);
        host.client.stream(&endpoint, job).await.refused(404);
        host.client.cancel(&endpoint, job).await.refused(404);
    }
    let sentence = parked.await.unwrap().refused(404);
    assert!(sentence.contains("removed by purge-queue"), "{sentence}");
    let health = host.client.health(&endpoint).await;
    assert_eq!((&health["jobs"]["inQueue"], &health["jobs"]["inProgress"]), (&json!(0), &json!(1)));
    host.client.until(&endpoint, &running, "IN_PROGRESS").await;
    let document = host.client.status(&endpoint, done["id"].as_str().unwrap()).await.ok();
    assert_eq!(document["status"], "COMPLETED");

    let answer = host.client.purge(&endpoint).await.ok();
    assert_eq!(answer, json!({ "removed": 0, "status": "completed" }));
    host.client.cancel(&endpoint, &running).await.ok();
    // The endpoint takes jobs as before.
    assert_eq!(host.client.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
}
