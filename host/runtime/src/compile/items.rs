//! The number of items in a component: a bound on what the host decodes when it loads the compiled
//! component. Reads the headers of sections, and the segments of elements, so it takes microseconds
//! per megabyte.

use wasmparser::{
    BinaryReaderError, ElementItems, ElementKind, ElementSectionReader, Parser, Payload,
};

/// What a component consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Items {
    /// The entries of all sections of the component, of its modules and of the components in it,
    /// except code. An entry with parts of its own, such as a type with many parameters, counts
    /// once.
    pub(crate) all: u64,
    /// The elements of passive segments; every instance has a copy of them.
    pub(crate) passive_elements: u64,
}

/// Counts the items of a component.
///
/// # Errors
/// When the bytes are no component.
pub(crate) fn count_items(component: &[u8]) -> Result<Items, BinaryReaderError> {
    let mut items = Items::default();
    for payload in Parser::new(0).parse_all(component) {
        let payload = payload?;
        if let Payload::ElementSection(section) = &payload {
            items.passive_elements += passive_elements(section.clone())?;
        }
        items.all += u64::from(match payload {
            Payload::TypeSection(section) => section.count(),
            Payload::ImportSection(section) => section.count(),
            Payload::FunctionSection(section) => section.count(),
            Payload::TableSection(section) => section.count(),
            Payload::MemorySection(section) => section.count(),
            Payload::TagSection(section) => section.count(),
            Payload::GlobalSection(section) => section.count(),
            Payload::ExportSection(section) => section.count(),
            Payload::ElementSection(section) => section.count(),
            Payload::DataSection(section) => section.count(),
            Payload::InstanceSection(section) => section.count(),
            Payload::CoreTypeSection(section) => section.count(),
            Payload::ComponentInstanceSection(section) => section.count(),
            Payload::ComponentAliasSection(section) => section.count(),
            Payload::ComponentTypeSection(section) => section.count(),
            Payload::ComponentCanonicalSection(section) => section.count(),
            Payload::ComponentImportSection(section) => section.count(),
            Payload::ComponentExportSection(section) => section.count(),
            _ => 0,
        });
    }
    Ok(items)
}

fn passive_elements(section: ElementSectionReader<'_>) -> Result<u64, BinaryReaderError> {
    let mut sum = 0;
    for segment in section {
        let segment = segment?;
        if matches!(segment.kind, ElementKind::Passive) {
            sum += u64::from(match segment.items {
                ElementItems::Functions(items) => items.count(),
                ElementItems::Expressions(_, items) => items.count(),
            });
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_all_sections_and_all_nested_parts_are_counted() {
        let count = |text: &str| count_items(&wat::parse_str(text).unwrap()).unwrap().all;
        assert_eq!(count("(component)"), 0);
        // A type, an import, a function, a table, a memory, a global, an export, two segments.
        let module = r#"(core module
            (import "a" "b" (func))
            (func $f)
            (table 1 funcref)
            (memory 1)
            (global i32 (i32.const 0))
            (export "f" (func $f))
            (elem (i32.const 0) func $f)
            (data (i32.const 0) "x"))"#;
        assert_eq!(count(&format!("(component {module})")), 9);
        let nested = format!("(component {module} (component {module} {module}))");
        assert_eq!(count(&nested), 27);
        let own = r#"(component (core module $m) (core instance (instantiate $m))
            (type (func)) (import "i" (instance)))"#;
        // The type of the import is one more.
        assert_eq!(count(own), 4);
        let segments = r#"(component (core module (func $f) (table 9 funcref)
            (elem func $f $f $f) (elem funcref (ref.null func) (ref.func $f))
            (elem (i32.const 0) func $f $f) (elem declare func $f)))"#;
        let items = count_items(&wat::parse_str(segments).unwrap()).unwrap();
        assert_eq!(items.passive_elements, 5, "neither active ones nor declarations");
        assert!(count_items(b"\0asm\x0d\0\x01\0\x01\xff").is_err(), "cut off");
    }
}
