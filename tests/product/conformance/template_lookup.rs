//! `GET /v1/templates/{templateId}`: its parameters and answers.

use gristmill_tests::{Client, Shared, guests, shared_host};
use serde_json::json;

async fn create(host: &Shared, id: &str) {
    let template = json!({ "id": id, "name": id, "imageName": "echo:latest" });
    host.client.post("/v1/templates", &template).await.ok();
}

/// `templateId` names the returned template.
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

/// A flag is a boolean, false by default: `reader` finds the template only with it, in the lookup
/// and in the list. It does not affect the reader's own unbound template.
async fn assert_flag(reader: &Client, id: &str, flag: &str) {
    let path = format!("/v1/templates/{id}");
    let is_listed = async |query: &str| {
        let listed = reader.get(&format!("/v1/templates{query}")).await.ok();
        listed.as_array().unwrap().iter().any(|template| template["id"] == id)
    };
    let others = FLAGS.map(|other| format!("{other}={}", other != flag)).join("&");
    for query in [String::new(), format!("?{flag}=false"), format!("?{others}")] {
        let sentence = reader.get(&format!("{path}{query}")).await.refused(404);
        assert_eq!(sentence, format!("template `{id}` not found"));
        assert!(!is_listed(&query).await, "{query}");
    }
    let query = format!("?{flag}=true");
    assert_eq!(reader.get(&format!("{path}{query}")).await.ok()["id"], id);
    assert!(is_listed(&query).await);
    let sentence = reader.get(&format!("{path}?{flag}=maybe")).await.refused(400);
    assert!(sentence.contains(flag), "{sentence}");

    let own = json!({ "id": format!("{id}-own"), "name": id, "imageName": "echo:latest" });
    reader.post("/v1/templates", &own).await.ok();
    for value in ["true", "false"] {
        reader.get(&format!("{path}-own?{flag}={value}")).await.ok();
    }
}

const FLAGS: [&str; 3] =
    ["includeEndpointBoundTemplates", "includePublicTemplates", "includePlatformTemplates"];

/// `includePublicTemplates`: public templates of other owners.
#[tokio::test]
async fn include_public_templates() {
    let host = shared_host();
    create(&host, "lookup-public").await;
    let reader = host.client_of("lookup-public-reader").await;
    let all = FLAGS.map(|flag| format!("{flag}=true")).join("&");
    reader.get(&format!("/v1/templates/lookup-public?{all}")).await.refused(404);
    let public = json!({ "isPublic": true });
    host.client.patch("/v1/templates/lookup-public", &public).await.ok();
    assert_flag(&reader, "lookup-public", "includePublicTemplates").await;
}

/// A public template stays in the list of public ones when the reader's endpoint uses it, and is
/// one of the templates that the reader's endpoints use. A private one that they use is not found.
#[tokio::test]
async fn a_template_of_several_kinds() {
    let host = shared_host();
    create(&host, "lookup-both").await;
    let path = "/v1/templates/lookup-both";
    host.client.patch(path, &json!({ "isPublic": true })).await.ok();
    let reader = host.client_of("lookup-both-reader").await;
    let endpoint = json!({ "id": "lookup-both-e", "templateId": "lookup-both", "workersMax": 0 });
    reader.post("/v1/endpoints", &endpoint).await.ok();
    let with = async |flag: &str| reader.get(&format!("{path}?{flag}=true")).await;
    with(FLAGS[0]).await.ok();
    with(FLAGS[1]).await.ok();
    with(FLAGS[2]).await.refused(404);
    reader.get(path).await.refused(404);
    host.client.patch(path, &json!({ "isPublic": false })).await.ok();
    with(FLAGS[0]).await.refused(404);
}

/// `includePlatformTemplates`: platform templates, for every owner.
#[tokio::test]
async fn include_platform_templates() {
    let host = shared_host();
    create(&host, "lookup-platform").await;
    let official = json!({ "isPlatform": true, "isPublic": true });
    host.client.patch("/v1/templates/lookup-platform", &official).await.ok();
    let reader = host.client_of("lookup-platform-reader").await;
    assert_flag(&reader, "lookup-platform", "includePlatformTemplates").await;
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

/// 400: a text that cannot be an id.
#[tokio::test]
async fn invalid_id_is_400() {
    let host = shared_host();
    for invalid in ["bad.id", "bad%20id", "%C3%A9", "a%2Fb", "%00", "-%", &"x".repeat(500)] {
        host.client.get(&format!("/v1/templates/{invalid}")).await.refused(400);
    }
}

/// 404: an unknown id.
#[tokio::test]
async fn unknown_id_is_404() {
    let host = shared_host();
    let sentence = host.client.get("/v1/templates/unknown-one").await.refused(404);
    assert!(sentence.contains("unknown-one"), "{sentence}");
}
