//! `executionTimeout` for jobs without fuel metering, and as an endpoint's setting.

use gristmill_tests::{guests, shared_host};
use serde_json::json;

#[tokio::test]
async fn a_job_without_fuel_metering_is_timed_out() {
    let host = shared_host();
    let settings = json!({ "metering": "epoch", "executionTimeoutMs": 5_000 });
    let endpoint = host.deploy(&guests::playground(), "timeout-epoch", settings).await;
    let computing = host.client.submit(&endpoint, json!({ "op": "spin" })).await;
    // A policy overrides the endpoint's default, for its job only.
    let policy = json!({ "executionTimeout": 60_000 });
    let longer =
        host.client.submit_with(&endpoint, json!({ "op": "sleep", "ms": 5_600 }), policy).await;
    let document = host.client.until(&endpoint, &computing, "TIMED_OUT").await;
    let took = document["executionTime"].as_u64().unwrap();
    println!("a job that computes ran {} ms over its executionTimeout", took - 5_000);
    assert!((5_000..30_000).contains(&took), "{document}");
    host.client.until(&endpoint, &longer, "COMPLETED").await;
}
