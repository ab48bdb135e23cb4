//! The effects of a template's fields on handlers, and the visibility of templates.

use gristmill_tests::{TestHost, guests, shared_host};
use serde_json::{Value, json};

use crate::support::{echo, shared};

/// `imageName` names an uploaded component by name and tag, or by name and digest; after a new
/// upload a tag refers to the new component, and a digest never to another one.
#[tokio::test]
async fn image_name() {
    let host = shared_host();
    let bytes = |path: std::path::PathBuf| std::fs::read(path).unwrap();
    let first = host.upload("conform:v1", bytes(guests::echo())).await.ok();
    let digest = first["sha256"].as_str().unwrap();
    let by_tag = host.deploy_image("conform:v1", "image-tag", json!({})).await;
    let by_digest =
        host.deploy_image(&format!("conform@sha256:{digest}"), "image-digest", json!({})).await;
    let output = async |endpoint: &str| {
        let input = json!({ "op": "echo", "value": 7 });
        host.client.run_sync(endpoint, "", input).await.ok()["output"].clone()
    };
    for endpoint in [&by_tag, &by_digest] {
        assert_eq!(output(endpoint).await, json!({ "op": "echo", "value": 7 }));
    }
    host.upload("conform:v1", bytes(guests::playground())).await.ok();
    assert_eq!(output(&by_tag).await, json!({ "echo": 7 }));
    assert_eq!(output(&by_digest).await, json!({ "op": "echo", "value": 7 }));
}

/// The component's arguments are `dockerEntrypoint` followed by `dockerStartCmd`.
#[tokio::test]
async fn arguments() {
    let settings =
        json!({ "dockerEntrypoint": ["mill", "--fine"], "dockerStartCmd": ["rye", "a b", ""] });
    let endpoint = shared("handler-arguments", settings).await;
    let done = endpoint.finish(json!({ "op": "args" })).await;
    assert_eq!(done["output"], json!({ "args": ["mill", "--fine", "rye", "a b", ""] }));
}

/// The component's environment is `env`, without any variable of the host.
#[tokio::test]
async fn environment() {
    let settings = json!({ "templateEnv": { "GRAIN": "rye ☼" } });
    let endpoint = shared("handler-env", settings).await;
    for (name, value) in [("GRAIN", json!("rye ☼")), ("PATH", json!(null)), ("HOME", json!(null))]
    {
        let done = endpoint.finish(json!({ "op": "env", "name": name })).await;
        assert_eq!(done["output"], json!({ "env": value }), "{name}");
    }
}

/// All 18 fields of a template are always present, and none of them is null.
#[tokio::test]
async fn all_fields_are_always_there() {
    const FIELDS: [&str; 18] = [
        "id",
        "name",
        "imageName",
        "category",
        "containerDiskInGb",
        "volumeInGb",
        "volumeMountPath",
        "containerRegistryAuthId",
        "dockerEntrypoint",
        "dockerStartCmd",
        "env",
        "ports",
        "readme",
        "isPublic",
        "isPlatform",
        "isServerless",
        "earned",
        "runtimeInMin",
    ];
    let host = shared_host();
    let least = json!({ "id": "fields-least", "name": "least", "imageName": "echo:latest" });
    let nulls: Value = FIELDS
        .iter()
        .filter(|field| !["id", "name", "imageName"].contains(field))
        .map(|field| ((*field).to_owned(), Value::Null))
        .chain(least.as_object().unwrap().clone())
        .collect();
    host.client.post("/v1/templates", &least).await.ok();
    host.client.delete("/v1/templates/fields-least").await;
    for created in [least, nulls] {
        host.client.post("/v1/templates", &created).await.ok();
        let template = host.client.get("/v1/templates/fields-least").await.ok();
        for field in FIELDS {
            assert!(!template[field].is_null(), "{field}: {template}");
        }
        assert_eq!(host.client.delete("/v1/templates/fields-least").await.status, 204);
    }
}

/// The field and the query with the operator's brand exist under both names.
#[tokio::test]
async fn brand() {
    let template = json!({ "id": "branded", "name": "branded", "imageName": "echo:latest" });
    let host = TestHost::start_with(&["--brand", "Acme"]);
    for (client, brand) in [(shared_host().client.clone(), "Runpod"), (host.client(), "Acme")] {
        client.post("/v1/templates", &template).await.ok();
        let shown = client.get("/v1/templates/branded").await.ok();
        assert_eq!(
            (&shown["isPlatform"], &shown[format!("is{brand}")]),
            (&json!(false), &json!(false))
        );
        for flag in ["includePlatformTemplates".to_owned(), format!("include{brand}Templates")] {
            client.get(&format!("/v1/templates/branded?{flag}=true")).await.ok();
            client.get(&format!("/v1/templates/branded?{flag}=maybe")).await.refused(400);
        }
    }
}

/// The reader's own unbound template is always visible; once an endpoint uses it, it needs its
/// flag, and no longer after the endpoint was deleted.
#[tokio::test]
async fn visibility() {
    let endpoint = shared("visible", json!({})).await;
    let path = "/v1/templates/visible";
    endpoint.client.get(path).await.refused(404);
    endpoint.client.get(&format!("{path}?includeEndpointBoundTemplates=true")).await.ok();
    assert_eq!(endpoint.finish(echo()).await["status"], "COMPLETED");
    assert_eq!(endpoint.client.delete("/v1/endpoints/visible").await.status, 204);
    endpoint.client.get(path).await.ok();
}
