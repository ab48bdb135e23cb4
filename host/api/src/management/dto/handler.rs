//! Uploaded handlers.

use gristmill_core::catalog::{self, Component, Image};
use gristmill_core::digest::ComponentDigest;
use serde::Serialize;
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::wire_time::rfc3339;

/// The answer's form of an uploaded handler.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Handler {
    name: String,
    tag: String,
    /// `name:tag`, the form that templates use.
    image: String,
    #[schema(value_type = schema::Digest)]
    sha256: ComponentDigest,
    size_in_bytes: u64,
    imports: Vec<String>,
    exports: Vec<String>,
    /// The languages that it was written in, from the component's own metadata.
    language: Vec<Producer>,
    /// The tools that it was built with, from the component's own metadata.
    toolchain: Vec<Producer>,
    /// Duration of the compilation in milliseconds.
    compile_ms: u64,
    #[schema(value_type = schema::Time)]
    updated_at: String,
}

/// A language or a tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Producer {
    name: String,
    /// May be empty.
    version: String,
}

fn producers(list: &[catalog::Producer]) -> Vec<Producer> {
    let producer = |producer: &catalog::Producer| Producer {
        name: producer.name.clone(),
        version: producer.version.clone(),
    };
    list.iter().map(producer).collect()
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
            language: producers(&component.producers.languages),
            toolchain: producers(&component.producers.tools),
            compile_ms: component.compile_ms,
            updated_at: rfc3339(image.updated_at),
        }
    }
}
