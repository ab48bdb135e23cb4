//! The rate limit of the management API.

use gristmill_tests::{TestHost, guests};
use serde_json::json;

const LIMITS: &str = "[rate-limits.management]\ncalls-per-10s = 20\n";

#[tokio::test]
async fn one_owners_management_calls_are_limited_and_no_other_calls() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    std::fs::write(&config, LIMITS).unwrap();
    let host = TestHost::start_with_clock(&["--config", config.to_str().unwrap()]);
    let endpoint = host.deploy(&guests::echo(), "limited", json!({})).await;
    let (operator, other) = (host.client(), host.client_of("other").await);
    let refused = loop {
        let answer = operator.get("/v1/endpoints").await;
        if answer.status != 200 {
            break answer;
        }
    };
    assert_eq!(refused.refused(429), "too many calls of management: at most 20 in 10 seconds");
    let wait_s: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert_eq!(refused.header("ratelimit-policy"), Some("\"management\";q=20;w=10"));
    operator.post("/v1/keys", &json!({})).await.refused(429);
    operator.delete("/v1/endpoints/limited").await.refused(429);
    operator.get("/openapi.json").await.refused(429);
    operator.with_authorization(None).get("/openapi.json").await.ok();
    let of_registry = operator.get("/v2/").await;
    assert_eq!(of_registry.status, 429, "{of_registry:?}");
    assert_eq!(of_registry.json()["errors"][0]["code"], "TOOMANYREQUESTS");
    assert!(of_registry.header("retry-after").is_some(), "{of_registry:?}");

    other.get("/v1/endpoints").await.ok();
    other.get("/v2/").await.ok();
    assert_eq!(operator.finish(&endpoint, json!({ "a": 1 })).await["output"], json!({ "a": 1 }));
    host.advance(1_000 * wait_s);
    operator.get("/v1/endpoints").await.ok();
}

/// Also the calls that the key's scopes do not allow.
#[tokio::test]
async fn calls_of_the_registry_without_the_scope_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    std::fs::write(&config, LIMITS).unwrap();
    let host = TestHost::start_with_clock(&["--config", config.to_str().unwrap()]);
    let key = json!({ "name": "s", "owner": "s", "scopes": ["submit"] });
    let made = host.client().post("/v1/keys", &key).await.ok();
    let submits = host.client().with_key(made["key"].as_str().unwrap());
    for _ in 0..20 {
        assert_eq!(submits.get("/v2/x/tags/list").await.status, 401);
    }
    assert_eq!(submits.get("/v2/x/tags/list").await.status, 429);
}

/// Calls that count for no operation: their routes are public or do not exist, or the key has no
/// permission.
#[tokio::test]
async fn refused_calls_of_a_key_are_limited_and_calls_about_deleted_jobs_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    std::fs::write(&config, "[rate-limits.unauthenticated]\ncalls-per-10s = 20\n").unwrap();
    let host = TestHost::start_with_clock(&["--config", config.to_str().unwrap()]);
    let endpoint = host.deploy(&guests::echo(), "limited", json!({})).await;
    let key = json!({ "name": "s", "owner": "s", "scopes": ["read"] });
    let made = host.client().post("/v1/keys", &key).await.ok();
    let reads = host.client().with_key(made["key"].as_str().unwrap());
    let paths = ["/v2/limited/status/j", "/v2/none/health", "/nowhere", "/v1/none", "/docs/none"];
    for n in 0..20 {
        let answer = match n % 6 {
            5 => reads.post("/v2/limited/run", &json!({ "input": {} })).await,
            at => reads.get(paths[at]).await,
        };
        let expected = if n % 6 == 5 { 401 } else { 404 };
        assert_eq!(answer.status, expected, "call {n}: {answer:?}");
    }
    for path in paths {
        let refused = reads.get(path).await;
        assert!(
            refused.refused(429).contains("forbidden routes: at most 20"),
            "{path}: {refused:?}"
        );
        assert!(refused.header("retry-after").is_some(), "{path}");
    }
    reads.get("/v1/jobs").await.ok();

    let operator = host.client();
    operator.get("/nowhere").await.refused(404);
    let job =
        operator.finish(&endpoint, json!({ "a": 1 })).await["id"].as_str().unwrap().to_owned();
    operator.get(&format!("/v2/limited/status/{job}?ttl=0")).await.ok();
    for _ in 0..60 {
        operator.get(&format!("/v2/limited/status/{job}")).await.refused(404);
    }
    host.advance(10_000);
    reads.get("/nowhere").await.refused(404);
}
