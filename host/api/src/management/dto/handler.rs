//! Uploaded handlers.

use gristmill_core::catalog::{Component, Image};
use gristmill_core::endpoint::ComponentDigest;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::wire_time::rfc3339;

/// An uploaded handler as it is shown.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Handler {
    name: String,
    tag: String,
    /// `name:tag`, as templates name it.
    image: String,
    #[schema(value_type = schema::Digest)]
    sha256: ComponentDigest,
    size_in_bytes: u64,
    imports: Vec<String>,
    exports: Vec<String>,
    /// Milliseconds that compiling took.
    compile_ms: u64,
    #[schema(value_type = schema::Time)]
    updated_at: String,
}

impl Handler {
    pub(crate) fn new(image: &Image, component: &Component) -> Self {
        Self {
            name: image.name.clone(),
            tag: image.tag.clone(),
            image: image.reference(),
            sha256: component.digest,
            size_in_bytes: component.bytes,
            imports: component.imports.clone(),
            exports: component.exports.clone(),
            compile_ms: component.compile_ms,
            updated_at: rfc3339(image.updated_at),
        }
    }
}
