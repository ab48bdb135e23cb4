//! Finds the differences of two JSON values.
//!
//! Numbers are compared by their value, so that 1 and 1.0 are equal, since languages write them
//! differently. The order of an object's keys does not matter.

use serde::Serialize;
use serde_json::{Number, Value};

/// Most characters that are shown of a value.
const SHOWN_CHARS_MAX: usize = 200;

/// The text for a missing value.
const NOTHING: &str = "nothing";

/// One difference from the expectation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Difference {
    /// The position: a path such as `$.items[2].name`, or the name of the checked property.
    pub(super) at: String,
    /// The expected value.
    pub(super) expected: String,
    /// The actual value.
    pub(super) got: String,
}

impl Difference {
    pub(super) fn new(at: &str, expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self { at: at.to_owned(), expected: expected.into(), got: got.into() }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: expected {}, got {}", self.at, self.expected, self.got)
    }
}

/// The extent of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// The whole value.
    Whole,
    /// Of each object only these keys; lists must have the same length.
    Subset,
}

/// Adds the differences of `got` below the path `at`.
pub(super) fn compare(
    at: &str,
    expected: &Value,
    got: &Value,
    extent: Extent,
    found: &mut Vec<Difference>,
) {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => {
            for (name, value) in expected {
                let at = key(at, name);
                match got.get(name) {
                    Some(got) => compare(&at, value, got, extent, found),
                    None => found.push(Difference::new(&at, shown(value), NOTHING)),
                }
            }
            if extent == Extent::Whole {
                for (name, value) in got.iter().filter(|(name, _)| !expected.contains_key(*name)) {
                    found.push(Difference::new(&key(at, name), NOTHING, shown(value)));
                }
            }
        }
        (Value::Array(expected), Value::Array(got)) => {
            for position in 0..expected.len().max(got.len()) {
                let at = format!("{at}[{position}]");
                match (expected.get(position), got.get(position)) {
                    (Some(expected), Some(got)) => compare(&at, expected, got, extent, found),
                    (expected, got) => {
                        let text =
                            |value: Option<&Value>| value.map_or_else(|| NOTHING.into(), shown);
                        found.push(Difference::new(&at, text(expected), text(got)));
                    }
                }
            }
        }
        (Value::Number(one), Value::Number(other)) if is_same_number(one, other) => {}
        (expected, got) if expected == got => {}
        (expected, got) => found.push(Difference::new(at, shown(expected), shown(got))),
    }
}

fn is_same_number(one: &Number, other: &Number) -> bool {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => one == other,
        _ => one.as_f64() == other.as_f64(),
    }
}

/// The path of a key below a path.
fn key(at: &str, name: &str) -> String {
    let is_word = name.chars().all(|c| c.is_alphanumeric() || c == '_')
        && name.chars().next().is_some_and(|first| !first.is_numeric());
    if is_word { format!("{at}.{name}") } else { format!("{at}[{}]", Value::from(name)) }
}

/// A value as JSON, cut when it is long.
pub(super) fn shown(value: &Value) -> String {
    cut(&value.to_string())
}

/// A text, cut when it is long.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn differences(expected: &Value, got: &Value, extent: Extent) -> Vec<String> {
        let mut found = Vec::new();
        compare("$", expected, got, extent, &mut found);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_same_value_in_other_words_is_the_same() {
        let cases = [
            (json!(null), json!(null)),
            (json!({"a": 1, "b": [true]}), json!({"b": [true], "a": 1})),
            (json!(1), json!(1.0)),
            (json!(-0.0), json!(0)),
            (json!(9_007_199_254_740_993_u64), json!(9_007_199_254_740_993_i64)),
            (json!("é"), serde_json::from_str("\"\\u00e9\"").unwrap()),
        ];
        for (one, other) in cases {
            for extent in [Extent::Whole, Extent::Subset] {
                assert_eq!(differences(&one, &other, extent), [""; 0], "{one} {other}");
                assert_eq!(differences(&other, &one, extent), [""; 0], "{one} {other}");
            }
        }
    }

    #[test]
    fn each_difference_is_named_by_its_path() {
        let cases = [
            (json!(1), json!("1"), vec!["$: expected 1, got \"1\""]),
            (json!(0), json!(false), vec!["$: expected 0, got false"]),
            (json!(null), json!({}), vec!["$: expected null, got {}"]),
            (json!({"a": null}), json!({}), vec!["$.a: expected null, got nothing"]),
            (json!({}), json!({"a b": 1}), vec!["$[\"a b\"]: expected nothing, got 1"]),
            (json!({"1": 1}), json!({"1": 2}), vec!["$[\"1\"]: expected 1, got 2"]),
            (json!([1, 2]), json!([1]), vec!["$[1]: expected 2, got nothing"]),
            (json!([]), json!([[]]), vec!["$[0]: expected nothing, got []"]),
            (
                json!({"items": [{"name": "rye"}], "n": 9_007_199_254_740_993_u64}),
                json!({"items": [{"name": "oat"}], "n": 9_007_199_254_740_992_u64}),
                vec![
                    "$.items[0].name: expected \"rye\", got \"oat\"",
                    "$.n: expected 9007199254740993, got 9007199254740992",
                ],
            ),
        ];
        for (expected, got, found) in cases {
            assert_eq!(differences(&expected, &got, Extent::Whole), found);
        }
    }

    #[test]
    fn a_subset_lets_objects_have_more_keys_and_lists_no_more_items() {
        let got = json!({"a": {"b": 1, "c": 2}, "list": [{"d": 3, "e": 4}]});
        for subset in [json!({}), json!({"a": {"c": 2}}), json!({"list": [{"d": 3}]})] {
            assert_eq!(differences(&subset, &got, Extent::Subset), [""; 0], "{subset}");
        }
        for other in [json!({"a": {"b": 2}}), json!({"x": 1}), json!({"list": []}), json!([])] {
            assert_eq!(differences(&other, &got, Extent::Subset).len(), 1, "{other}");
        }
    }

    #[test]
    fn long_values_are_cut() {
        let text = shown(&json!("é".repeat(1_000)));
        assert_eq!(text.chars().count(), SHOWN_CHARS_MAX + 1);
    }
}
