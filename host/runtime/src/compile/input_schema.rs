//! The schema of a handler's input in the custom section of its component.

use gristmill_json_schema::{InvalidSchema, SchemaText};
use wasm_encoder::{CustomSection, Section as _};
use wasmparser::{Parser, Payload};

/// The custom section of a component with its schema, as JSON text. If there are several, the last
/// one counts, so that a tool can replace the schema by appending a section.
pub(crate) const SECTION: &str = "gristmill:input-schema";

/// Why the schema of a component cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableSchema {
    /// Its bytes are no text.
    #[error("it is not UTF-8")]
    NotText,
    /// It is no schema that the host can check.
    #[error(transparent)]
    Invalid(#[from] InvalidSchema),
}

/// Reads the schema of a component. Sections of nested components and modules are not its own.
///
/// # Errors
/// [`UnusableSchema`].
pub fn input_schema(component: &[u8]) -> Result<Option<SchemaText>, UnusableSchema> {
    let mut depth = 0_usize;
    let mut last = None;
    for payload in Parser::new(0).parse_all(component).map_while(Result::ok) {
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::CustomSection(section) if depth == 0 && section.name() == SECTION => {
                last = Some(section.data());
            }
            _ => {}
        }
    }
    let Some(bytes) = last else { return Ok(None) };
    let text = std::str::from_utf8(bytes).map_err(|_| UnusableSchema::NotText)?;
    Ok(Some(SchemaText::parse(text)?))
}

/// The component with this schema, which replaces one that it has: the last section counts.
pub fn with_input_schema(component: &[u8], schema: &SchemaText) -> Vec<u8> {
    let mut bytes = component.to_vec();
    let data = schema.as_str().as_bytes().into();
    CustomSection { name: SECTION.into(), data }.append_to(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(schema: &str) -> String {
        format!("(@custom \"{SECTION}\" {schema:?})")
    }

    fn read(component: &str) -> Result<Option<String>, UnusableSchema> {
        let found = input_schema(&wat::parse_str(format!("(component {component})")).unwrap())?;
        Ok(found.map(|schema| schema.as_str().to_owned()))
    }

    #[test]
    fn the_last_section_of_the_component_itself_counts() {
        assert_eq!(read(""), Ok(None));
        assert_eq!(read(&format!("(component {})", section("{}"))), Ok(None));
        let after_a_part = format!("(core module) (component) {}", section("{}"));
        assert_eq!(read(&after_a_part), Ok(Some("{}".to_owned())));
        let two = format!("{}{}", section("false"), section("true"));
        assert_eq!(read(&two), Ok(Some("true".to_owned())));
        let refused = read(&section("{")).unwrap_err().to_string();
        assert!(refused.contains("not JSON"), "{refused}");
    }

    #[test]
    fn a_schema_can_be_added_and_replaced() {
        let mut component = wat::parse_str("(component (core module))").unwrap();
        for description in ["a".to_owned(), "b".repeat(300)] {
            let text = format!("{{\"description\":\"{description}\"}}");
            let schema = SchemaText::parse(&text).unwrap();
            component = with_input_schema(&component, &schema);
            assert_eq!(input_schema(&component), Ok(Some(schema)));
        }
    }
}
