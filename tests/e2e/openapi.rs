//! `GET /openapi.json`: the document names every operation, and no other.

use std::collections::{HashMap, HashSet};
use std::fs;

use gristmill_tests::{Client, TestHost, guests, shared_host};
use reqwest::Method;
use serde_json::Value;

const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

/// A client without a key.
fn anonymous(host: &TestHost) -> Client {
    host.client().with_authorization(None)
}

async fn document(host: &TestHost) -> Value {
    anonymous(host).get("/openapi.json").await.ok()
}

/// All `$ref`s below a value.
fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn it_needs_no_key_and_is_whole() {
    let document = document(&shared_host()).await;
    assert_eq!(document["openapi"], "3.1.0");
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(!found.is_empty());
    for reference in found {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} is not in the document");
    }
    let lookup = &document["paths"]["/v1/templates/{templateId}"]["get"];
    assert_eq!(
        (&lookup["operationId"], &lookup["tags"][0]),
        (&"GetTemplate".into(), &"templates".into())
    );
}

#[tokio::test]
async fn the_brand_is_in_it() {
    let host = TestHost::start_with(&["--brand", "Mill"]);
    let document = document(&host).await;
    let template = &document["components"]["schemas"]["Template"];
    assert_eq!(template["properties"]["isMill"], template["properties"]["isPlatform"]);
    assert!(template["required"].as_array().unwrap().contains(&"isMill".into()));
    let parameters = &document["paths"]["/v1/templates"]["get"]["parameters"];
    let names = parameters.as_array().unwrap().iter().map(|parameter| &parameter["name"]);
    assert!(names.into_iter().any(|name| name == "includeMillTemplates"), "{parameters}");
}

#[tokio::test]
async fn the_neutral_brand_adds_nothing() {
    let host = TestHost::start_with(&["--brand", "Platform"]);
    let document = document(&host).await;
    let parameters = &document["paths"]["/v1/templates"]["get"]["parameters"];
    let names: Vec<_> = parameters.as_array().unwrap().iter().map(|p| p["name"].clone()).collect();
    let distinct: HashSet<_> = names.iter().map(Value::to_string).collect();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
}

#[tokio::test]
async fn what_it_names_is_served_and_nothing_else_is() {
    let host = shared_host();
    let client = anonymous(&host);
    let document = document(&host).await;
    let mut names = HashSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let place = path.replace(['{', '}'], "");
        for method in METHODS {
            let request = client
                .request(Method::from_bytes(method.to_uppercase().as_bytes()).unwrap(), &place);
            let answer = client.send(request).await;
            let operation = &item[method];
            if operation.is_null() {
                assert_eq!(answer.status, 405, "{method} {path} is served");
                continue;
            }
            let responses = &operation["responses"];
            let status = answer.status.to_string();
            let is_named = [&*status, "default"].iter().any(|name| responses[name].is_object());
            assert!(is_named, "{answer:?}");
            let is_open = operation["security"] == serde_json::json!([{}]);
            assert_eq!(answer.status, if is_open { 200 } else { 401 }, "{answer:?}");
            let name = operation["operationId"].as_str().unwrap();
            assert!(names.insert(name.to_owned()), "two operations are named {name}");
        }
    }
    for path in document["paths"].as_object().unwrap().keys() {
        if let Some(rest) = path.strip_prefix("/v2/") {
            assert!(document["paths"][format!("/sdk/v2/{rest}")].is_object(), "{path}");
        }
    }
}

/// What the page of the document offers to send works as it is: each operation that takes JSON has a
/// body that fits its example of an endpoint and a template, and the host takes it.
#[tokio::test]
async fn its_examples_work_unedited() {
    let host = TestHost::start();
    let client = host.client();
    let mut left = examples(&document(&host).await);
    // The one thing that the examples need.
    host.upload("echo:latest", fs::read(guests::echo()).unwrap()).await.ok();
    let mut volume = String::new();
    let order = [
        "CreateTemplate",
        "UpdateTemplate",
        "CreateEndpoint",
        "UpdateEndpoint",
        "CreateContainerRegistryAuth",
        "CreateNetworkVolume",
        "UpdateNetworkVolume",
        "CreateKey",
        "Run",
        "RunSync",
        "PostOpenAi",
        "SdkRun",
        "SdkRunSync",
        "SdkPostOpenAi",
        "RollBackEndpoint",
    ];
    for operation in order {
        let (method, mut path, example) = left.remove(operation).unwrap();
        for part in path.clone().split(['{', '}']).skip(1).step_by(2) {
            let value = match (part, operation) {
                ("rest", _) => "v1/chat/completions",
                (_, "UpdateNetworkVolume") => &volume,
                _ => "example",
            };
            path = path.replace(&format!("{{{part}}}"), value);
        }
        if operation == "RollBackEndpoint" {
            // A second release, to go back from.
            host.upload("echo:latest", fs::read(guests::playground()).unwrap()).await.ok();
        }
        let answer = client.send(client.request(method, &path).json(&example)).await.ok();
        match operation {
            "CreateNetworkVolume" => volume = answer["id"].as_str().unwrap().to_owned(),
            "CreateKey" => assert_eq!(answer["scopes"], serde_json::json!(["submit"])),
            "Run" | "SdkRun" => {
                let id = answer["id"].as_str().unwrap();
                let document = client.until("example", id, "COMPLETED").await;
                assert_eq!(document["output"], example["input"]);
            }
            "RunSync" | "SdkRunSync" => assert_eq!(answer["output"], example["input"], "{answer}"),
            _ => {}
        }
    }
    assert!(left.is_empty(), "not sent: {:?}", left.keys());
}

/// Method, path and example of each operation that takes JSON.
fn examples(document: &Value) -> HashMap<String, (Method, String, Value)> {
    let mut found = HashMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for name in METHODS {
            let operation = &item[name];
            let content = &operation["requestBody"]["content"]["application/json"];
            if content.is_object() {
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert!(content["example"].is_object(), "{id} has no example");
                let method = Method::from_bytes(name.to_uppercase().as_bytes()).unwrap();
                found.insert(id, (method, path.clone(), content["example"].clone()));
            }
        }
    }
    found
}

/// A link names an operation, with all that its path needs.
#[tokio::test]
async fn its_links_lead_somewhere() {
    let document = document(&shared_host()).await;
    let paths = document["paths"].as_object().unwrap();
    let operations: HashMap<&str, &str> = paths
        .iter()
        .flat_map(|(path, item)| METHODS.iter().map(move |method| (path, &item[method])))
        .filter_map(|(path, operation)| Some((operation["operationId"].as_str()?, path.as_str())))
        .collect();
    let answers = paths.values().flat_map(|item| {
        METHODS.iter().filter_map(|method| item[method]["responses"]["200"]["links"].as_object())
    });
    let links: Vec<_> = answers.flat_map(|links| links.values()).collect();
    assert!(links.iter().any(|link| link["operationId"] == "SdkRetry"), "{links:?}");
    for link in links {
        let path = operations[link["operationId"].as_str().unwrap()];
        for name in link["parameters"].as_object().unwrap().keys() {
            assert!(path.contains(&format!("{{{name}}}")), "{link} leads to {path}");
        }
        assert_eq!(path.matches('{').count(), link["parameters"].as_object().unwrap().len());
    }
}
