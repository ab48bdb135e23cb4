//! Splits an emit that is larger than one chunk. A string becomes several strings, cut between
//! characters, with a note in each that continues another one; any other JSON value becomes strings
//! of its text, numbered as parts.

use gristmill_core::job::payload::Json;
use gristmill_core::job::record::{Chunk, Part};

/// The chunks of one emit, each of at most `chunk_bytes_max` bytes. `metrics` are in the first;
/// they must leave room for a part of the output.
pub(crate) fn split(output: Json, metrics: Option<Json>, chunk_bytes_max: usize) -> Vec<Chunk> {
    let metrics_bytes = metrics.as_ref().map_or(0, Json::len);
    if output.len() + metrics_bytes <= chunk_bytes_max {
        return vec![Chunk { output, metrics, part: None }];
    }
    // Two bytes are the quotation marks of each part.
    let part_bytes_max = chunk_bytes_max.saturating_sub(metrics_bytes + 2);
    let text = output.as_str();
    let (pieces, is_string) = match string_content(text) {
        Some(content) => (cut(content, part_bytes_max, string_unit), true),
        None => (cut(text, part_bytes_max, text_unit), false),
    };
    let count = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    let mut metrics = metrics;
    let part = |index| match is_string {
        true => Part::of_numbers(index, 0),
        false => Some(Part { index, count }),
    };
    let parts = (0..count).zip(pieces).map(|(index, piece)| Chunk {
        // The content of a string is escaped already.
        output: if is_string {
            Json::from_stored(format!("\"{piece}\""))
        } else {
            Json::from_value(&piece)
        },
        metrics: metrics.take(),
        part: part(index),
    });
    parts.collect()
}

/// The text between the quotation marks, if the JSON value is a string.
fn string_content(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

/// The smallest unit at the start of a text that must not be cut, and its size in a string.
struct Unit {
    bytes: usize,
    cost: usize,
}

/// Cuts a text into pieces of at most `max` bytes each.
fn cut(text: &str, max: usize, unit: fn(&str) -> Option<Unit>) -> Vec<&str> {
    let mut pieces = Vec::new();
    let (mut rest, mut end, mut cost) = (text, 0, 0);
    while let Some(next) = rest.get(end..).and_then(unit) {
        if cost + next.cost > max && end > 0 {
            let (piece, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
            pieces.push(piece);
            (rest, end, cost) = (after, 0, 0);
        }
        end += next.bytes;
        cost += next.cost;
    }
    if !rest.is_empty() {
        pieces.push(rest);
    }
    pieces
}

/// The first character or escape of a string's content. A surrogate pair is one character.
fn string_unit(content: &str) -> Option<Unit> {
    let bytes = match content.as_bytes() {
        [b'\\', b'u', b'd' | b'D', b'8' | b'9' | b'a' | b'b' | b'A' | b'B', ..]
            if content.get(6..8) == Some("\\u") =>
        {
            12
        }
        [b'\\', b'u', ..] => 6,
        [b'\\', ..] => 2,
        _ => content.chars().next()?.len_utf8(),
    };
    let bytes = bytes.min(content.len());
    Some(Unit { bytes, cost: bytes })
}

/// The first character of a JSON text. In a string, quotation marks, backslashes and the line
/// breaks and tabs between tokens are escaped.
fn text_unit(text: &str) -> Option<Unit> {
    let first = text.chars().next()?;
    let is_escaped = matches!(first, '"' | '\\' | '\n' | '\r' | '\t');
    Some(Unit { bytes: first.len_utf8(), cost: if is_escaped { 2 } else { first.len_utf8() } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned()).unwrap()
    }

    fn texts(chunks: &[Chunk]) -> Vec<&str> {
        chunks.iter().map(|chunk| chunk.output.as_str()).collect()
    }

    #[test]
    fn values_within_the_limit_are_unchanged() {
        let chunks = split(json("[1,2,3]"), Some(json("{}")), 9);
        assert_eq!(texts(&chunks), ["[1,2,3]"]);
        assert_eq!((chunks[0].part, chunks[0].metrics.is_some()), (None, true));
    }

    #[test]
    fn strings_are_cut_between_characters() {
        let chunks = split(json(r#""aé\n\u00e9\ud83d\ude00z""#), None, 14);
        assert_eq!(texts(&chunks), [r#""aé\n\u00e9""#, r#""\ud83d\ude00""#, r#""z""#]);
        assert!(chunks.iter().all(|chunk| chunk.shown_part().is_none()));
        let indexes: Vec<_> = chunks.iter().map(|chunk| chunk.part.map(|it| it.index)).collect();
        assert_eq!(indexes, [None, Some(1), Some(2)], "later pieces continue the first one");
    }

    #[test]
    fn other_values_are_cut_as_text_with_parts() {
        let chunks = split(json(r#"{"a":"é"}"#), Some(json("{}")), 11);
        assert_eq!(texts(&chunks), [r#""{\"a\":""#, r#""\"é\"}""#]);
        let parts: Vec<_> = chunks.iter().map(|chunk| chunk.part.unwrap()).collect();
        assert_eq!(parts, [Part { index: 0, count: 2 }, Part { index: 1, count: 2 }]);
        assert!(chunks[0].metrics.is_some() && chunks[1].metrics.is_none());
    }

    fn joined(chunks: &[Chunk]) -> String {
        chunks.iter().map(|chunk| chunk.output.read::<String>().unwrap()).collect()
    }

    proptest! {
        #[test]
        fn string_parts_join_to_the_string(text in "\\PC{1,200}", escapes in any::<bool>(), max in 16usize..64) {
            let plain = serde_json::to_string(&text).unwrap();
            let whole = if escapes {
                let units: String = text.encode_utf16().map(|u| format!("\\u{u:04x}")).collect();
                format!("\"{units}\"")
            } else {
                plain
            };
            let chunks = split(json(&whole), None, max);
            prop_assert!(chunks.iter().all(|chunk| chunk.len() <= max));
            prop_assert_eq!(joined(&chunks), text);
        }

        #[test]
        fn parts_of_other_values_join_to_the_text(texts in prop::collection::vec("\\PC{0,20}", 1..20), max in 24usize..64) {
            let whole = serde_json::to_string_pretty(&texts).unwrap();
            let chunks = split(json(&whole), Some(json("{\"a\":1}")), max);
            prop_assert!(chunks.iter().all(|chunk| chunk.len() <= max));
            if chunks.len() > 1 {
                prop_assert_eq!(joined(&chunks), whole);
                let count = chunks.len() as u32;
                for (index, chunk) in (0..).zip(&chunks) {
                    prop_assert_eq!(chunk.part, Some(Part { index, count }));
                }
            }
        }
    }
}
