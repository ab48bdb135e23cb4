//! Versioning: the path prefixes of the two APIs.

use serde_json::json;

use crate::support::shared;

/// The management API is under /v1 only.
#[tokio::test]
async fn management_under_v1() {
    let endpoint = shared("versioning-v1", json!({})).await;
    endpoint.client.get("/v1/endpoints/versioning-v1").await.ok();
    for path in ["/endpoints/versioning-v1", "/v2/endpoints/versioning-v1"] {
        endpoint.client.get(path).await.refused(404);
    }
}

/// The queue API is under /v2 only.
#[tokio::test]
async fn queue_under_v2() {
    let endpoint = shared("versioning-v2", json!({})).await;
    endpoint.client.get("/v2/versioning-v2/health").await.ok();
    for path in ["/versioning-v2/health", "/v1/versioning-v2/health", "/v3/versioning-v2/health"] {
        endpoint.client.get(path).await.refused(404);
    }
}
