//! Hostile and broken handlers: each ends its own job with an error that names the cause, and the
//! worker continues.

use gristmill_tests::{Shared, guests, shared_host};
use serde_json::{Value, json};

/// Runs a job that must fail, then one that must not; returns the error in lower case.
async fn failure(host: &Shared, endpoint: &str, input: Value) -> String {
    let document = host.client.finish(endpoint, input.clone()).await;
    assert_eq!(document["status"], "FAILED", "{input}: {document}");
    assert!(document.get("output").is_none(), "{input}: {document}");
    let error = document["error"].as_str().unwrap_or_else(|| panic!("{input}: {document}"));
    let next = host.client.finish(endpoint, json!({ "op": "echo", "value": 1 })).await;
    assert_eq!(next["output"], json!({ "echo": 1 }), "after {input}: {next}");
    println!("{input} failed with: {error}");
    error.to_lowercase()
}

#[tokio::test]
async fn a_handlers_own_error_is_the_jobs_error() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sandbox-own", json!({})).await;
    let error = failure(&host, &endpoint, json!({ "op": "fail", "message": "no flour" })).await;
    assert_eq!(error, "no flour");
    let error = failure(&host, &endpoint, json!({ "op": "dance" })).await;
    assert!(error.contains("unknown variant `dance`"), "{error}");
    // A handler's own error is final.
    let document = host.client.finish(&endpoint, json!({ "op": "fail" })).await;
    assert!(document.get("retries").is_none(), "{document}");
}

#[tokio::test]
async fn a_handler_that_breaks_down_fails_its_own_job() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "sandbox-breaks", settings).await;
    let cases = [("trap", "unreachable"), ("recurse", "stack"), ("exit", "exit")];
    for (op, word) in cases {
        let error = failure(&host, &endpoint, json!({ "op": op })).await;
        assert!(error.contains(word), "{op}: {error}");
    }
    assert_eq!(host.client.health(&endpoint).await["workers"]["unhealthy"], 0);
}

#[tokio::test]
async fn memory_ends_at_the_endpoints_limit() {
    let host = shared_host();
    let settings = json!({ "memoryMib": 64, "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "sandbox-memory", settings).await;
    let within = host.client.finish(&endpoint, json!({ "op": "alloc", "mib": 32 })).await;
    assert_eq!(within["output"], json!({ "allocated_mib": 32 }), "{within}");
    let error = failure(&host, &endpoint, json!({ "op": "alloc", "mib": 80 })).await;
    assert!(error.contains("memory"), "{error}");
    let taken: Vec<u64> = error.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(taken.iter().any(|mib| (32..64).contains(mib)), "{error}");

    let defaults = host.deploy(&guests::playground(), "sandbox-memory-256", json!({})).await;
    let within = host.client.finish(&defaults, json!({ "op": "alloc", "mib": 200 })).await;
    assert_eq!(within["output"], json!({ "allocated_mib": 200 }), "{within}");
    failure(&host, &defaults, json!({ "op": "alloc", "mib": 260 })).await;
}

#[tokio::test]
async fn fuel_ends_at_the_endpoints_budget() {
    let host = shared_host();
    let settings = json!({ "maxFuel": 50_000_000, "workersMax": 1 });
    let endpoint = host.deploy(&guests::playground(), "sandbox-fuel", settings).await;
    let error = failure(&host, &endpoint, json!({ "op": "spin" })).await;
    assert!(error.contains("fuel"), "{error}");
    // Each job has the whole budget.
    for _ in 0..3 {
        let document =
            host.client.finish(&endpoint, json!({ "op": "sha256", "rounds": 100 })).await;
        assert_eq!(document["status"], "COMPLETED", "{document}");
    }
}

#[tokio::test]
async fn an_output_over_the_limit_fails_and_says_so() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sandbox-output", json!({})).await;
    let error = failure(&host, &endpoint, json!({ "op": "output", "bytes": 21 << 20 })).await;
    assert!(error.contains("output") && error.contains(&(20 << 20).to_string()), "{error}");
}

#[tokio::test]
async fn standard_output_is_the_jobs_log_and_is_capped() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "sandbox-stdout", json!({})).await;
    let before = host.log().len();
    let bytes = 16 << 20;
    let document = host.client.finish(&endpoint, json!({ "op": "stdout", "bytes": bytes })).await;
    assert_eq!(document["output"], json!({ "printed": bytes }), "{document}");
    let grown = host.log().len() - before;
    println!("16 MiB of standard output made the host's log grow by {} KiB", grown >> 10);
    assert!(grown < 4 << 20, "{grown} bytes");
}

#[tokio::test]
async fn every_job_has_a_fresh_memory() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1, "workersMin": 1 });
    let endpoint = host.deploy(&guests::playground(), "sandbox-fresh", settings).await;
    for value in ["first", "second", "third"] {
        let input = json!({ "op": "remember", "value": value });
        let document = host.client.finish(&endpoint, input).await;
        assert_eq!(document["output"], json!({ "remembered": null }), "{document}");
    }
}

#[tokio::test]
async fn the_environment_is_the_templates_and_the_endpoints_and_nothing_of_the_host() {
    let host = shared_host();
    let settings = json!({
        "templateEnv": { "GRAIN": "rye", "STONE": "granite" },
        "env": { "GRAIN": "wheat", "WHEEL": "oak ☼" },
    });
    let endpoint = host.deploy(&guests::playground(), "sandbox-env", settings).await;
    let cases = [
        ("GRAIN", json!("wheat")),
        ("STONE", json!("granite")),
        ("WHEEL", json!("oak ☼")),
        ("PATH", json!(null)),
        ("HOME", json!(null)),
    ];
    for (name, expected) in cases {
        let document = host.client.finish(&endpoint, json!({ "op": "env", "name": name })).await;
        assert_eq!(document["output"], json!({ "env": expected }), "{name}: {document}");
    }
}
