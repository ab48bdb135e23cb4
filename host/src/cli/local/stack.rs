//! The stack of a handler that trapped, in readable form.

use gristmill_core::runtime::{SourceLocation, StackCall};

/// Stands for a stack without names, of which nothing could be read. Components with an interpreter
/// have none; their own stacks are in the job's log.
const ABOUT_NAMES: &str = "the handler trapped; its stack is not shown, since the component has no \
                           names of functions (in Rust, keep them with `strip = false` in the profile)";
/// How to add lines to a component.
const ABOUT_LINES: &str = "the component has no lines of source; in Rust, keep them with \
                           `debug = \"line-tables-only\"` and `strip = false` in the profile";

/// Most characters of a function's name: names of generic functions can be very long.
const NAME_CHARS_SHOWN: usize = 120;

/// The stack, a line for each call, and how to improve it.
pub(crate) fn describe_stack(stack: &[StackCall]) -> Vec<String> {
    if stack.is_empty() {
        return Vec::new();
    }
    if !stack.iter().any(is_named) {
        return vec![format!("note: {ABOUT_NAMES}")];
    }
    let calls = stack.iter().enumerate();
    let mut lines = vec!["the handler's stack, the innermost call first:".to_owned()];
    lines.extend(calls.map(|(index, call)| format!("{index:>4}: {}", describe_call(call))));
    if stack.iter().all(|call| call.location.is_none()) {
        lines.push(format!("note: {ABOUT_LINES}"));
    }
    lines
}

/// One call.
pub(crate) fn describe_call(call: &StackCall) -> String {
    let function = call.function.as_deref().unwrap_or("a function without a name");
    let cut =
        function.char_indices().nth(NAME_CHARS_SHOWN).and_then(|(end, _)| function.get(..end));
    let function = cut.map_or_else(|| function.to_owned(), |start| format!("{start}…"));
    match &call.location {
        Some(SourceLocation { file, line: Some(line) }) => format!("{function} at {file}:{line}"),
        Some(SourceLocation { file, line: None }) => format!("{function} at {file}"),
        None => function,
    }
}

/// Whether it has a real name: exported functions have the name of the export.
fn is_named(call: &StackCall) -> bool {
    call.function.as_deref().is_some_and(|name| !name.contains('#'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_readable_and_says_what_it_lacks() {
        let named = StackCall { function: Some("mill::grind".into()), location: None };
        let location = SourceLocation { file: "src/lib.rs".into(), line: Some(7) };
        let placed = StackCall { location: Some(location), ..named.clone() };
        let export = StackCall { function: Some("a:b/run@0.1.0#handle".into()), location: None };
        let shown = |stack: &[StackCall]| describe_stack(stack)[1..].join("\n");
        let expected = "   0: mill::grind at src/lib.rs:7\n   1: a:b/run@0.1.0#handle";
        assert_eq!(shown(&[placed, export.clone()]), expected);
        assert!(shown(&[named, export.clone()]).contains("note: the component has no lines"));
        let nameless = describe_stack(&[StackCall::default(), export]);
        assert!(nameless.len() == 1 && nameless[0].contains("strip"), "{nameless:?}");
        assert!(describe_stack(&[]).is_empty());

        let generic = StackCall { function: Some("é".repeat(500)), location: None };
        assert_eq!(describe_call(&generic).chars().count(), NAME_CHARS_SHOWN + 1);
    }
}
