//! What the scopes of a key allow, and what a caller without a key learns.

use gristmill_tests::{Client, Shared, guests, shared_host};
use serde_json::{Value, json};

/// A client with a key of its own.
async fn with_scopes(host: &Shared, scopes: Value) -> Client {
    let settings = json!({ "name": "scopes", "scopes": scopes });
    let made = host.client.post("/v1/keys", &settings).await.ok();
    host.client.with_key(made["key"].as_str().unwrap())
}

#[tokio::test]
async fn nobody_without_a_key_learns_what_exists() {
    let host = shared_host();
    host.deploy(&guests::playground(), "auth-hidden", json!({})).await;
    let nobody = host.client.with_authorization(None);
    for path in ["/v2/auth-hidden/health", "/v2/no-such-endpoint/health", "/metrics"] {
        nobody.get(path).await.refused(401);
    }
    for path in ["/v1/templates/auth-hidden", "/v1/templates/no-such-template"] {
        nobody.get(path).await.refused(401);
    }
}

#[tokio::test]
async fn a_key_does_what_its_scopes_say_and_no_more() {
    let host = shared_host();
    let endpoint = host.deploy(&guests::playground(), "auth-scopes", json!({})).await;
    let done = host.client.finish(&endpoint, json!({ "op": "echo" })).await;
    let job = done["id"].as_str().unwrap();
    let template = "/v1/templates/auth-scopes?includeEndpointBoundTemplates=true";

    let reader = with_scopes(&host, json!(["read"])).await;
    reader.status(&endpoint, job).await.ok();
    reader.stream(&endpoint, job).await.ok();
    reader.health(&endpoint).await;
    reader.run(&endpoint, json!({ "op": "echo" })).await.refused(401);
    reader.run_sync(&endpoint, "", json!({ "op": "echo" })).await.refused(401);
    reader.cancel(&endpoint, job).await.refused(401);
    reader.retry(&endpoint, job).await.refused(401);
    reader.purge(&endpoint).await.refused(401);
    reader.get(template).await.refused(401);

    let submitter = with_scopes(&host, json!(["submit"])).await;
    assert_eq!(submitter.finish(&endpoint, json!({ "op": "echo" })).await["status"], "COMPLETED");
    submitter.cancel(&endpoint, job).await.ok();
    submitter.get(template).await.refused(401);
    submitter.post("/v1/keys", &json!({ "name": "x", "scopes": ["admin"] })).await.refused(401);

    let manager = with_scopes(&host, json!(["manage"])).await;
    manager.get(template).await.ok();
    manager.run(&endpoint, json!({ "op": "echo" })).await.refused(401);
    manager.post("/v1/keys", &json!({ "name": "x", "scopes": ["admin"] })).await.refused(401);

    let both = with_scopes(&host, json!(["manage", "read"])).await;
    both.get(template).await.ok();
    both.status(&endpoint, job).await.ok();
}
