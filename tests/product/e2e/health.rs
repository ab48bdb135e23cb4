//! Workers start and end with the queue, as `/health` shows.

use gristmill_tests::{eventually, guests, shared_host};
use serde_json::{Value, json};

fn workers(health: &Value, state: &str) -> u64 {
    health["workers"][state].as_u64().unwrap_or_else(|| panic!("no {state}: {health}"))
}

#[tokio::test]
async fn workers_grow_with_the_queue_up_to_the_maximum_and_shrink_when_idle() {
    let host = shared_host();
    let settings = json!({ "workersMax": 3, "idleTimeout": 1 });
    let endpoint = host.deploy(&guests::playground(), "health-scale", settings).await;
    let nothing = host.client.health(&endpoint).await;
    assert_eq!(workers(&nothing, "idle") + workers(&nothing, "running"), 0, "{nothing}");
    let checked = async || {
        let health = host.client.health(&endpoint).await;
        assert!(workers(&health, "running") <= 3, "{health}");
        health
    };
    let mut jobs = vec![];
    for _ in 0..5 {
        jobs.push(host.client.submit(&endpoint, json!({ "op": "sleep_forever" })).await);
    }
    host.client.workers_running(&endpoint, 3).await;
    for _ in 0..10 {
        checked().await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    for job in &jobs {
        host.client.cancel(&endpoint, job).await.ok();
    }
    for _ in 0..5 {
        host.client.submit(&endpoint, json!({ "op": "sleep", "ms": 100 })).await;
    }
    eventually("all five to complete", async || {
        (checked().await["jobs"]["completed"] == 5).then_some(())
    })
    .await;
    let begun = std::time::Instant::now();
    eventually("the workers to leave", async || {
        let health = host.client.health(&endpoint).await;
        (workers(&health, "idle") + workers(&health, "running") == 0).then_some(())
    })
    .await;
    println!("with an idleTimeout of 1 s the last worker left after {:?}", begun.elapsed());
}

#[tokio::test]
async fn the_least_number_of_workers_stays() {
    let host = shared_host();
    let settings = json!({ "workersMin": 2, "workersMax": 4, "idleTimeout": 1 });
    let endpoint = host.deploy(&guests::playground(), "health-least", settings).await;
    let is_warm = async || {
        let health = host.client.health(&endpoint).await;
        (workers(&health, "idle") == 2).then_some(())
    };
    eventually("two workers without any job", is_warm).await;
    for _ in 0..6 {
        host.client.submit(&endpoint, json!({ "op": "sleep", "ms": 100 })).await;
    }
    eventually("all six to complete", async || {
        (host.client.health(&endpoint).await["jobs"]["completed"] == 6).then_some(())
    })
    .await;
    // Further workers leave after the idleTimeout of a second, and these two do not.
    eventually("two workers to be left", is_warm).await;
    for _ in 0..13 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        let health = host.client.health(&endpoint).await;
        assert!(workers(&health, "idle") >= 2, "{health}");
    }
}
