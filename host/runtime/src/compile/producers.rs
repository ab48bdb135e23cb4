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
#[path = "producers_tests.rs"]
mod tests;
