//! Jobs with keys: those of one key do not hold up those of another one.

use std::collections::BTreeMap;

use gristmill_tests::{Client, TestHost, guests};
use serde_json::{Value, json};

async fn submit(client: &Client, endpoint: &str, policy: Value) -> String {
    let body = json!({ "input": { "op": "echo" }, "policy": policy });
    let answer = client.post(&format!("/v2/{endpoint}/run"), &body).await.ok();
    answer["id"].as_str().unwrap().to_owned()
}

/// The keys of the jobs, in the order of their starts.
async fn starts(client: &Client, endpoint: &str, jobs: &BTreeMap<String, String>) -> Vec<String> {
    let mut starts = Vec::new();
    for (job, key) in jobs {
        client.until(endpoint, job, "COMPLETED").await;
        let timeline = client.get(&format!("/v2/{endpoint}/timeline/{job}")).await.ok();
        let events = timeline["events"].as_array().unwrap();
        let started = events.iter().find(|event| event["event"] == "started").unwrap();
        // Ids are in the order of the submissions, and so are starts in one millisecond of one key.
        starts.push((started["at"].as_str().unwrap().to_owned(), key.clone()));
    }
    starts.sort();
    starts.into_iter().map(|(_, key)| key).collect()
}

#[tokio::test]
async fn a_key_with_many_jobs_does_not_hold_up_another_one() {
    let mut host = TestHost::start();
    let endpoint = host.deploy(&guests::playground(), "mill", json!({ "workersMax": 0 })).await;
    let client = host.client();
    let mut jobs = BTreeMap::new();
    for (key, count) in [("many", 60), ("few", 5)] {
        for _ in 0..count {
            jobs.insert(submit(&client, &endpoint, json!({ "key": key })).await, key.to_owned());
        }
    }
    // The keys are on disk.
    host.kill9();
    host.start_again();
    let client = host.client();
    client.patch("/v1/endpoints/mill", &json!({ "workersMax": 1 })).await.ok();
    let order = starts(&client, &endpoint, &jobs).await;
    // The turns of both begin together; a start may be as late as the end of the millisecond.
    let last_few = order.iter().rposition(|key| key == "few").unwrap();
    assert!(last_few < 30, "{order:?}");
    // The key is a tag, by which the jobs are found.
    let found = client.get("/v1/jobs?tag=policy/key:few&limit=100").await.ok();
    assert_eq!(found["jobs"].as_array().unwrap().len(), 5, "{found}");
}

#[tokio::test]
async fn a_key_is_refused_beside_another_one() {
    let host = gristmill_tests::shared_host();
    let client = host.client();
    let endpoint = host.deploy(&guests::echo(), "echo-keys", json!({})).await;
    let body = json!({
        "input": {}, "policy": { "key": "a" }, "tags": { "policy/key": "b" },
    });
    let refused = client.post(&format!("/v2/{endpoint}/run"), &body).await.refused(400);
    assert!(refused.contains("`tags` has the key `policy/key` twice"), "{refused}");
}
