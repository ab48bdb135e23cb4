//! The data that a FAILED job stores in place of its output: the partial output of its handler, the
//! whole error if it is long, or both. Memory has the beginning of a long error only.
//!
//! | error | partial output | stored |
//! |---|---|---|
//! | short | none | nothing |
//! | short | some | the partial output |
//! | long | none | the error, as a JSON string |
//! | long | some | an array of the error and the partial output |
//!
//! **Bounds.** [`ERROR_IN_MEMORY_BYTES_MAX`] bytes of a text stay in memory, and the mark of a cut.
//! 180,000 FAILED jobs with texts of 16 KiB, half an hour of failures at 100/s, would take 2.9 GB.
//! **Costs.** Reading a job with a long text reads its output.

use gristmill_core::job::payload::Json;
use gristmill_core::limits::ERROR_IN_MEMORY_BYTES_MAX;
use serde_json::value::RawValue;

/// The end of a text that was cut. A cut removes at most three bytes of a character, and the mark
/// has six, so a cut text is longer than the bound, and no whole text is.
const MARK: &str = "……";

/// The same for clients.
const SHOWN_MARK: &str = "…";

/// Divides an error and a partial output into the part for memory and the part for the disk.
pub(crate) fn divide(mut error: String, partial: Option<Json>) -> (String, Option<Json>) {
    if error.len() <= ERROR_IN_MEMORY_BYTES_MAX {
        return (error, partial);
    }
    let mut stored = serde_json::to_vec(&error).expect("a text is JSON");
    if let Some(partial) = partial {
        stored = [b"[", &stored[..], b",", partial.as_bytes(), b"]"].concat();
    }
    error.truncate(error.floor_char_boundary(ERROR_IN_MEMORY_BYTES_MAX));
    error.push_str(MARK);
    error.shrink_to_fit();
    (error, Some(Json::from_stored(stored)))
}

/// Whether the text in memory is the beginning of a longer one.
pub(crate) fn is_cut(text: &str) -> bool {
    text.len() > ERROR_IN_MEMORY_BYTES_MAX && text.ends_with(MARK)
}

/// The text before the mark of a cut one; `None` for a whole text.
pub(crate) fn beginning(text: &str) -> Option<&str> {
    is_cut(text).then(|| text.strip_suffix(MARK)).flatten()
}

/// Changes a cut text to the form that clients get.
pub(crate) fn show_cut(text: &mut String) {
    if let Some(bytes) = beginning(text).map(str::len) {
        text.truncate(bytes);
        text.push_str(SHOWN_MARK);
    }
}

/// The whole text of a cut one; `None` when `stored` is the output of another attempt.
pub(crate) fn whole(cut: &str, stored: &Json) -> Option<String> {
    let text = serde_json::from_slice(stored.as_bytes());
    let pair =
        || serde_json::from_slice::<(String, &RawValue)>(stored.as_bytes()).map(|pair| pair.0);
    let whole: String = text.or_else(|_| pair()).ok()?;
    whole.starts_with(cut.strip_suffix(MARK)?).then_some(whole)
}

/// The partial output that is stored beside a long error.
pub(crate) fn partial(stored: &Json) -> Option<Json> {
    let (_, partial): (&RawValue, &RawValue) = serde_json::from_slice(stored.as_bytes()).ok()?;
    Some(Json::from_stored(partial.get().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_found_again() {
        for text in ["", "short", &"x".repeat(ERROR_IN_MEMORY_BYTES_MAX)] {
            assert_eq!(divide(text.to_owned(), None), (text.to_owned(), None));
            assert!(!is_cut(text));
        }
        for piece in ["x", "é", "\u{1f33e}", "\"", MARK] {
            for more in 1..6 {
                let text = "a".repeat(more) + &piece.repeat(ERROR_IN_MEMORY_BYTES_MAX);
                let (kept, stored) = divide(text.clone(), None);
                let stored = stored.unwrap();
                assert!(is_cut(&kept) && kept.len() <= ERROR_IN_MEMORY_BYTES_MAX + MARK.len());
                assert_eq!(whole(&kept, &stored), Some(text));
                let other = Json::parse(r#""the output of the next attempt""#.to_owned()).unwrap();
                assert_eq!(whole(&kept, &other), None);
                assert_eq!(whole(&kept, &Json::null()), None);
            }
        }
    }

    #[test]
    fn clients_see_one_ellipsis_after_a_cut_text() {
        let shown = |text: &str| {
            let (mut kept, _) = divide(text.to_owned(), None);
            show_cut(&mut kept);
            kept
        };
        let bound = ERROR_IN_MEMORY_BYTES_MAX;
        assert_eq!(shown(&"x".repeat(bound + 1)), format!("{}…", "x".repeat(bound)));
        assert_eq!(shown(&"x".repeat(bound)), "x".repeat(bound));
        assert_eq!(shown("ends in ……"), "ends in ……", "a whole text is unchanged");
    }

    #[test]
    fn a_partial_output_is_found_beside_any_error() {
        let part = || Some(Json::parse(r#"{"a":[1,"x"]}"#.to_owned()).unwrap());
        assert_eq!(divide("short".to_owned(), part()), ("short".to_owned(), part()));
        let text = "\"long\" ".repeat(ERROR_IN_MEMORY_BYTES_MAX);
        let (kept, stored) = divide(text.clone(), part());
        let stored = stored.unwrap();
        assert_eq!(whole(&kept, &stored), Some(text.clone()));
        assert_eq!(partial(&stored), part());
        let (_, alone) = divide(text, None);
        assert_eq!(partial(&alone.unwrap()), None);
    }
}
