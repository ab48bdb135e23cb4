//! Endpoints whose instances run several jobs.

use gristmill_tests::{guests, shared_host};
use serde_json::{Value, json};

/// A value that the next job of the same instance returns.
fn remember(value: &str) -> Value {
    json!({ "op": "remember", "value": value })
}

#[tokio::test]
async fn an_instance_remembers_for_as_many_jobs_as_it_may() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1, "reuse": { "maxJobs": 3 } });
    let endpoint = host.deploy(&guests::playground(), "reuse-count", settings).await;
    let shown = host.client.get(&format!("/v1/endpoints/{endpoint}")).await.ok();
    assert_eq!(shown["reuse"], json!({ "maxJobs": 3, "maxIdle": 60 }), "{shown}");
    let expected = [Value::Null, json!("a"), json!("b"), Value::Null, json!("d")];
    for (value, remembered) in ["a", "b", "c", "d", "e"].into_iter().zip(expected) {
        let document = host.client.finish(&endpoint, remember(value)).await;
        assert_eq!(document["output"], json!({ "remembered": remembered }), "{document}");
    }
}

#[tokio::test]
async fn a_new_version_and_a_broken_job_begin_afresh() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1, "reuse": { "maxJobs": 100 } });
    let endpoint = host.deploy(&guests::playground(), "reuse-fresh", settings).await;
    let next = async |value: &str| {
        let document = host.client.finish(&endpoint, remember(value)).await;
        document["output"]["remembered"].clone()
    };
    assert_eq!(next("a").await, Value::Null);
    assert_eq!(next("b").await, json!("a"));
    // An error that the handler returns does not end the instance.
    let failed = host.client.finish(&endpoint, json!({ "op": "fail" })).await;
    assert_eq!(failed["status"], "FAILED");
    assert_eq!(next("c").await, json!("b"));
    let trapped = host.client.finish(&endpoint, json!({ "op": "trap" })).await;
    assert_eq!(trapped["status"], "FAILED");
    assert_eq!(next("d").await, Value::Null);
    assert_eq!(next("e").await, json!("d"));
    let path = format!("/v1/endpoints/{endpoint}");
    host.client.patch(&path, &json!({ "env": { "A": "b" } })).await.ok();
    assert_eq!(next("f").await, Value::Null);
    let env = host.client.finish(&endpoint, json!({ "op": "env", "name": "A" })).await;
    assert_eq!(env["output"], json!({ "env": "b" }));
}

#[tokio::test]
async fn each_job_has_its_own_log_credentials_and_time() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1, "reuse": { "maxJobs": 100 } });
    let endpoint = host.deploy(&guests::playground(), "reuse-own", settings).await;
    let log = async |message: &str| {
        let input = json!({ "op": "log", "message": message });
        let document = host.client.finish(&endpoint, input).await;
        let id = document["id"].as_str().unwrap().to_owned();
        let path = format!("/v1/endpoints/{endpoint}/logs?job={id}");
        let lines = host.client.get(&path).await.ok();
        let lines: Vec<_> = lines.as_array().unwrap().iter().map(|l| l["line"].clone()).collect();
        assert_eq!(lines, [json!(message)]);
    };
    log("one").await;
    log("two").await;
    let s3 =
        json!({ "accessId": "mine", "accessSecret": "s", "bucketName": "b", "endpointUrl": "u" });
    let submission = json!({ "input": { "op": "s3" }, "s3Config": s3 });
    let path = format!("/v2/{endpoint}/runsync");
    let with = host.client.post(&path, &submission).await.ok();
    let without = host.client.finish(&endpoint, json!({ "op": "s3" })).await;
    assert!(with["output"]["s3"].is_string(), "{with}");
    assert_eq!(without["output"], json!({ "s3": null }), "{without}");
    // The previous job had time left; this one has less than it needs.
    let policy = json!({ "executionTimeout": 5_000 });
    let submission = json!({ "input": { "op": "sleep_forever" }, "policy": policy });
    let late = host.client.post(&path, &submission).await.ok();
    assert_eq!(late["status"], "TIMED_OUT", "{late}");
}

#[tokio::test]
async fn init_is_part_of_the_first_job_of_an_instance() {
    let host = shared_host();
    let settings = json!({ "workersMax": 1, "reuse": { "maxJobs": 100 } });
    let endpoint = host.deploy(&guests::factors(), "reuse-init", settings).await;
    // The squares of the primes of the last number do not fit into the 32 bits of a position in a
    // component.
    for (number, factors) in [
        (360, json!([2, 2, 2, 3, 3, 5])),
        (999_983, json!([999_983])),
        (53_450_986_859_u64, json!([203_897, 262_147])),
    ] {
        let document = host.client.finish(&endpoint, json!({ "number": number })).await;
        assert_eq!(document["output"], json!({ "factors": factors }), "{document}");
    }
}

#[tokio::test]
async fn reuse_has_bounds() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "reuse-bounds", json!({})).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let cases = [
        (json!({ "maxJobs": 0 }), "`reuse.maxJobs` must be 1 to 1000000, not 0"),
        (json!({ "maxIdle": 3_601 }), "`reuse.maxIdle` must be 1 to 3600, not 3601"),
        (json!({ "maxjobs": 1 }), "unknown field `maxjobs`"),
        (json!([2, 60]), "`reuse` is invalid"),
    ];
    for (reuse, sentence) in cases {
        let refused = host.client.patch(&path, &json!({ "reuse": reuse })).await.refused(400);
        assert!(refused.contains(sentence), "{refused}");
    }
}

/// The name is used again, the instance is not: the new endpoint sees no data of the deleted one.
#[tokio::test]
async fn an_endpoint_made_again_under_its_name_begins_afresh() {
    let host = shared_host();
    let settings = |env: &str| json!({ "workersMax": 1, "env": { "A": env }, "reuse": { "maxJobs": 100, "maxIdle": 3600 } });
    let endpoint = host.deploy(&guests::playground(), "reuse-again", settings("old")).await;
    assert_eq!(
        host.client.finish(&endpoint, remember("secret")).await["output"]["remembered"],
        Value::Null
    );
    let path = format!("/v1/endpoints/{endpoint}");
    for round in ["new", "newer"] {
        assert_eq!(host.client.delete(&path).await.status, 204);
        let mut body = settings(round);
        body["id"] = json!(endpoint);
        body["templateId"] = json!(endpoint);
        host.client.post("/v1/endpoints", &body).await.ok();
        let first = host.client.finish(&endpoint, remember("other")).await;
        assert_eq!(first["output"], json!({ "remembered": null }), "{first}");
        let env = host.client.finish(&endpoint, json!({ "op": "env", "name": "A" })).await;
        assert_eq!(env["output"], json!({ "env": round }), "{env}");
    }
}
