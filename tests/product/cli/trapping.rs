//! The output for a handler that traps: the functions on its stack, and their source lines if the
//! component has debug information.

use std::fs;

use gristmill_tests::{command, guests};
use tempfile::TempDir;
use wat::GenerateDwarf;
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::command::{Finished, run_args};

/// A handler that computes until it traps. The names of two of its functions are mangled by rustc.
const SOURCE: &str = r#"(module
  (memory (export "memory") 1)
  (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32)
    i32.const 4096)
  (func $_ZN4mill5stone5grind17h0123456789abcdefE
    unreachable)
  (func $_ZN4mill3run17h0123456789abcdefE
    call $_ZN4mill5stone5grind17h0123456789abcdefE)
  (func (export "gristmill:handler/run@0.1.0#handle") (param i32 i32 i32 i32) (result i32)
    call $_ZN4mill3run17h0123456789abcdefE
    i32.const 0))"#;

/// The handler as a component, with or without debug information.
fn component(dwarf: Option<GenerateDwarf>) -> Vec<u8> {
    let mut parser = wat::Parser::new();
    if let Some(dwarf) = dwarf {
        parser.generate_dwarf(dwarf);
    }
    let mut module = parser.parse_str(Some("mill.wat".as_ref()), SOURCE).unwrap();
    let mut resolve = Resolve::default();
    let wit = concat!(env!("CARGO_MANIFEST_DIR"), "/../wit");
    let (package, _) = resolve.push_path(wit).unwrap();
    let world = resolve.select_world(&[package], Some("handler")).unwrap();
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).unwrap();
    ComponentEncoder::default().validate(true).module(&module).unwrap().encode().unwrap()
}

fn run_component(component: &[u8], options: &[&str]) -> Finished {
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("mill.wasm");
    fs::write(&file, component).unwrap();
    let file = file.display().to_string();
    let arguments = ["run", &file, "--input", "{}"].into_iter().chain(options.iter().copied());
    run_args(command(), arguments, "")
}

#[test]
fn a_trap_shows_functions_and_lines_of_source() {
    let shown = run_component(&component(Some(GenerateDwarf::Full)), &[]);
    let shown = shown.failed(1, &["unreachable", "the handler's stack"]);
    let line = |text: &str| {
        let at = SOURCE.lines().position(|line| line.trim().starts_with(text)).unwrap() + 1;
        format!("./mill.wat:{at}")
    };
    let inner = format!("0: mill::stone::grind at {}", line("unreachable"));
    let outer = format!("1: mill::run at {}", line("call $_ZN4mill5stone"));
    assert!(shown.stderr.contains(&inner) && shown.stderr.contains(&outer), "{shown:?}");
    assert!(!shown.stderr.contains("note:"), "nothing is missing: {shown:?}");

    let document = run_component(&component(Some(GenerateDwarf::Full)), &["--json"]);
    assert_eq!(document.code, 1, "{document:?}");
    let stack = document.json()["stack"].clone();
    assert!(stack[1].as_str().unwrap().starts_with("mill::run at "), "{stack}");
}

#[test]
fn a_trap_without_names_or_lines_says_how_to_get_them() {
    let named = run_component(&component(None), &[]);
    let named =
        named.failed(1, &["0: mill::stone::grind\n", "no lines of source", "line-tables-only"]);
    assert!(named.stderr.contains("1: mill::run\n"), "{named:?}");
    // The samples are stripped.
    let playground = guests::playground().display().to_string();
    let arguments = ["run", &playground, "--input", r#"{"op":"trap"}"#];
    let stripped = run_args(command(), arguments, "");
    stripped.failed(1, &["its stack is not shown", "strip = false"]);
}
