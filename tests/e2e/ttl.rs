//! `ttl`: a job's whole life, whatever it does when it is over.

use std::time::{Duration, Instant};

use gristmill_tests::{eventually, guests, shared_host};
use serde_json::json;

#[tokio::test]
async fn a_job_whose_ttl_passes_is_gone_and_stopped() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "ttl", settings).await;
    host.client.finish(&endpoint, json!({ "op": "echo" })).await;
    let running = host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await;
    host.client.until(&endpoint, &running, "IN_PROGRESS").await;
    let queued = host.client.submit(&endpoint, json!({ "op": "echo" })).await;
    let next = host.client.submit(&endpoint, json!({ "op": "echo" })).await;

    // The call still answers what is true; the life of the job is what it shortens.
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

#[tokio::test]
async fn a_finished_job_can_be_shortened_and_never_lengthened() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "ttl-final", json!({})).await;
    let done = host.client.finish(&endpoint, json!({ "op": "echo" })).await;
    let job = done["id"].as_str().unwrap();
    host.client.status(&endpoint, &format!("{job}?ttl=500")).await.ok();
    let longer = host.client.status(&endpoint, &format!("{job}?ttl=600000")).await;
    assert_eq!(longer.ok()["status"], "COMPLETED");
    eventually("the result to be gone", async || {
        (host.client.status(&endpoint, job).await.status == 404).then_some(())
    })
    .await;
    for wrong in ["-1", "soon", "1.5"] {
        let answer = host.client.status(&endpoint, &format!("{job}?ttl={wrong}")).await;
        assert!(answer.refused(400).contains("ttl"), "{answer:?}");
    }
}

#[tokio::test]
async fn the_policys_ttl_counts_from_the_submission_and_covers_waiting_and_running() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "ttl-policy", settings).await;
    let policy = json!({ "ttl": 10_000 });
    let forever = json!({ "op": "sleep_forever" });
    let begun = Instant::now();
    let running = host.client.submit_with(&endpoint, forever, policy.clone()).await;
    let queued = host.client.submit_with(&endpoint, json!({ "op": "echo" }), policy).await;
    tokio::time::sleep(Duration::from_secs(8)).await;
    host.client.until(&endpoint, &running, "IN_PROGRESS").await;
    host.client.until(&endpoint, &queued, "IN_QUEUE").await;
    for job in [&running, &queued] {
        eventually("the job to be gone", async || {
            let gone = host.client.status(&endpoint, job).await.status == 404;
            // The job that waited may have run in the moment between the two ends.
            gone.then_some(())
        })
        .await;
    }
    let took = begun.elapsed();
    println!("two jobs with a ttl of 10 s were gone after {took:?}");
    assert!(took > Duration::from_millis(9_900), "{took:?}");
}
