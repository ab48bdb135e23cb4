//! `executionTimeout`: no attempt runs longer, whatever it does.

use gristmill_tests::{Shared, guests, shared_host};
use serde_json::{Value, json};

const TIMEOUT_MS: u64 = 5_000;

async fn time_out(host: &Shared, endpoint: &str, op: &str, policy: Value) {
    let job = host.client.submit_with(endpoint, json!({ "op": op }), policy).await;
    let document = host.client.until(endpoint, &job, "TIMED_OUT").await;
    assert_eq!(document["error"], "executionTimeout exceeded", "{document}");
    assert!(document.get("output").is_none(), "{document}");
    let took = document["executionTime"].as_u64().unwrap();
    println!(
        "{op} on {endpoint} ran {} ms over its executionTimeout",
        took.saturating_sub(TIMEOUT_MS)
    );
    assert!((TIMEOUT_MS..TIMEOUT_MS + 1_500).contains(&took), "{document}");
}

/// One test for all, so that they wait at the same time.
#[tokio::test]
async fn a_job_that_outlives_its_timeout_is_timed_out() {
    let host = shared_host();
    let playground = guests::playground();
    let by_fuel = host.deploy(&playground, "timeout-fuel", json!({})).await;
    let by_epoch = host.deploy(&playground, "timeout-epoch", json!({ "metering": "epoch" })).await;
    let defaults = json!({ "executionTimeoutMs": TIMEOUT_MS });
    let by_default = host.deploy(&playground, "timeout-default", defaults).await;
    let policy = json!({ "executionTimeout": TIMEOUT_MS });

    let longer = async {
        // A policy overrides the endpoint's default, for its job only.
        let input = json!({ "op": "sleep", "ms": TIMEOUT_MS + 600 });
        let policy = json!({ "executionTimeout": 60_000 });
        let job = host.client.submit_with(&by_default, input, policy).await;
        host.client.until(&by_default, &job, "COMPLETED").await;
    };
    tokio::join!(
        time_out(&host, &by_fuel, "spin", policy.clone()),
        time_out(&host, &by_fuel, "sleep_forever", policy.clone()),
        time_out(&host, &by_epoch, "spin", policy),
        time_out(&host, &by_default, "sleep_forever", json!({})),
        longer,
    );
    let health = host.client.health(&by_fuel).await;
    assert_eq!(health["jobs"]["failed"], 2, "timed-out jobs count as failed: {health}");
    assert_eq!(host.client.finish(&by_fuel, json!({ "op": "echo" })).await["status"], "COMPLETED");
}
