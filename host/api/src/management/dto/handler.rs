//! Uploaded handlers.

use gristmill_core::catalog::{self, Component, Image};
use gristmill_wire::management::{Handler, Producer};

use crate::answer::wire_time::rfc3339;

fn producers(list: &[catalog::Producer]) -> Vec<Producer> {
    let producer = |producer: &catalog::Producer| Producer {
        name: producer.name.clone(),
        version: producer.version.clone(),
    };
    list.iter().map(producer).collect()
}

/// The answer's form of an uploaded handler.
pub(crate) fn handler(image: &Image, component: &Component) -> Handler {
    Handler {
        name: image.name.clone(),
        tag: image.tag.clone(),
        image: image.reference(),
        sha256: component.digest.to_string(),
        size_in_bytes: component.bytes,
        imports: component.imports.clone(),
        exports: component.exports.clone(),
        language: producers(&component.producers.languages),
        toolchain: producers(&component.producers.tools),
        compile_ms: component.compile_ms,
        updated_at: rfc3339(image.updated_at),
    }
}
