//! The error text of a FAILED job. Memory has the beginning of a long text; the whole text is stored
//! as the job's output, which a FAILED job does not have otherwise.
//!
//! **Bounds.** [`ERROR_IN_MEMORY_BYTES_MAX`] bytes of a text stay in memory, and the mark of a cut.
//! 180,000 FAILED jobs with texts of 16 KiB, half an hour of failures at 100/s, would take 2.9 GB.
//! **Costs.** Reading a job with a long text reads its output.

use gristmill_core::limits::ERROR_IN_MEMORY_BYTES_MAX;
use gristmill_core::payload::Json;

/// Ends a text that was cut. A cut loses up to three bytes of a character, and the mark has six: so
/// a cut text is longer than the bound, which no whole text in memory is.
const MARK: &str = "……";

/// What stays in memory of a text, and the whole text when that is more.
pub(crate) fn divide(mut text: String) -> (String, Option<Json>) {
    if text.len() <= ERROR_IN_MEMORY_BYTES_MAX {
        return (text, None);
    }
    let whole = serde_json::to_vec(&text).expect("a text is JSON");
    text.truncate(text.floor_char_boundary(ERROR_IN_MEMORY_BYTES_MAX));
    text.push_str(MARK);
    text.shrink_to_fit();
    (text, Some(Json::from_stored(whole)))
}

/// Whether the text in memory is the beginning of a longer one.
pub(crate) fn is_cut(text: &str) -> bool {
    text.len() > ERROR_IN_MEMORY_BYTES_MAX
}

/// The whole text of one that was cut; `None` when `stored` is the output of another attempt.
pub(crate) fn whole(cut: &str, stored: &Json) -> Option<String> {
    let whole: String = serde_json::from_slice(stored.as_bytes()).ok()?;
    whole.starts_with(cut.strip_suffix(MARK)?).then_some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_and_found_again() {
        for text in ["", "short", &"x".repeat(ERROR_IN_MEMORY_BYTES_MAX)] {
            assert_eq!(divide(text.to_owned()), (text.to_owned(), None));
            assert!(!is_cut(text));
        }
        for piece in ["x", "é", "\u{1f33e}", "\"", MARK] {
            for more in 1..6 {
                let text = "a".repeat(more) + &piece.repeat(ERROR_IN_MEMORY_BYTES_MAX);
                let (kept, stored) = divide(text.clone());
                let stored = stored.unwrap();
                assert!(is_cut(&kept) && kept.len() <= ERROR_IN_MEMORY_BYTES_MAX + MARK.len());
                assert_eq!(whole(&kept, &stored), Some(text));
                let other = Json::parse(r#""the output of the next attempt""#.to_owned()).unwrap();
                assert_eq!(whole(&kept, &other), None);
                assert_eq!(whole(&kept, &Json::null()), None);
            }
        }
    }
}
