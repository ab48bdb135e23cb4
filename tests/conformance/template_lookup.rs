//! `GET /v1/templates/{templateId}`: its parameters and answers.

use gristmill_tests::{Shared, guests, shared_host};
use serde_json::json;

async fn create(host: &Shared, id: &str) {
    let template = json!({ "id": id, "name": id, "imageName": "echo:latest" });
    host.client.post("/v1/templates", &template).await.ok();
}

/// `templateId` names the template that is returned.
#[tokio::test]
async fn template_id() {
    let host = shared_host();
    for id in ["lookup-a", "lookup_B"] {
        create(&host, id).await;
        assert_eq!(host.client.get(&format!("/v1/templates/{id}")).await.ok()["id"], id);
    }
}

/// `includeEndpointBoundTemplates`: false by default; then a template that an endpoint uses is not
/// found.
#[tokio::test]
async fn include_endpoint_bound_templates() {
    let host = shared_host();
    host.deploy(&guests::echo(), "lookup-bound", json!({})).await;
    let path = "/v1/templates/lookup-bound";
    let flag = "includeEndpointBoundTemplates";
    host.client.get(path).await.refused(404);
    host.client.get(&format!("{path}?{flag}=false")).await.refused(404);
    host.client.get(&format!("{path}?{flag}=False")).await.refused(404);
    // Python writes a boolean as `True`.
    for yes in ["true", "True"] {
        let found = host.client.get(&format!("{path}?{flag}={yes}")).await.ok();
        assert_eq!(found["id"], "lookup-bound", "{yes}");
    }
    let others = "includePublicTemplates=true&includePlatformTemplates=true";
    host.client.get(&format!("{path}?{others}")).await.refused(404);
}

/// A flag is a boolean, and changes nothing about one's own unbound template.
async fn assert_flag(id: &str, flag: &str) {
    let host = shared_host();
    create(&host, id).await;
    for query in ["", "?FLAG=true", "?FLAG=false"] {
        let path = format!("/v1/templates/{id}{}", query.replace("FLAG", flag));
        assert_eq!(host.client.get(&path).await.ok()["id"], id);
    }
    let sentence = host.client.get(&format!("/v1/templates/{id}?{flag}=maybe")).await.refused(400);
    assert!(sentence.contains(flag), "{sentence}");
}

/// `includePublicTemplates`: a boolean, false by default.
#[tokio::test]
async fn include_public_templates() {
    assert_flag("lookup-public", "includePublicTemplates").await;
}

/// `includePlatformTemplates`: a boolean, false by default.
#[tokio::test]
async fn include_platform_templates() {
    assert_flag("lookup-platform", "includePlatformTemplates").await;
}

/// 200: the template as a JSON object.
#[tokio::test]
async fn found_is_200() {
    let host = shared_host();
    create(&host, "lookup-found").await;
    let answer = host.client.get("/v1/templates/lookup-found").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.ok()["name"], "lookup-found");
}

/// 400: what cannot be an id.
#[tokio::test]
async fn invalid_id_is_400() {
    let host = shared_host();
    for invalid in ["bad.id", "bad%20id", "%C3%A9", "a%2Fb", "%00", "-%", &"x".repeat(500)] {
        host.client.get(&format!("/v1/templates/{invalid}")).await.refused(400);
    }
}

/// 404: an id that no template has.
#[tokio::test]
async fn unknown_id_is_404() {
    let host = shared_host();
    let sentence = host.client.get("/v1/templates/unknown-one").await.refused(404);
    assert!(sentence.contains("unknown-one"), "{sentence}");
}
