//! The format of times in answers.

use gristmill_core::time::Timestamp;

/// A time in RFC 3339, in UTC.
pub(crate) fn rfc3339(at: Timestamp) -> String {
    let ms = i64::try_from(at.as_millis()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX).to_string()
}
