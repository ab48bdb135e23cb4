//! One range of bytes, by which a client continues a download: the headers `Range` and `If-Range`,
//! as [RFC 9110](https://www.rfc-editor.org/rfc/rfc9110#section-14) defines them.

use std::ops::Range;

use axum::http::{HeaderMap, HeaderValue, header};

/// The part of a content that a call asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it: the call has no range, several ranges, or the range of another version.
    All,
    /// These bytes, at least one.
    Bytes(Range<u64>),
    /// A range without a byte of the content.
    Unsatisfiable,
}

/// The part of a content of so many bytes that a call with these headers asks for; `version` is the
/// content's `ETag`.
pub(crate) fn part(headers: &HeaderMap, version: &HeaderValue, bytes: u64) -> Part {
    if headers.get(header::IF_RANGE).is_some_and(|asked| asked != version) {
        return Part::All;
    }
    let Some(range) = headers.get(header::RANGE).and_then(|range| range.to_str().ok()) else {
        return Part::All;
    };
    // A server ignores all other values, such as another unit.
    parse(range, bytes).unwrap_or(Part::All)
}

fn parse(range: &str, bytes: u64) -> Option<Part> {
    let (unit, range) = range.split_once('=')?;
    let (first, last) = range.trim().split_once('-')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let part = match (first, last) {
        ("", suffix) => bytes.saturating_sub(number(suffix)?)..bytes,
        (first, "") => number(first)?..bytes,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(bytes)
        }
    };
    Some(if part.is_empty() { Part::Unsatisfiable } else { Part::Bytes(part) })
}

/// A decimal number. A number above 2^64 counts as 2^64 - 1, which is beyond the end of each
/// content.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(range: &'static str, if_range: Option<&'static str>, bytes: u64) -> Part {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, HeaderValue::from_static(range));
        if let Some(version) = if_range {
            headers.insert(header::IF_RANGE, HeaderValue::from_static(version));
        }
        part(&headers, &HeaderValue::from_static("\"a\""), bytes)
    }

    #[test]
    fn a_range_is_the_bytes_that_the_content_has_of_it() {
        for (range, expected) in [
            ("bytes=0-0", 0..1),
            ("bytes=2-4", 2..5),
            ("bytes=2-", 2..10),
            ("bytes=-3", 7..10),
            ("bytes=-99", 0..10),
            ("bytes=9-99", 9..10),
            ("bytes=0-99999999999999999999999", 0..10),
            ("Bytes = 1-1", 1..2),
        ] {
            assert_eq!(of(range, None, 10), Part::Bytes(expected), "{range}");
        }
    }

    #[test]
    fn a_range_beyond_the_content_is_unsatisfiable() {
        for (range, bytes) in [
            ("bytes=10-", 10),
            ("bytes=10-12", 10),
            ("bytes=18446744073709551615-18446744073709551615", 10),
            ("bytes=-0", 10),
            ("bytes=0-", 0),
            ("bytes=-5", 0),
        ] {
            assert_eq!(of(range, None, bytes), Part::Unsatisfiable, "{range}");
        }
    }

    #[test]
    fn other_ranges_are_ignored() {
        for range in [
            "bytes=4-2",
            "bytes=0-1,4-5",
            "bytes=-",
            "bytes=",
            "bytes",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=1-2-3",
            "lines=1-2",
            "",
        ] {
            assert_eq!(of(range, None, 10), Part::All, "{range}");
        }
    }

    #[test]
    fn a_range_of_another_version_is_ignored() {
        assert_eq!(of("bytes=1-2", Some("\"a\""), 10), Part::Bytes(1..3));
        for other in ["\"b\"", "W/\"a\"", "Thu, 26 Nov 2026 00:00:00 GMT"] {
            assert_eq!(of("bytes=1-2", Some(other), 10), Part::All, "{other}");
        }
    }
}
