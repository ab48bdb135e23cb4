//! The part of the OpenAPI document that a caller with a key sees: `run` and `runsync` of each endpoint whose
//! handler has an input schema, with that schema, so that generated clients have the type of each input.
//!
//! **Bounds.** [`SCHEMA_BYTES_MAX`] of schemas, in the order of the endpoints' ids. The endpoints beyond it
//! are named under [`LEFT_OUT`].
//! **Cost.** Some milliseconds for a caller that sees such endpoints, and nothing for others.

use std::sync::Arc;

use axum::body::Bytes;
use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::deploy::input_schema::{SchemaText, as_openapi_component};
use serde_json::{Map, Value, json};

/// Most bytes of schemas in a document.
const SCHEMA_BYTES_MAX: usize = 1 << 20;

/// The field with the ids of endpoints whose schemas have no room in the document.
const LEFT_OUT: &str = "x-endpoints-left-out";

/// The operations that take an input, and their paths below an endpoint.
const OPERATIONS: [&str; 2] = ["run", "runsync"];

/// The source of an endpoint's id in links.
const ID_OF_PATH: &str = "$request.path.endpoint";

/// The endpoints with a schema to which the key may submit jobs, by id.
pub(super) fn with_schemas(
    deployments: impl IntoIterator<Item = Arc<Deployment>>,
    key: &ApiKey,
) -> Vec<Arc<Deployment>> {
    let may_submit =
        |deployment: &Arc<Deployment>| key.allows(Scope::Submit, Some(&deployment.endpoint.id));
    let has_schema = |deployment: &Arc<Deployment>| deployment.input_schema.is_some();
    let found = deployments.into_iter().filter(has_schema).filter(may_submit);
    let mut found: Vec<_> = found.collect();
    found.sort_by(|a, b| a.endpoint.id.as_str().cmp(b.endpoint.id.as_str()));
    found
}

/// The document with the operations of these endpoints.
pub(super) fn add(document: &Bytes, deployments: &[Arc<Deployment>]) -> Bytes {
    let Ok(Value::Object(mut document)) = serde_json::from_slice(document) else {
        return document.clone();
    };
    let mut left = SCHEMA_BYTES_MAX;
    let mut left_out = Vec::new();
    for deployment in deployments {
        let Some(schema) = &deployment.input_schema else { continue };
        let id = deployment.endpoint.id.as_str();
        match left.checked_sub(schema.as_str().len()) {
            Some(rest) => {
                left = rest;
                add_endpoint(&mut document, id, schema);
            }
            None => left_out.push(Value::from(id)),
        }
    }
    if !left_out.is_empty() {
        document.insert(LEFT_OUT.to_owned(), left_out.into());
    }
    Value::Object(document).to_string().into()
}

fn add_endpoint(document: &mut Map<String, Value>, id: &str, schema: &SchemaText) {
    let [input, submission] = ["Input", "Submission"].map(|name| format!("{id}.{name}"));
    let place = format!("#/components/schemas/{input}");
    let with_input = json!({
        "allOf": [
            { "$ref": "#/components/schemas/Submission" },
            { "type": "object", "required": ["input"], "properties": { "input": { "$ref": place } } },
        ],
    });
    if let Some(schemas) = member(document, &["components", "schemas"]) {
        schemas.insert(input, as_openapi_component(schema.value(), &place));
        schemas.insert(submission.clone(), with_input);
    }
    let Some(paths) = member(document, &["paths"]) else { return };
    for operation in OPERATIONS {
        let Some(Value::Object(general)) = paths.get(&format!("/v2/{{endpoint}}/{operation}"))
        else {
            continue;
        };
        let mut item = general.clone();
        if let Some(post) = member(&mut item, &["post"]) {
            narrow(post, id, &submission);
        }
        paths.insert(format!("/v2/{id}/{operation}"), item.into());
    }
}

/// Makes an operation of all endpoints that of one.
fn narrow(operation: &mut Map<String, Value>, id: &str, submission: &str) {
    if let Some(Value::String(name)) = operation.get_mut("operationId") {
        name.push('.');
        name.push_str(id);
    }
    if let Some(Value::Array(parameters)) = operation.get_mut("parameters") {
        parameters.retain(|parameter| parameter.get("in") != Some(&"path".into()));
    }
    if let Some(body) = member(operation, &["requestBody", "content", "application/json"]) {
        let schema = json!({ "$ref": format!("#/components/schemas/{submission}") });
        *body = Map::from_iter([("schema".to_owned(), schema)]);
    }
    operation.values_mut().for_each(|part| name_endpoint(part, id));
}

/// Replaces the id in the path, which is not there any more.
fn name_endpoint(part: &mut Value, id: &str) {
    match part {
        Value::String(text) if text == ID_OF_PATH => id.clone_into(text),
        Value::Array(parts) => parts.iter_mut().for_each(|part| name_endpoint(part, id)),
        Value::Object(parts) => parts.values_mut().for_each(|part| name_endpoint(part, id)),
        _ => {}
    }
}

/// The object at a path of fields.
fn member<'v>(of: &'v mut Map<String, Value>, path: &[&str]) -> Option<&'v mut Map<String, Value>> {
    path.iter().try_fold(of, |object, name| object.get_mut(*name)?.as_object_mut())
}
