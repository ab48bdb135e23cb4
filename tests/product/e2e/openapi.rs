//! `GET /openapi.json`: the document lists exactly the operations that exist.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;

use gristmill_tests::{Client, TestHost, guests, reference, shared_host};
use reqwest::Method;
use serde_json::{Value, json};

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
async fn the_document_needs_no_key_and_is_complete() {
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
async fn exactly_the_documented_routes_are_served() {
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

/// The example bodies of the document work unedited: each operation with a JSON body has one that
/// matches its examples of an endpoint and a template, and the host accepts it.
#[tokio::test]
async fn its_examples_work_unedited() {
    let host = TestHost::start();
    let client = host.client();
    let mut left = examples(&document(&host).await);
    // The only prerequisite of the examples.
    host.upload("echo:latest", fs::read(guests::echo()).unwrap()).await.ok();
    // An object that was created has this id, by the path of its list.
    let mut ids: HashMap<String, String> = HashMap::new();
    // What a later round needs exists after the one before.
    while !left.is_empty() {
        let names: BTreeSet<String> = left.keys().cloned().collect();
        for name in &names {
            let (method, path, example) = left[name].clone();
            let list = path.split("/{").next().unwrap();
            let id = ids.get(list).map_or("example", String::as_str);
            let filled = path
                .replace("{rest}", "v1/chat/completions")
                .replace("{id}", id)
                .replace("{templateId}", id)
                .replace("{endpoint}", "example");
            let answer = client.send(client.request(method, &filled).json(&example)).await;
            if answer.status != 200 {
                continue;
            }
            left.remove(name);
            let answer = answer.json();
            match name.as_str() {
                "CreateKey" => assert_eq!(answer["scopes"], json!(["submit"])),
                "Run" | "SdkRun" => {
                    let id = answer["id"].as_str().unwrap();
                    let document = client.until("example", id, "COMPLETED").await;
                    assert_eq!(document["output"], example["input"]);
                }
                "RunSync" | "SdkRunSync" => {
                    assert_eq!(answer["output"], example["input"], "{answer}")
                }
                _ => {}
            }
            if let (false, Some(id)) = (path.contains('{'), answer["id"].as_str()) {
                ids.insert(path, id.to_owned());
            }
        }
        assert!(left.len() < names.len(), "refused: {left:?}");
        if !left.contains_key("Run") {
            // A second release, for a rollback.
            host.upload("echo:latest", fs::read(guests::playground()).unwrap()).await.ok();
        }
    }
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

/// A link names an operation, with all parameters of its path.
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

/// The fields of request bodies without their own bound, with the reason.
const UNBOUNDED: [&str; 2] = [
    "input",        // bounded with the whole body
    "openai_input", // the same
];

/// Whether values of the schema can have any size: texts, lists and maps.
fn can_grow(document: &Value, schema: &Value) -> bool {
    if let Some(reference) = schema["$ref"].as_str() {
        return can_grow(document, document.pointer(reference.strip_prefix('#').unwrap()).unwrap());
    }
    let mut alternatives = ["oneOf", "anyOf", "allOf"]
        .into_iter()
        .flat_map(|kind| schema[kind].as_array().into_iter().flatten());
    let is_text = schema.to_string().contains("\"string\"") && schema["enum"].is_null();
    let is_list = schema["items"].is_object();
    let is_map = schema["additionalProperties"].is_object();
    alternatives.any(|schema| can_grow(document, schema))
        || (schema["properties"].is_null() && (is_text || is_list || is_map))
}

/// Adds to `found` the paths of the fields below a request's schema that can grow without a bound,
/// and to `seen` the names of all that can grow.
fn unbounded(
    document: &Value,
    schema: &Value,
    path: &str,
    found: &mut Vec<String>,
    seen: &mut HashSet<String>,
) {
    if let Some(reference) = schema["$ref"].as_str() {
        let target = document.pointer(reference.strip_prefix('#').unwrap()).unwrap();
        return unbounded(document, target, path, found, seen);
    }
    for alternatives in ["oneOf", "anyOf"] {
        for schema in schema[alternatives].as_array().into_iter().flatten() {
            unbounded(document, schema, path, found, seen);
        }
    }
    // A field of a combined schema is bounded if any part bounds it.
    if let Some(parts) = schema["allOf"].as_array() {
        let mut of_parts = parts.iter().map(|part| {
            let (mut of_part, mut fields) = (Vec::new(), HashSet::new());
            unbounded(document, part, path, &mut of_part, &mut fields);
            seen.extend(fields.iter().cloned());
            (of_part, fields)
        });
        let (first, fields) = of_parts.next().unwrap();
        found.extend(first);
        let later = of_parts.flat_map(|(of_part, _)| of_part);
        found.extend(later.filter(|field| !fields.iter().any(|name| field.ends_with(name))));
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect::<Vec<_>>(),
    };
    let has = |bound: &str| schema[bound].is_u64();
    let is_binary = schema["format"] == "binary";
    if types.contains(&"string") && !has("maxLength") && schema["enum"].is_null() && !is_binary {
        found.push(path.to_owned());
    }
    if types.contains(&"array") {
        if !has("maxItems") {
            found.push(format!("{path}[]"));
        }
        unbounded(document, &schema["items"], &format!("{path}[]"), found, seen);
    }
    if types.contains(&"object") {
        let fields = schema["properties"].as_object();
        let is_map = fields.is_none_or(serde_json::Map::is_empty);
        let names = &schema["propertyNames"];
        if is_map
            && !(has("maxProperties") && (names["maxLength"].is_u64() || names["enum"].is_array()))
        {
            found.push(format!("{path}{{}}"));
        }
        if is_map && schema["additionalProperties"].is_object() {
            unbounded(
                document,
                &schema["additionalProperties"],
                &format!("{path}{{}}"),
                found,
                seen,
            );
        }
        for (name, field) in fields.into_iter().flatten() {
            if UNBOUNDED.contains(&name.as_str()) {
                continue;
            }
            if can_grow(document, field) {
                seen.insert(name.clone());
            }
            unbounded(document, field, &format!("{path}.{name}"), found, seen);
        }
    }
}

/// The bounds of an endpoint's numbers are those of the console's form.
#[tokio::test]
async fn the_numbers_of_an_endpoint_are_those_of_the_form() {
    let document = document(&shared_host()).await;
    let form = reference::read("host/console/assets/ui/settings_form.js");
    let fields = &document["components"]["schemas"]["EndpointInput"]["properties"];
    let mut numbers = 0;
    for (name, field) in fields.as_object().unwrap() {
        let schema = &field["oneOf"][0];
        // The form has a check of its own for numbers that JavaScript cannot have.
        if schema["type"] != "integer" || name == "maxFuel" {
            continue;
        }
        numbers += 1;
        let (min, max) = (&schema["minimum"], &schema["maximum"]);
        let entry = form.split(&format!("['{name}', ")).nth(1);
        let entry = entry.and_then(|entry| entry.split_once(']')).map(|(entry, _)| entry);
        let bounds = format!("[{min}, {max}");
        assert!(entry.is_some_and(|entry| entry.ends_with(&bounds)), "{name}: {bounds}] {entry:?}");
    }
    assert!(numbers >= 7, "{fields}");
}

/// Every text, list and map of a submission or a management call has a bound.
#[tokio::test]
async fn every_field_that_is_kept_has_a_bound() {
    let document = document(&shared_host()).await;
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    for (path, item) in document["paths"].as_object().unwrap() {
        for operation in METHODS.iter().map(|method| &item[*method]) {
            let content = operation["requestBody"]["content"].as_object();
            // The body of an OpenAI call is one value for the handler, bounded as a whole.
            for (_, content) in content.into_iter().flatten().filter(|_| !path.contains("/openai/"))
            {
                unbounded(&document, &content["schema"], path, &mut found, &mut seen);
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                if parameter["name"] == "Idempotency-Key" {
                    let path = format!("{path} {}", parameter["name"]);
                    unbounded(&document, &parameter["schema"], &path, &mut found, &mut seen);
                }
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    assert!(found.is_empty(), "without a bound: {found:#?}");
    assert!(seen.contains("webhook") && seen.contains("allowedHosts"), "{seen:?}");
}

/// A value just beyond each bound is refused, with a sentence that names the field and the bound.
#[tokio::test]
async fn values_beyond_their_bounds_are_refused_by_name() {
    let host = shared_host();
    let template = |field: &str, value: Value| {
        let mut body = json!({ "name": "too-large", "imageName": "none:latest" });
        body[field] = value;
        ("/v1/templates", field.to_owned(), body)
    };
    let endpoint = |field: &str, value: Value| {
        let mut body = json!({ "templateId": "none" });
        body[field] = value;
        ("/v1/endpoints", field.to_owned(), body)
    };
    let text = |chars: usize| json!("é".repeat(chars));
    let many = |count: usize| (0..count).map(|n| format!("a{n}")).collect::<Vec<_>>();
    let variables: BTreeMap<_, _> = many(257).into_iter().map(|name| (name, "")).collect();
    let cases = [
        (template("imageName", text(1_025)), "1024"),
        (template("readme", text(65_537)), "65536"),
        (template("dockerEntrypoint", json!(many(257))), "256"),
        (template("dockerStartCmd", json!(["x".repeat(16_385)])), "16384"),
        (template("ports", json!(vec!["1/tcp"; 257])), "256"),
        (template("env", json!(variables)), "256"),
        (template("env", json!({ "A": "x".repeat(32_769) })), "32768"),
        (template("env", json!({ ("A".repeat(257)): "" })), "256"),
        (endpoint("allowedHosts", json!(many(257))), "256"),
        (endpoint("allowedHosts", json!([format!("{}.example", "x".repeat(300))])), "300"),
        (("/v1/keys", "scopes".to_owned(), json!({ "name": "k", "scopes": vec!["read"; 6] })), "5"),
        (
            (
                "/v1/keys",
                "endpoints".to_owned(),
                json!({ "name": "k", "scopes": ["read"], "endpoints": many(1_001) }),
            ),
            "1000",
        ),
        (
            (
                "/v1/networkvolumes",
                "dataCenterId".to_owned(),
                json!({ "name": "v", "size": 1, "dataCenterId": "x".repeat(129) }),
            ),
            "128",
        ),
    ];
    host.client
        .post("/v1/templates", &json!({ "id": "none", "name": "none", "imageName": "none:latest" }))
        .await;
    for ((path, field, body), bound) in cases {
        let refused = host.client.post(path, &body).await.refused(400);
        assert!(refused.contains(&field) && refused.contains(bound), "{path} {field}: {refused}");
        assert!(refused.len() < 1_000, "{field}: a sentence, not the value");
    }
}
