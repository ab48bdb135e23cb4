//! The equality of JSON values.

use std::fmt::Write as _;

use serde_json::Value;

use super::number::Num;

/// A text that is the same for equal values: 1 and 1.0 are equal, and so are objects with the same fields
/// in another order.
pub(super) fn canonical(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    text
}

fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Number(number) => {
            // Writing to a string cannot fail.
            let _ = write!(text, "{}", Num::of(number));
        }
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(fields) => {
            let mut names: Vec<_> = fields.iter().collect();
            names.sort_by_key(|(name, _)| *name);
            text.push('{');
            for (name, field) in names {
                let _ = write!(text, "{name:?}:");
                write_canonical(field, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::String(string) => {
            let _ = write!(text, "{string:?}");
        }
        Value::Null | Value::Bool(_) => {
            let _ = write!(text, "{value}");
        }
    }
}
