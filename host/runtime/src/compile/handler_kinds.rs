//! The kinds of handlers in a component, read from its exports without a compile.

use gristmill_core::deploy::handler_kind::HandlerKind;
use wasmparser::{Parser, Payload};

/// The kinds that a component has; none for bytes that are no component.
pub fn handler_kinds(component: &[u8]) -> Vec<HandlerKind> {
    HandlerKind::of(&exports(component))
}

fn exports(component: &[u8]) -> Vec<String> {
    let mut depth = 0_u32;
    let mut exports = Vec::new();
    for payload in Parser::new(0).parse_all(component) {
        match payload {
            Ok(Payload::ModuleSection { .. } | Payload::ComponentSection { .. }) => depth += 1,
            // The last one is that of the component itself.
            Ok(Payload::End(_)) => depth = depth.saturating_sub(1),
            Ok(Payload::ComponentExportSection(section)) if depth == 0 => {
                exports.extend(section.into_iter().flatten().map(|it| it.name.name.to_owned()));
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    exports
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::guest;

    #[test]
    fn only_the_components_own_exports_count() {
        assert_eq!(handler_kinds(&guest("unreachable")), [HandlerKind::Jobs]);
        let http = r#"(instance $i) (export "wasi:http/incoming-handler@0.2.3" (instance $i))"#;
        let kinds = |text: String| handler_kinds(&wat::parse_str(text).unwrap());
        assert_eq!(kinds(format!("(component {http})")), [HandlerKind::Http]);
        assert_eq!(kinds(format!("(component (component {http}) (core module))")), []);
        let behind = format!("(component (component) (core module) {http})");
        assert_eq!(kinds(behind), [HandlerKind::Http]);
        assert_eq!(handler_kinds(b"no component"), []);
    }
}
