//! `executionTimeout` for handlers that compute, with and without fuel metering, and as an
//! endpoint's setting.

use gristmill_tests::{guests, shared_host};
use serde_json::json;

#[tokio::test]
async fn a_job_that_computes_is_timed_out_with_both_kinds_of_metering() {
    let host = shared_host();
    let mut jobs = vec![];
    for metering in ["fuel", "epoch"] {
        let settings = json!({ "metering": metering, "executionTimeoutMs": 5_000 });
        let name = format!("timeout-{metering}");
        let endpoint = host.deploy(&guests::playground(), &name, settings).await;
        let computing = host.client.submit(&endpoint, json!({ "op": "spin" })).await;
        // A policy overrides the endpoint's default, for its job only.
        let policy = json!({ "executionTimeout": 60_000 });
        let sleep = json!({ "op": "sleep", "ms": 5_600 });
        let longer = host.client.submit_with(&endpoint, sleep, policy).await;
        jobs.push((endpoint, computing, longer));
    }
    for (endpoint, computing, longer) in jobs {
        let document = host.client.until(&endpoint, &computing, "TIMED_OUT").await;
        let took = document["executionTime"].as_u64().unwrap();
        println!("a job of {endpoint} ran {} ms over its executionTimeout", took - 5_000);
        assert!((5_000..30_000).contains(&took), "{document}");
        host.client.until(&endpoint, &longer, "COMPLETED").await;
    }
}
