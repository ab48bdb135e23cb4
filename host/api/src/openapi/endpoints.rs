//! The part of the OpenAPI document that a caller with a key sees: `run` and `runsync` of each
//! endpoint whose handler has an input schema, with that schema, so that generated clients have the
//! type of each input.
//!
//! **Bounds.** [`ADDED_BYTES_MAX`] for the operations and their schemas as they are written, in the
//! order of the endpoints' ids. The first endpoint that has no room and all after it are left out;
//! [`LEFT_OUT`] names up to [`LEFT_OUT_MAX`] of them. The memory is some times the answer.
//! **Cost.** Up to some 20 ms for a caller that sees such endpoints, apart from the threads that
//! serve calls, and nothing for others.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use axum::body::Bytes;
use gristmill_core::access::key::{ApiKey, Scope};
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_json_schema::{SchemaText, as_openapi_component};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// Most bytes that are added to the document: some 400 endpoints with small schemas.
const ADDED_BYTES_MAX: usize = 2 << 20;

/// The field with ids of endpoints that have no room in the document.
const LEFT_OUT: &str = "x-endpoints-left-out";

/// Most of these ids.
const LEFT_OUT_MAX: usize = 1_000;

/// The field with the number of endpoints that have no room.
const LEFT_OUT_COUNT: &str = "x-endpoints-left-out-count";

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
    let endpoints = deployments.iter().filter_map(|deployment| {
        Some((deployment.endpoint.id.as_str(), deployment.input_schema.as_ref()?))
    });
    extended(document, endpoints).unwrap_or_else(|| document.clone())
}

/// The fields of an object, with their values as text.
type Fields = BTreeMap<String, Box<RawValue>>;

/// The document with further operations; `None` when it has no place for them.
fn extended<'a>(
    document: &Bytes,
    endpoints: impl Iterator<Item = (&'a str, &'a SchemaText)>,
) -> Option<Bytes> {
    let mut document: Fields = serde_json::from_slice(document).ok()?;
    let mut components: Fields = serde_json::from_str(document.get("components")?.get()).ok()?;
    let schemas = components.get("schemas")?.get().to_owned();
    let paths = document.get("paths")?.get().to_owned();
    let general = general_operations(&paths)?;
    let (mut added, mut left_out, mut left_out_count) = (Added::default(), Vec::new(), 0_u64);
    for (id, schema) in endpoints {
        if left_out_count == 0 && added.add(&general, id, schema) {
            continue;
        }
        left_out_count += 1;
        if left_out.len() < LEFT_OUT_MAX {
            left_out.push(id);
        }
    }
    components.insert("schemas".to_owned(), with_fields(schemas, &added.schemas)?);
    document.insert("components".to_owned(), to_raw_value(&components).ok()?);
    document.insert("paths".to_owned(), with_fields(paths, &added.paths)?);
    if left_out_count > 0 {
        document.insert(LEFT_OUT.to_owned(), to_raw_value(&left_out).ok()?);
        document.insert(LEFT_OUT_COUNT.to_owned(), to_raw_value(&left_out_count).ok()?);
    }
    serde_json::to_vec(&document).ok().map(Bytes::from)
}

/// The paths of the operations of all endpoints, each with its path below an endpoint.
fn general_operations(paths: &str) -> Option<Vec<(&'static str, Map<String, Value>)>> {
    let paths: BTreeMap<String, &RawValue> = serde_json::from_str(paths).ok()?;
    let general = OPERATIONS.into_iter().filter_map(|operation| {
        let path = paths.get(&format!("/v2/{{endpoint}}/{operation}"))?;
        Some((operation, serde_json::from_str(path.get()).ok()?))
    });
    Some(general.collect())
}

/// The text of an object that has fields, with further ones.
fn with_fields(mut object: String, fields: &str) -> Option<Box<RawValue>> {
    let end = object.rfind('}')?;
    object.truncate(end);
    object.push_str(fields);
    object.push('}');
    RawValue::from_string(object).ok()
}

/// The texts of further fields, each after a comma.
#[derive(Default)]
struct Added {
    schemas: String,
    paths: String,
}

impl Added {
    /// Adds an endpoint, if it has room.
    fn add(
        &mut self,
        general: &[(&'static str, Map<String, Value>)],
        id: &str,
        schema: &SchemaText,
    ) -> bool {
        let (schemas, paths) = (self.schemas.len(), self.paths.len());
        let [input, submission] = ["Input", "Submission"].map(|name| format!("{id}.{name}"));
        let place = format!("#/components/schemas/{input}");
        let with_input = json!({
            "allOf": [
                { "$ref": "#/components/schemas/Submission" },
                { "type": "object", "required": ["input"], "properties": { "input": { "$ref": place } } },
            ],
        });
        push(&mut self.schemas, &input, &as_openapi_component(schema.value(), &place));
        push(&mut self.schemas, &submission, &with_input);
        for (operation, item) in general {
            let mut item = item.clone();
            if let Some(post) = member(&mut item, &["post"]) {
                narrow(post, id, &submission);
            }
            push(&mut self.paths, &format!("/v2/{id}/{operation}"), &item.into());
        }
        let has_room = self.schemas.len() + self.paths.len() <= ADDED_BYTES_MAX;
        if !has_room {
            self.schemas.truncate(schemas);
            self.paths.truncate(paths);
        }
        has_room
    }
}

fn push(fields: &mut String, name: &str, value: &Value) {
    // Writing to a string cannot fail.
    let _ = write!(fields, ",{}:{value}", Value::from(name));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Bytes {
        let item = json!({ "post": {
            "operationId": "Run",
            "description": "x".repeat(2_000),
            "requestBody": { "content": { "application/json": {} } },
        } });
        let document = json!({
            "openapi": "3.1.0",
            "components": { "schemas": { "Submission": {} } },
            "paths": { "/v2/{endpoint}/run": item, "/v2/{endpoint}/runsync": item },
        });
        document.to_string().into()
    }

    fn document(ids: &[String], schema: &str) -> (usize, Value) {
        let schema = SchemaText::parse(schema).unwrap();
        let text = extended(&base(), ids.iter().map(|id| (id.as_str(), &schema))).unwrap();
        (text.len(), serde_json::from_slice(&text).unwrap())
    }

    #[test]
    fn the_document_is_bounded_by_what_is_written() {
        let ids: Vec<_> = (0..3_000).map(|n| format!("e{n:04}")).collect();
        // References grow when they get a place in the document.
        let references = vec![json!({ "$ref": "#/$defs/a" }); 2_000];
        let references = json!({ "$defs": { "a": {} }, "anyOf": references }).to_string();
        for (schema, shown) in [("{}", 400..500), (&references, 10..30)] {
            let (bytes, document) = document(&ids, schema);
            assert!(bytes <= ADDED_BYTES_MAX + 32 * 1024, "{bytes}");
            let paths = document["paths"].as_object().unwrap();
            let count = paths.len() / 2 - 1;
            assert!(shown.contains(&count), "{count}");
            assert!(paths.contains_key(&format!("/v2/{}/runsync", ids[count - 1])));
            assert_eq!(document[LEFT_OUT][0], ids[count]);
            assert_eq!(document[LEFT_OUT].as_array().unwrap().len(), LEFT_OUT_MAX);
            assert_eq!(document[LEFT_OUT_COUNT], ids.len() - count);
            let named = document["components"]["schemas"].as_object().unwrap();
            assert_eq!(named.len(), 1 + 2 * count);
        }
        let (_, all) = document(&ids[..3], "{}");
        assert_eq!(all["paths"]["/v2/e0002/run"]["post"]["operationId"], "Run.e0002");
        assert_eq!(all[LEFT_OUT], Value::Null);
    }
}
