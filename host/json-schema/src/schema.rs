//! The text of a schema, and its check of an input.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::compile::compile;
use crate::evaluate::{Budget, NotChecked, evaluate};
use crate::rules::InputSchema;
use crate::text::is_nested_deeper;

/// Most bytes of a schema.
pub(crate) const SCHEMA_BYTES_MAX: usize = 64 << 10;

/// Deepest nesting of objects and lists in a schema.
pub(crate) const SCHEMA_LEVELS_MAX: usize = 64;

/// The text of a valid schema. A clone shares it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SchemaText(Arc<str>);

impl SchemaText {
    /// Keeps a text that describes an input.
    ///
    /// # Errors
    /// [`InvalidSchema`] with the position of the fault in the schema.
    pub fn parse(text: &str) -> Result<Self, InvalidSchema> {
        InputSchema::parse(text)?;
        Ok(Self(text.trim().into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The schema as a value, for documents.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl std::fmt::Debug for SchemaText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SchemaText({} bytes)", self.0.len())
    }
}

/// Why a text is not the schema of an input.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidSchema(String);

impl InputSchema {
    /// Reads a schema.
    ///
    /// # Errors
    /// [`InvalidSchema`] with the position of the fault in the schema.
    pub fn parse(text: &str) -> Result<Self, InvalidSchema> {
        let refused = |why: String| Err(InvalidSchema(why));
        if text.len() > SCHEMA_BYTES_MAX {
            return refused(format!(
                "it has {} bytes; at most {SCHEMA_BYTES_MAX} are allowed",
                text.len()
            ));
        }
        if is_nested_deeper(text, SCHEMA_LEVELS_MAX) {
            return refused(format!("it is nested deeper than {SCHEMA_LEVELS_MAX} levels"));
        }
        match serde_json::from_str(text) {
            Ok(schema) => compile(&schema, text.len()).map_err(InvalidSchema),
            Err(error) => refused(format!("it is not JSON: {error}")),
        }
    }

    /// About the bytes of memory that it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks an input, which is JSON text, within a number of steps.
    ///
    /// # Errors
    /// [`NotChecked::Invalid`] with the first fault; [`NotChecked::Exhausted`] when the steps are
    /// not enough.
    pub fn check(&self, input: &str, budget: Budget) -> Result<(), NotChecked> {
        if !budget.admits(input) {
            return Err(NotChecked::Exhausted);
        }
        // JSON may have values that no program can hold: `1e400`, half of a surrogate pair, and the
        // deepest permitted nesting.
        match serde_json::from_str(input) {
            Ok(value) => self.check_value("input", &value, budget),
            Err(error) => Err(NotChecked::Invalid(format!("`input` cannot be checked: {error}"))),
        }
    }

    /// Checks a value that is already parsed; a fault calls it `name`.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn check_value(&self, name: &str, value: &Value, budget: Budget) -> Result<(), NotChecked> {
        evaluate(self, name, value, budget)
    }
}
