//! `/requests`: an endpoint's jobs, newest first, page by page.

use gristmill_tests::{guests, shared_host};
use serde_json::{Value, json};

fn ids(page: &Value) -> Vec<String> {
    let requests = page["requests"].as_array().unwrap();
    requests.iter().map(|job| job["id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn jobs_are_listed_newest_first_page_by_page() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "requests-pages", json!({ "workersMax": 0 })).await;
    let client = &host.client;
    let path = |query: &str| client.path(&endpoint, &format!("requests{query}"));
    assert_eq!(client.get(&path("")).await.ok(), json!({ "requests": [] }));
    let mut jobs = Vec::new();
    for n in 0..5 {
        jobs.push(client.submit(&endpoint, json!({ "n": n })).await);
    }
    jobs.reverse();
    let first = client.get(&path("?limit=2")).await.ok();
    assert_eq!(ids(&first), jobs[..2]);
    let entry = &first["requests"][0];
    assert_eq!(entry["status"], "IN_QUEUE");
    assert!(entry["createdAt"].as_str().unwrap().ends_with('Z'), "{entry}");
    assert!(entry["delayTime"].is_u64() && entry["executionTime"] == 0, "{entry}");
    assert!(entry.get("workerId").is_none(), "{entry}");
    let cursor = first["cursor"].as_str().unwrap();
    // A job that arrives meanwhile is not on the following pages.
    client.submit(&endpoint, json!({})).await;
    let rest = client.get(&path(&format!("?cursor={cursor}"))).await.ok();
    assert_eq!(ids(&rest), jobs[2..]);
    assert!(rest.get("cursor").is_none(), "{rest}");
}

#[tokio::test]
async fn a_list_can_be_of_one_status() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "requests-status", json!({})).await;
    let client = &host.client;
    let done = client.finish(&endpoint, json!({ "op": "echo" })).await;
    let failed = client.finish(&endpoint, json!({ "op": "fail" })).await;
    let list = async |status: &str| {
        let path = client.path(&endpoint, &format!("requests?status={status}"));
        client.get(&path).await.ok()
    };
    let failures = list("FAILED").await;
    assert_eq!(ids(&failures), [failed["id"].as_str().unwrap()]);
    assert_eq!(failures["requests"][0]["workerId"], failed["workerId"]);
    let completed = list("COMPLETED").await;
    assert_eq!(ids(&completed), [done["id"].as_str().unwrap()]);
    assert_eq!(completed["requests"][0]["executionTime"], done["executionTime"]);
    assert_eq!(list("IN_QUEUE").await, json!({ "requests": [] }));
}

#[tokio::test]
async fn a_query_that_makes_no_sense_is_refused() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "requests-wrong", json!({})).await;
    let cases = [
        ("status=DONE", "`status` must be one of IN_QUEUE,"),
        ("limit=0", "`limit` must be 1 to 1000, not 0"),
        ("limit=1001", "`limit` must be 1 to 1000"),
        ("limit=many", "`limit` must be an integer"),
        ("cursor=x", "`cursor` must be"),
    ];
    for (query, complaint) in cases {
        let path = host.client.path(&endpoint, &format!("requests?{query}"));
        let error = host.client.get(&path).await.refused(400);
        assert!(error.contains(complaint), "{query}: {error}");
    }
}
