//! The number of items in a component: a bound on what the host decodes when it loads the compiled
//! component. Reads the headers of sections only, so it takes microseconds per megabyte.

use wasmparser::{BinaryReaderError, Parser, Payload};

/// Counts the entries of all sections of a component, of its modules and of the components in it,
/// except code. An entry with parts of its own, such as a type with many parameters, counts once.
///
/// # Errors
/// When the bytes are no component.
pub(crate) fn count_items(component: &[u8]) -> Result<u64, BinaryReaderError> {
    let mut items = 0_u64;
    for payload in Parser::new(0).parse_all(component) {
        items += u64::from(match payload? {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_all_sections_and_all_nested_parts_are_counted() {
        let count = |text: &str| count_items(&wat::parse_str(text).unwrap()).unwrap();
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
        assert!(count_items(b"\0asm\x0d\0\x01\0\x01\xff").is_err(), "cut off");
    }
}
