//! `GET /v1/templates/{id}`: the documented lookup.

use gristmill_tests::{guests, shared_host};
use serde_json::{Value, json};

/// Whether a value has the documented type.
type IsRight = fn(&Value) -> bool;

const FIELDS: [(&str, IsRight); 19] = [
    ("category", Value::is_string),
    ("containerDiskInGb", Value::is_u64),
    ("containerRegistryAuthId", Value::is_string),
    ("dockerEntrypoint", Value::is_array),
    ("dockerStartCmd", Value::is_array),
    ("earned", Value::is_number),
    ("env", Value::is_object),
    ("id", Value::is_string),
    ("imageName", Value::is_string),
    ("isPlatform", Value::is_boolean),
    ("isPublic", Value::is_boolean),
    ("isRunpod", Value::is_boolean),
    ("isServerless", Value::is_boolean),
    ("name", Value::is_string),
    ("ports", Value::is_array),
    ("readme", Value::is_string),
    ("runtimeInMin", Value::is_u64),
    ("volumeInGb", Value::is_u64),
    ("volumeMountPath", Value::is_string),
];

#[tokio::test]
async fn all_18_fields_are_there_and_the_branded_one_under_both_names() {
    let host = shared_host();
    let full = json!({
        "id": "template-full", "name": "Full template", "imageName": "echo:latest",
        "containerDiskInGb": 5, "volumeInGb": 7, "volumeMountPath": "/grain",
        "containerRegistryAuthId": "auth-1", "dockerEntrypoint": ["mill"],
        "dockerStartCmd": ["--fine"], "env": { "GRAIN": "rye" }, "ports": ["8080/http", "22/tcp"],
        "readme": "# Full", "isPublic": true, "isServerless": false,
    });
    let least = json!({ "id": "template-least", "name": "least", "imageName": "echo:latest" });
    for created in [&full, &least] {
        host.client.post("/v1/templates", created).await.ok();
        let path = format!("/v1/templates/{}", created["id"].as_str().unwrap());
        let template = host.client.get(&path).await.ok();
        let names: Vec<_> = {
            let mut names: Vec<_> = template.as_object().unwrap().keys().cloned().collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names, FIELDS.map(|(name, _)| name), "{template}");
        for (name, is_right) in FIELDS {
            assert!(is_right(&template[name]), "{name}: {template}");
        }
        assert_eq!(template["isPlatform"], template["isRunpod"]);
        for (name, value) in created.as_object().unwrap() {
            assert_eq!(&template[name], value, "{name}: {template}");
        }
        let kind = template["category"].as_str().unwrap();
        assert_eq!(kind, "CPU", "handlers run on processors");
    }
}

#[tokio::test]
async fn a_template_bound_to_an_endpoint_needs_its_flag() {
    let host = shared_host();
    host.deploy(&guests::echo(), "template-bound", json!({})).await;
    let path = "/v1/templates/template-bound";
    host.client.get(path).await.refused(404);
    let other_flags = format!("{path}?includePublicTemplates=true&includePlatformTemplates=true");
    host.client.get(&other_flags).await.refused(404);
    let template =
        host.client.get(&format!("{path}?includeEndpointBoundTemplates=true")).await.ok();
    assert_eq!(template["id"], "template-bound");
    host.client.get(&format!("{path}?includeEndpointBoundTemplates=false")).await.refused(404);

    let free = json!({ "id": "template-free", "name": "free", "imageName": "echo:latest" });
    host.client.post("/v1/templates", &free).await.ok();
    for query in ["", "?includeEndpointBoundTemplates=true", "?includeRunpodTemplates=true"] {
        let template = host.client.get(&format!("/v1/templates/template-free{query}")).await.ok();
        assert_eq!(template["name"], "free");
    }
}

#[tokio::test]
async fn an_invalid_id_is_a_400_and_an_unknown_one_a_404() {
    let host = shared_host();
    for invalid in ["bad.id", "bad%20id", "%C3%A9", "a%2Fb", &"x".repeat(500)] {
        let answer = host.client.get(&format!("/v1/templates/{invalid}")).await;
        answer.refused(400);
    }
    assert!(
        host.client.get("/v1/templates/unknown-one").await.refused(404).contains("unknown-one")
    );
}

#[tokio::test]
async fn a_template_that_cannot_be_is_refused() {
    let host = shared_host();
    let taken = json!({ "id": "template-taken", "name": "taken", "imageName": "echo:latest" });
    host.client.post("/v1/templates", &taken).await.ok();
    let cases = [
        (json!({ "id": "t1", "imageName": "echo:latest" }), "name"),
        (json!({ "id": "t2", "name": "t2" }), "imageName"),
        (json!({ "id": "t 3", "name": "t3", "imageName": "echo:latest" }), "id"),
        (json!({ "id": "t4", "name": "taken", "imageName": "echo:latest" }), "taken"),
        (json!({ "id": "template-taken", "name": "t5", "imageName": "echo:latest" }), "exists"),
        (json!({ "id": "t6", "name": "t6", "imageName": "e:l", "ports": ["99999/udp"] }), "ports"),
        (json!({ "id": "t7", "name": "t7", "imageName": "e:l", "env": { "A": 1 } }), "env"),
    ];
    for (template, word) in cases {
        let answer = host.client.post("/v1/templates", &template).await;
        assert!(answer.refused(400).contains(word), "{template}: {answer:?}");
    }
    for reserved in ["serverless", "templates"] {
        let body = json!({ "id": reserved, "templateId": "template-taken" });
        host.client.post("/v1/endpoints", &body).await.refused(400);
    }
}
