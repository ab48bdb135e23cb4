//! The execution policy of a submission: bounds, types and defaults.

use gristmill_tests::{guests, shared_host};
use serde_json::json;

const DAYS_7: u64 = 604_800_000;

#[tokio::test]
async fn a_number_out_of_bounds_is_refused_and_the_bound_is_named() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "policy-bounds", json!({})).await;
    let cases = [
        (json!({ "executionTimeout": 4_999 }), "executionTimeout", "5000"),
        (json!({ "executionTimeout": 0 }), "executionTimeout", "5000"),
        (json!({ "executionTimeout": -1 }), "executionTimeout", "5000"),
        (json!({ "executionTimeout": DAYS_7 + 1 }), "executionTimeout", "604800000"),
        (json!({ "ttl": 9_999 }), "ttl", "10000"),
        (json!({ "ttl": DAYS_7 + 1 }), "ttl", "604800000"),
    ];
    for (policy, field, bound) in cases {
        let body = json!({ "input": { "op": "echo" }, "policy": policy });
        for operation in ["run", "runsync"] {
            let answer = host.client.post(&host.client.path(&endpoint, operation), &body).await;
            let sentence = answer.refused(400);
            assert!(sentence.contains(field) && sentence.contains(bound), "{sentence}");
        }
    }
    assert_eq!(host.client.health(&endpoint).await["jobs"]["completed"], 0);
}

#[tokio::test]
async fn the_bounds_themselves_are_accepted() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "policy-edges", json!({})).await;
    let cases = [
        json!({}),
        json!(null),
        json!({ "executionTimeout": 5_000, "ttl": 10_000, "lowPriority": false }),
        json!({ "executionTimeout": DAYS_7, "ttl": DAYS_7 }),
        json!({ "executionTimeout": null, "ttl": null, "lowPriority": null }),
        json!({ "ttl": 60_000, "priority": 9, "whatever": { "a": [] } }),
    ];
    for policy in cases {
        let job = host.client.submit_with(&endpoint, json!({ "op": "echo" }), policy).await;
        host.client.until(&endpoint, &job, "COMPLETED").await;
    }
}

#[tokio::test]
async fn a_field_of_the_wrong_type_is_named() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "policy-types", json!({})).await;
    let cases = [
        (json!({ "policy": 7 }), "policy"),
        (json!({ "policy": { "executionTimeout": "5000" } }), "executionTimeout"),
        (json!({ "policy": { "ttl": 10_000.5 } }), "ttl"),
        (json!({ "policy": { "ttl": true } }), "ttl"),
        (json!({ "policy": { "lowPriority": "yes" } }), "lowPriority"),
        (json!({ "webhook": 7 }), "webhook"),
        (json!({ "webhook": "not a url" }), "webhook"),
        (json!({ "webhook": "ftp://example.com/" }), "webhook"),
        (json!({ "s3Config": [] }), "s3Config"),
        (json!({ "s3Config": { "accessId": 1 } }), "accessId"),
    ];
    for (mut body, field) in cases {
        body["input"] = json!({ "op": "echo" });
        let answer = host.client.post(&host.client.path(&endpoint, "run"), &body).await;
        assert!(answer.refused(400).contains(field), "{body}: {answer:?}");
    }
}
