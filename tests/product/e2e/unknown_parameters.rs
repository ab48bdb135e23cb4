//! Query parameters that a call does not have, or has once only: refused by the management API,
//! `requests` and `timeline`, and ignored by the contract's calls of the queue API, to which SDKs
//! may send more.

use gristmill_tests::{guests, shared_host};
use reqwest::Method;
use serde_json::json;

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

#[tokio::test]
async fn a_deletion_with_dry_run_deletes_nothing() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "unknown-dry", json!({})).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let refused = host.client.delete(&format!("{path}?dryRun=true")).await.refused(400);
    assert_eq!(refused, "unknown query parameter `dryRun`; this call has no query parameters");
    assert_eq!(host.client.get(&path).await.ok()["id"], endpoint);
}

/// Each call of the document, with objects that need not exist: the parameter is checked first.
#[tokio::test]
async fn every_call_of_the_management_api_names_a_misspelt_parameter() {
    let host = shared_host();
    let document = host.client().get("/openapi.json").await.ok();
    let mut calls = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        if !path.starts_with("/v1/") {
            continue;
        }
        let place = path.replace(['{', '}'], "");
        for method in METHODS.into_iter().filter(|method| !item[*method].is_null()) {
            let parameters = item[method]["parameters"].as_array().into_iter().flatten();
            let known = parameters.filter(|parameter| parameter["in"] == "query");
            let known = known.map(|parameter| parameter["name"].as_str().unwrap());
            let verb = Method::from_bytes(method.to_uppercase().as_bytes()).unwrap();
            let request = host.client.request(verb, &format!("{place}?misspelt=1"));
            let refused = host.client.send(request).await.refused(400);
            let begin = "unknown query parameter `misspelt`; this call has ";
            let known: Vec<_> = known.map(|name| format!("`{name}`")).collect();
            let allowed = match known.is_empty() {
                true => "no query parameters".to_owned(),
                false => known.join(", "),
            };
            assert_eq!(refused, format!("{begin}{allowed}"), "{method} {path}");
            assert!(!item[method]["responses"]["400"].is_null(), "{method} {path}");
            calls += 1;
        }
    }
    assert!(calls > 40, "{calls}");
}

#[tokio::test]
async fn the_lists_of_jobs_refuse_what_they_do_not_know() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "unknown-lists", json!({})).await;
    let refused = host.client.get("/v1/jobs?error=a&error=b").await.refused(400);
    assert_eq!(refused, "query parameter `error` must be given once");
    host.client.get("/v1/jobs?status=FAILED&status=COMPLETED").await.ok();
    let job = host.client.submit(&endpoint, json!({})).await;
    let refused = host.client.get("/v1/jobs?statuss=FAILED").await.refused(400);
    assert!(refused.contains("`statuss`") && refused.contains("`status`"), "{refused}");
    for client in [host.client(), host.client().sdk()] {
        let requests = client.path(&endpoint, "requests?limt=2");
        let refused = client.get(&requests).await.refused(400);
        let expected = "unknown query parameter `limt`; this call has `status`, `limit`, `cursor`";
        assert_eq!(refused, expected);
        let timeline = client.path(&endpoint, &format!("timeline/{job}"));
        client.get(&timeline).await.ok();
        client.get(&format!("{timeline}?verbose=true")).await.refused(400);
        let twice = client.get(&client.path(&endpoint, "requests?limit=1&limit=5")).await;
        assert_eq!(twice.refused(400), "query parameter `limit` must be given once");
        // The contract's calls take the first value.
        client
            .get(&client.path(&endpoint, &format!("status/{job}?input=true&input=false")))
            .await
            .ok();
    }
}

#[tokio::test]
async fn parameters_of_clients_of_the_hosted_service_are_accepted() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "unknown-hosted", json!({})).await;
    let flags = "includeTemplate=true&includeWorkers=true";
    host.client.get(&format!("/v1/endpoints?{flags}")).await.ok();
    let shown = host.client.get(&format!("/v1/endpoints/{endpoint}?{flags}")).await.ok();
    assert_eq!(shown["id"], endpoint);
    let path = format!("/v1/endpoints/{endpoint}?includeWorkers=yes");
    assert!(host.client.get(&path).await.refused(400).contains("`includeWorkers`"));
}

#[tokio::test]
async fn the_contracts_calls_of_the_queue_api_ignore_what_they_do_not_know() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::echo(), "unknown-queue", json!({})).await;
    let client = &host.client;
    let input = json!({ "input": { "grain": 1 } });
    let path = |rest: &str| client.path(&endpoint, &format!("{rest}?more=1"));
    let job = client.post(&path("run"), &input).await.ok()["id"].as_str().unwrap().to_owned();
    assert_eq!(client.post(&path("runsync"), &input).await.ok()["status"], "COMPLETED");
    for call in ["status", "status-sync", "stream"] {
        client.get(&path(&format!("{call}/{job}"))).await.ok();
    }
    client.post(&path(&format!("cancel/{job}")), &json!({})).await.ok();
    client.post(&path("purge-queue"), &json!({})).await.ok();
    client.get(&path("health")).await.ok();
    // The job has ended, so only the state is refused.
    let refused = client.post(&path(&format!("retry/{job}")), &json!({})).await.refused(400);
    assert!(refused.contains("only FAILED or TIMED_OUT jobs"), "{refused}");
    for open in ["/openapi.json?more=1", "/livez?more=1", "/metrics?more=1"] {
        assert_eq!(client.get(open).await.status, 200, "{open}");
    }
}
