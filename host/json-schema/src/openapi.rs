//! A schema as a component of an OpenAPI document.

use serde_json::Value;

/// Keywords whose value is a schema, or a list of schemas.
const SCHEMAS: [&str; 14] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "oneOf",
    "prefixItems",
    "propertyNames",
    "then",
    "contentSchema",
];

/// Keywords whose value has schemas as its fields.
const MAPS: [&str; 6] =
    ["$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"];

/// Makes a schema a part of another document: references, which begin at the top of the schema,
/// begin at `place` instead, such as `#/components/schemas/Input`.
#[must_use]
pub fn as_openapi_component(mut schema: Value, place: &str) -> Value {
    if let Value::Object(keywords) = &mut schema {
        keywords.remove("$id");
        keywords.remove("$schema");
    }
    move_references(&mut schema, place);
    schema
}

fn move_references(schema: &mut Value, place: &str) {
    let Value::Object(keywords) = schema else { return };
    for (name, value) in keywords {
        match (name.as_str(), value) {
            ("$ref", Value::String(reference)) => {
                if let Some(pointer) = reference.strip_prefix('#') {
                    *reference = format!("{place}{pointer}");
                }
            }
            (name, Value::Object(fields)) if MAPS.contains(&name) => {
                fields.values_mut().for_each(|part| move_references(part, place));
            }
            (name, Value::Array(parts)) if SCHEMAS.contains(&name) => {
                parts.iter_mut().for_each(|part| move_references(part, place));
            }
            (name, part) if SCHEMAS.contains(&name) => move_references(part, place),
            _ => {}
        }
    }
}
