//! The tools that made a component, from the `producers` sections of the component and its nested
//! parts. These are unverified claims, for display only.
//!
//! **Bounds.** [`ENTRIES_MAX`] languages and as many tools, each cut to [`TEXT_BYTES_MAX`].

use gristmill_core::catalog::{Producer, Producers};
use wasmparser::{KnownCustom, Parser, Payload, ProducersSectionReader};

/// Most languages, and most tools. A component of several languages has a handful.
const ENTRIES_MAX: usize = 16;

/// Longest name, and longest version, in bytes.
const TEXT_BYTES_MAX: usize = 64;

/// Reads the sections of a valid component. Damaged sections are left out: they are custom
/// sections, which do not affect validity.
pub(crate) fn producers(component: &[u8]) -> Producers {
    let mut producers = Producers::default();
    for payload in Parser::new(0).parse_all(component).map_while(Result::ok) {
        if let Payload::CustomSection(section) = payload
            && let KnownCustom::Producers(section) = section.as_known()
        {
            add(&mut producers, section);
        }
    }
    producers
}

fn add(producers: &mut Producers, section: ProducersSectionReader<'_>) {
    for field in section.into_iter().map_while(Result::ok) {
        let list = match field.name {
            "language" => &mut producers.languages,
            "processed-by" | "sdk" => &mut producers.tools,
            _ => continue,
        };
        for value in field.values.into_iter().map_while(Result::ok) {
            let producer = Producer { name: text(value.name), version: text(value.version) };
            if list.len() < ENTRIES_MAX && !list.contains(&producer) {
                list.push(producer);
            }
        }
    }
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
            (core module (@producers (language "Rust" "2024") (language "C11" "")))
            (@custom "other" "x"))"#;
        let read = producers(&wat::parse_str(component).unwrap());
        let shown = |list: &[Producer]| {
            list.iter().map(|p| format!("{} {}", p.name, p.version)).collect::<Vec<_>>()
        };
        assert_eq!(shown(&read.languages), ["Rust 2024", "C11 "]);
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
}
