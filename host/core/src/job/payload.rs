//! JSON values that the host passes on without parsing: they are kept as text, so that the order of
//! keys and integers beyond 2^53 survive.

use std::fmt;
use std::str;

use bytes::Bytes;
use gristmill_json_schema::is_nested_deeper;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::limits::JSON_NESTING_MAX;

/// One JSON value as UTF-8 text. A clone shares the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Bytes);

/// Why a text is not a single JSON value.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct InvalidJson(#[from] serde_json::Error);

/// Why a JSON value cannot be the input of a job. The sentence follows a name of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidInput {
    /// It is no object.
    #[error("must be a JSON object")]
    Kind,
    /// Parsers of handlers and clients may refuse it.
    #[error("must not be nested deeper than {JSON_NESTING_MAX} levels")]
    Nesting,
}

/// Checks that a job may have `text`, a single JSON value, as its input.
///
/// # Errors
/// [`InvalidInput`].
pub fn check_input(text: &str) -> Result<(), InvalidInput> {
    if !text.starts_with('{') {
        return Err(InvalidInput::Kind);
    }
    match is_nested_deeper(text, JSON_NESTING_MAX) {
        true => Err(InvalidInput::Nesting),
        false => Ok(()),
    }
}

impl Json {
    /// Checks that `text` is a single JSON value and keeps it, without surrounding white space.
    ///
    /// # Errors
    /// [`InvalidJson`] with the line and column of the first mistake.
    pub fn parse(text: impl Into<Bytes>) -> Result<Self, InvalidJson> {
        let text = text.into();
        let raw: &RawValue = serde_json::from_slice(&text)?;
        let value = raw.get().as_bytes();
        // A slice of all bytes would allocate a reference count.
        Ok(Self(if value.len() == text.len() { text } else { text.slice_ref(value) }))
    }

    /// Keeps a part of `body` that serde has recognised as one JSON value. A small value is copied:
    /// a slice would keep the connection's whole read buffer, 8 KiB, in memory for as long as the
    /// job's input is cached, and the next calls would need a new buffer.
    ///
    /// # Panics
    /// When `raw` is not small and does not lie inside `body`.
    pub fn from_raw_part(body: &Bytes, raw: &RawValue) -> Self {
        const COPY_BYTES_MAX: usize = 2 << 10;
        let text = raw.get().as_bytes();
        Self(if text.len() <= COPY_BYTES_MAX {
            Bytes::copy_from_slice(text)
        } else {
            body.slice_ref(text)
        })
    }

    /// Keeps bytes that this type has written, such as a row of the store.
    pub fn from_stored(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        debug_assert!(serde_json::from_slice::<&RawValue>(&bytes).is_ok(), "stored JSON is intact");
        Self(bytes)
    }

    /// Serialises a value as JSON.
    ///
    /// # Panics
    /// When the value cannot be JSON, such as a map with keys that are not strings.
    pub fn from_value(value: &impl serde::Serialize) -> Self {
        Self(serde_json::to_vec(value).expect("the platform's own values are JSON").into())
    }

    /// The value `null`.
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.0.as_ref() == b"null"
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).expect("JSON was checked to be UTF-8 when it came in")
    }

    /// The text as shared bytes.
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Length of the text in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never true: the shortest JSON value has one byte.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Deserialises the value into a type.
    ///
    /// # Errors
    /// When the value does not have the structure of the type.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T, InvalidJson> {
        Ok(serde_json::from_slice(&self.0)?)
    }
}

impl fmt::Debug for Json {
    // Payloads may be secret or large; logs show their size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_survives_to_the_byte() {
        let text = r#"{"z":9007199254740993,"a":[1.0,1e2],"é":"\u00e9"}"#;
        let json = Json::parse(format!("  {text}\n")).unwrap();
        assert_eq!(json.as_str(), text);
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("{\"a\":}", "expected value at line 1 column 6"),
            ("1 2", "trailing characters at line 1 column 3"),
        ];
        for (text, complaint) in cases {
            assert_eq!(Json::parse(text.to_owned()).unwrap_err().to_string(), complaint);
        }
        assert!(Json::parse(&b"\"\xff\""[..]).is_err());
    }
}
