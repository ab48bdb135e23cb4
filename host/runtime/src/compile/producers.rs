//! The tools that made a component, from the `producers` sections of the component and its nested
//! parts. These are unverified claims, for display only.
//!
//! **Languages.** The languages that the outermost component states count alone. Otherwise the
//! engine of an interpreted language is recognized by its parts, since the sections are then those
//! of the engine: neither componentize-py nor componentize-qjs states the language of the handler.
//! Otherwise the languages of all parts count, except [`PART_OF_RUST`]. A stripped module states
//! none; then [`OF_RUST`] among the tools shows that it is in Rust.
//!
//! **Bounds.** [`ENTRIES_MAX`] languages and as many tools, each cut to [`TEXT_BYTES_MAX`].

use gristmill_core::catalog::{Producer, Producers};
use wasmparser::{
    Dylink0SectionReader, Dylink0Subsection, KnownCustom, Parser, Payload, ProducersSectionReader,
};

/// Most languages, and most tools. A component of several languages has a handful.
const ENTRIES_MAX: usize = 16;

/// Longest name, and longest version, in bytes.
const TEXT_BYTES_MAX: usize = 64;

/// The language of wasi-libc. Each Rust module for WASI contains parts of it, so a module with both
/// languages counts as Rust.
const PART_OF_RUST: &str = "C11";

/// The tool that makes the bindings of components in Rust.
const OF_RUST: &str = "wit-bindgen-rust";

/// The beginning of the name of the library with the interpreter of Python, which modules of
/// componentize-py are linked with.
const LIBPYTHON: &str = "libpython";

/// The interface through which QuickJS loads modules in a component of componentize-qjs.
const QUICKJS_LOADER: &str = "local:init/module-loader";

/// Reads the sections of a valid component. Damaged sections are left out: they are custom
/// sections, which do not affect validity.
pub(crate) fn producers(component: &[u8]) -> Producers {
    let mut producers = Producers::default();
    let mut stated = Vec::new();
    let mut interpreted = None;
    let mut depth = 0_usize;
    for payload in Parser::new(0).parse_all(component).map_while(Result::ok) {
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(imports) => {
                let mut names = imports.into_iter().map_while(Result::ok);
                if names.any(|import| import.name.name == QUICKJS_LOADER) {
                    interpreted = Some("JavaScript");
                }
            }
            Payload::CustomSection(section) => match section.as_known() {
                KnownCustom::Producers(section) => {
                    let languages = add_tools(&mut producers.tools, section);
                    if depth == 0 {
                        add(&mut stated, languages.iter().cloned());
                    }
                    let is_rust = languages.iter().any(|language| language.name == "Rust");
                    let own = languages.into_iter();
                    let own = own.filter(|language| !is_rust || language.name != PART_OF_RUST);
                    add(&mut producers.languages, own);
                }
                KnownCustom::Dylink0(section) if needs_python(section.clone()) => {
                    interpreted = Some("Python");
                }
                _ => {}
            },
            _ => {}
        }
    }
    if !stated.is_empty() {
        producers.languages = stated;
    } else if let Some(name) = interpreted {
        producers.languages = vec![Producer { name: name.to_owned(), version: String::new() }];
    } else if producers.languages.is_empty()
        && producers.tools.iter().any(|tool| tool.name == OF_RUST)
    {
        producers.languages = vec![Producer { name: "Rust".to_owned(), version: String::new() }];
    }
    producers
}

/// Adds the tools of a section, and returns its languages.
fn add_tools(tools: &mut Vec<Producer>, section: ProducersSectionReader<'_>) -> Vec<Producer> {
    let mut languages = Vec::new();
    for field in section.into_iter().map_while(Result::ok) {
        let list = match field.name {
            "language" => &mut languages,
            "processed-by" | "sdk" => &mut *tools,
            _ => continue,
        };
        let values = field.values.into_iter().map_while(Result::ok);
        add(
            list,
            values.map(|value| Producer { name: text(value.name), version: text(value.version) }),
        );
    }
    languages
}

/// Adds new entries, up to the bound.
fn add(list: &mut Vec<Producer>, entries: impl Iterator<Item = Producer>) {
    for producer in entries {
        if list.len() >= ENTRIES_MAX {
            return;
        }
        if !list.contains(&producer) {
            list.push(producer);
        }
    }
}

/// Whether a module is linked with the interpreter of Python.
fn needs_python(section: Dylink0SectionReader<'_>) -> bool {
    section.map_while(Result::ok).any(|subsection| match subsection {
        Dylink0Subsection::Needed(libraries) => {
            libraries.iter().any(|library| library.starts_with(LIBPYTHON))
        }
        _ => false,
    })
}

/// The text without control characters, cut.
fn text(text: &str) -> String {
    let text: String = text.chars().filter(|c| !c.is_control()).collect();
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
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

        let many: String = (0..100)
            .map(|n| format!("(processed-by \"{n}{}\" \"\\07v\")", "é".repeat(99)))
            .collect();
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
        let quickjs =
            format!(r#"(component {ADAPTER} (component (import "{loader}" (instance))))"#);
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
        stated.field(
            "processed-by",
            wasm_encoder::ProducersField::new().value("ComponentizeJS", "1"),
        );
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
        let rust =
            r#"(component (core module (@producers (language "Rust" "") (language "C11" ""))))"#;
        assert_eq!(languages(&wat::parse_str(rust).unwrap()), ["Rust"]);
        let c = r#"(component (core module (@producers (language "C11" ""))))"#;
        assert_eq!(languages(&wat::parse_str(c).unwrap()), ["C11"]);
    }
}
