//! The stack of a handler that trapped or was ended, in readable form.

use gristmill_core::runtime::StackCall;

/// Stands for a stack without names, which could not be read. Components with an interpreter
/// have none; their own stacks are in the job's log.
const ABOUT_NAMES: &str = "the handler was ended; its stack is not shown, since the component has no \
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
    if stack.iter().all(|call| call.source_name().is_none()) {
        return vec![format!("note: {ABOUT_NAMES}")];
    }
    let shown = of_author(stack);
    let calls = shown.iter().enumerate();
    let left_out = match stack.len() - shown.len() {
        0 => String::new(),
        count => format!(" ({count} calls of the standard library and the SDK are left out)"),
    };
    let mut lines = vec![format!("the handler's stack, the innermost call first{left_out}:")];
    lines.extend(calls.map(|(index, call)| format!("{index:>4}: {}", describe_call(call))));
    if stack.iter().all(|call| call.location.is_none()) {
        lines.push(format!("note: {ABOUT_LINES}"));
    }
    lines
}

/// The beginnings of names of functions that no author wrote, inside of a panic and around the
/// handler.
const OF_LIBRARIES: [&str; 7] =
    ["std::", "core::", "alloc::", "gristmill_sdk::", "rust_begin_unwind", "rust_panic", "__rust"];

/// The part of a stack from the author's innermost call to the outermost one; all of it if there is
/// none.
fn of_author(stack: &[StackCall]) -> &[StackCall] {
    let is_author = |call: &StackCall| {
        call.source_name().is_some_and(|name| {
            // Such as `<F as gristmill_sdk::Handler<_>>::handle`.
            let name = name.rsplit_once(" as ").map_or(name, |(_, of_trait)| of_trait);
            !OF_LIBRARIES.iter().any(|library| name.starts_with(library))
        })
    };
    let ends = (stack.iter().position(is_author), stack.iter().rposition(is_author));
    let (Some(first), Some(last)) = ends else { return stack };
    stack.get(first..=last).unwrap_or(stack)
}

/// One call.
pub(crate) fn describe_call(call: &StackCall) -> String {
    let function = call.function.as_deref().unwrap_or("a function without a name");
    let cut =
        function.char_indices().nth(NAME_CHARS_SHOWN).and_then(|(end, _)| function.get(..end));
    let function = cut.map_or_else(|| function.to_owned(), |start| format!("{start}…"));
    match &call.location {
        Some(location) => format!("{function} at {location}"),
        None => function,
    }
}

#[cfg(test)]
mod tests {
    use gristmill_core::runtime::SourceLocation;

    use super::*;

    #[test]
    fn calls_of_libraries_around_the_authors_are_left_out() {
        let names = [
            "std::panicking::rust_panic_with_hook",
            "core::panicking::panic_fmt",
            "core::option::unwrap_failed",
            "mill::stone::grind",
            "core::ops::function::FnOnce::call_once",
            "mill::run",
            "<mill::run as gristmill_sdk::handler::Handler<_>>::handle",
            "gristmill:handler/run@0.1.0#handle",
        ];
        let call = |name: &str| StackCall { function: Some(name.to_owned()), location: None };
        let lines = describe_stack(&names.map(call));
        assert!(lines[0].contains("(5 calls of the standard library"), "{lines:?}");
        assert_eq!(lines[1], "   0: mill::stone::grind");
        assert_eq!(lines[3], "   2: mill::run");
        assert!(lines[4].starts_with("note: "), "{lines:?}");
        // A stack without any call of the author is shown whole.
        assert!(describe_stack(&[call("core::panicking::panic_fmt")])[1].contains("panic_fmt"));
    }

    #[test]
    fn a_stack_is_readable_and_says_what_it_lacks() {
        let named = StackCall { function: Some("mill::grind".into()), location: None };
        let location = SourceLocation { file: "src/lib.rs".into(), line: Some(7) };
        let placed = StackCall { location: Some(location), ..named.clone() };
        let export = StackCall { function: Some("a:b/run@0.1.0#handle".into()), location: None };
        let shown = |stack: &[StackCall]| describe_stack(stack)[1..].join("\n");
        assert_eq!(shown(&[placed, export.clone()]), "   0: mill::grind at src/lib.rs:7");
        assert!(shown(&[named, export.clone()]).contains("note: the component has no lines"));
        let nameless = describe_stack(&[StackCall::default(), export]);
        assert!(nameless.len() == 1 && nameless[0].contains("strip"), "{nameless:?}");
        assert!(describe_stack(&[]).is_empty());

        let generic = StackCall { function: Some("é".repeat(500)), location: None };
        assert_eq!(describe_call(&generic).chars().count(), NAME_CHARS_SHOWN + 1);
    }
}
