//! Languages and tools of small components: engines, adapters, stripped handlers, and C libraries.

use super::*;

#[test]
fn sections_of_all_parts_are_joined_and_bounded() {
    let component = r#"(component
            (core module (@producers (language "Rust" "2024") (processed-by "rustc" "1.95.0 (x)")))
            (core module (@producers (language "Rust" "2024") (language "Zig" "")))
            (@custom "other" "x"))"#;
    let read = producers(&wat::parse_str(component).unwrap());
    let shown = |list: &[Producer]| {
        list.iter().map(|p| format!("{} {}", p.name, p.version)).collect::<Vec<_>>()
    };
    assert_eq!(shown(&read.languages), ["Rust 2024", "Zig "]);
    assert_eq!(shown(&read.tools), ["rustc 1.95.0 (x)"]);

    let many: String =
        (0..100).map(|n| format!("(processed-by \"{n}{}\" \"\\07v\")", "é".repeat(99))).collect();
    let module = format!("(component (core module (@producers {many})))");
    let read = producers(&wat::parse_str(module).unwrap());
    assert_eq!(read.tools.len(), ENTRIES_MAX);
    assert!(read.tools.iter().all(|tool| tool.name.len() <= 64 && tool.version == "v"));
    assert_eq!(producers(b"nothing"), Producers::default());
}

fn languages(component: &[u8]) -> Vec<String> {
    producers(component).languages.into_iter().map(|language| language.name).collect()
}

/// The adapter to WASI 0.2 that most components contain, which is written in Rust.
const ADAPTER: &str =
    r#"(core module (@producers (language "Rust" "") (processed-by "rustc" "1.75.0")))"#;

#[test]
fn the_language_of_an_interpreted_handler_is_not_that_of_its_engine() {
    let loader = "local:init/module-loader";
    let quickjs = format!(r#"(component {ADAPTER} (component (import "{loader}" (instance))))"#);
    assert_eq!(languages(&wat::parse_str(quickjs).unwrap()), ["JavaScript"]);

    let needed = r#"(@dylink.0 (needed "libc.so" "libpython3.14.so"))"#;
    let python = format!("(component {ADAPTER} (core module {needed}))");
    assert_eq!(languages(&wat::parse_str(python).unwrap()), ["Python"]);

    let needed = r#"(@dylink.0 (needed "libc.so"))"#;
    let other = format!("(component {ADAPTER} (core module {needed}))");
    assert_eq!(languages(&wat::parse_str(other).unwrap()), ["Rust"]);
}

/// An engine in Rust and C++ whose tool states the language of the handler, as ComponentizeJS
/// does.
#[test]
fn the_languages_of_the_outermost_component_count_alone() {
    let engine = r#"(core module (@producers (language "C11" "") (language "Rust" "")))"#;
    let mut component = wat::parse_str(format!("(component {ADAPTER} {engine})")).unwrap();
    assert_eq!(languages(&component), ["Rust"]);
    let mut stated = wasm_encoder::ProducersSection::new();
    stated.field("language", wasm_encoder::ProducersField::new().value("JavaScript", ""));
    stated.field("processed-by", wasm_encoder::ProducersField::new().value("ComponentizeJS", "1"));
    wasm_encoder::Section::append_to(&stated, &mut component);
    assert_eq!(languages(&component), ["JavaScript"]);
    let tools = producers(&component).tools;
    let tools: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(tools, ["rustc", "ComponentizeJS"]);
}

#[test]
fn a_stripped_handler_in_rust_is_recognized_by_its_bindings() {
    let tools = r#"(@producers (processed-by "wit-component" "0.244.0")
            (processed-by "wit-bindgen-rust" "0.45.0") (processed-by "wit-bindgen-c" "0.51.0"))"#;
    let component = format!("(component (core module {tools}))");
    assert_eq!(languages(&wat::parse_str(component).unwrap()), ["Rust"]);
}

#[test]
fn the_c_library_of_a_rust_handler_is_no_language_of_it() {
    let rust = r#"(component (core module (@producers (language "Rust" "") (language "C11" ""))))"#;
    assert_eq!(languages(&wat::parse_str(rust).unwrap()), ["Rust"]);
    let c = r#"(component (core module (@producers (language "C11" ""))))"#;
    assert_eq!(languages(&wat::parse_str(c).unwrap()), ["C11"]);
}
