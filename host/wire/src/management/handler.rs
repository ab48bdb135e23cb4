//! Uploaded handlers.

use serde::{Deserialize, Serialize};

#[cfg(feature = "openapi")]
use crate::schema;

/// The answer's form of an uploaded handler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Handler {
    /// The part of the name before the colon.
    pub name: String,
    /// The part of the name behind the colon.
    pub tag: String,
    /// `name:tag`, the form that templates use.
    pub image: String,
    /// Of the component's bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Digest))]
    pub sha256: String,
    /// Size of the component.
    pub size_in_bytes: u64,
    /// The interfaces that the component imports.
    pub imports: Vec<String>,
    /// The interfaces that the component exports.
    pub exports: Vec<String>,
    /// The languages that it was written in, from the component's own metadata. Python and
    /// JavaScript are recognised by their engines.
    pub language: Vec<Producer>,
    /// The tools that it was built with, from the component's own metadata.
    pub toolchain: Vec<Producer>,
    /// Duration of the compilation in milliseconds.
    pub compile_ms: u64,
    /// When the name was last given to a component.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub updated_at: String,
}

/// A language or a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Producer {
    /// Its name.
    pub name: String,
    /// May be empty.
    pub version: String,
}
