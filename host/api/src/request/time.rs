//! Times in queries and fields of calls.

use gristmill_core::limits::TIME_CHARS_MAX;
use gristmill_core::time::Timestamp;
use jiff::civil::Date;

use super::query::Query;
use crate::answer::error::ApiError;

/// The characters of a date alone.
const DATE_CHARS: usize = "2026-01-31".len();

/// The time that a query has.
///
/// # Errors
/// Those of [`parse_time`].
pub(crate) fn time(query: Query<'_>, name: &str) -> Result<Option<Timestamp>, ApiError> {
    let text = query.text(name);
    text.map(|text| parse_time(&format!("query `{name}`"), &text)).transpose()
}

/// The time that a field has in RFC 3339; a date alone is its first moment in UTC.
///
/// # Errors
/// 400 that names the field and the format.
pub(crate) fn parse_time(field: &str, text: &str) -> Result<Timestamp, ApiError> {
    let ms = match text.len() {
        DATE_CHARS => text.parse::<Date>().ok().map(|date| {
            // The last day of the year 9999 begins after the last `jiff::Timestamp`.
            date.duration_since(Date::constant(1970, 1, 1)).as_millis()
        }),
        ..=TIME_CHARS_MAX => {
            text.parse::<jiff::Timestamp>().ok().map(|at| at.as_millisecond().into())
        }
        _ => None,
    };
    let ms = ms.and_then(|ms| u64::try_from(ms).ok());
    ms.map(Timestamp::from_millis).ok_or_else(|| {
        ApiError::bad_request(format!(
            "{field} must be a time from 1970 on, such as `2026-01-31T00:00:00Z` (RFC 3339), or a date, such \
             as `2026-01-31`, not `{text:.99}`"
        ))
    })
}
