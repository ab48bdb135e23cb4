//! The equality of JSON values.

use serde_json::Value;

use crate::number::Num;

/// Bytes that are the same for equal values: 1 and 1.0 are equal, and so are objects with the same
/// fields in another order. Lengths stand before what they count, so that other values have other
/// bytes.
pub(crate) fn canonical(value: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_canonical(value, &mut bytes);
    bytes
}

fn write_canonical(value: &Value, bytes: &mut Vec<u8>) {
    match value {
        Value::Null => bytes.push(b'0'),
        Value::Bool(is_true) => bytes.push(if *is_true { b't' } else { b'f' }),
        Value::Number(number) => match Num::of(number) {
            Num::Whole(whole) => {
                bytes.push(b'w');
                bytes.extend_from_slice(&whole.to_le_bytes());
            }
            Num::Part(part) => {
                bytes.push(b'p');
                bytes.extend_from_slice(&part.to_bits().to_le_bytes());
            }
        },
        Value::String(string) => {
            bytes.push(b's');
            write_text(string, bytes);
        }
        Value::Array(items) => {
            bytes.push(b'[');
            bytes.extend_from_slice(&items.len().to_le_bytes());
            items.iter().for_each(|item| write_canonical(item, bytes));
        }
        Value::Object(fields) => {
            bytes.push(b'{');
            bytes.extend_from_slice(&fields.len().to_le_bytes());
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_unstable_by_key(|(name, _)| *name);
            for (name, field) in fields {
                write_text(name, bytes);
                write_canonical(field, bytes);
            }
        }
    }
}

fn write_text(text: &str, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&text.len().to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}
