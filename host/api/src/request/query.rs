//! Numbers and texts in query strings, and numbers in headers.

use std::time::Duration;

use gristmill_core::job::listing::Cursor;
use gristmill_core::limits::Bounds;
use percent_encoding::percent_decode_str;

use crate::answer::error::ApiError;

/// Most characters of the name of a parameter that a refusal shows.
const NAME_CHARS_MAX: usize = 100;

/// Refuses a query whose escapes are not UTF-8: each of its texts would be read as another one.
///
/// # Errors
/// 400 that names the parameter.
pub(crate) fn check_utf8(query: &str) -> Result<(), ApiError> {
    let is_utf8 = |pair: &str| percent_decode_str(pair).decode_utf8().is_ok();
    let Some(wrong) = query.split('&').find(|pair| !is_utf8(pair)) else { return Ok(()) };
    let (name, _) = wrong.split_once('=').unwrap_or((wrong, ""));
    let name = shown_name(&percent_decode_str(name).decode_utf8_lossy());
    Err(ApiError::bad_request(format!("query `{name}` must be percent-encoded UTF-8")))
}

/// The start of a parameter's name, for a refusal.
pub(crate) fn shown_name(name: &str) -> String {
    name.chars().take(NAME_CHARS_MAX).collect()
}

/// The query of a call, unparsed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query<'a>(pub(crate) &'a str);

impl<'a> Query<'a> {
    /// A text value.
    pub(crate) fn text(self, name: &str) -> Option<std::borrow::Cow<'a, str>> {
        url::form_urlencoded::parse(self.0.as_bytes())
            .find_map(|(key, value)| (key == name).then_some(value))
    }

    /// All values of a name that may be given several times.
    pub(crate) fn all(self, name: &str) -> impl Iterator<Item = std::borrow::Cow<'a, str>> {
        url::form_urlencoded::parse(self.0.as_bytes())
            .filter_map(move |(key, value)| (key == name).then_some(value))
    }

    /// One of these values, each with its text.
    pub(crate) fn one_of<T: Copy, const N: usize>(
        self,
        name: &str,
        values: [T; N],
        text_of: impl Fn(T) -> &'static str,
    ) -> Result<Option<T>, ApiError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let found = values.into_iter().find(|value| text_of(*value) == text);
        found.map(Some).ok_or_else(|| {
            let all = values.map(text_of).join(", ");
            ApiError::bad_request(format!("query `{name}` must be one of {all}, not `{text}`"))
        })
    }

    /// Whether a filter with any number of values is not given, or has `value`, the one that every
    /// object has; `None`: no object has any.
    pub(crate) fn permits(self, name: &str, value: Option<&str>) -> bool {
        let mut given = self.all(name).filter(|given| !given.is_empty()).peekable();
        given.peek().is_none() || given.any(|given| Some(&*given) == value)
    }

    /// Whether the query has this name.
    pub(crate) fn has(self, name: &str) -> bool {
        self.text(name).is_some()
    }

    /// A time to wait: its default if it is missing, the nearest bound if it is outside.
    pub(crate) fn wait(self, bounds: Bounds) -> Result<Duration, ApiError> {
        let ms = match self.integer("wait")? {
            Some(ms) => bounds.clamp(ms.try_into().unwrap_or(0)),
            None => bounds.default,
        };
        Ok(Duration::from_millis(ms))
    }

    /// A number that must not be negative.
    pub(crate) fn unsigned(self, name: &str) -> Result<Option<u64>, ApiError> {
        let Some(value) = self.integer(name)? else { return Ok(None) };
        value.try_into().map(Some).map_err(|_| {
            ApiError::bad_request(format!("query `{name}` must not be negative, not {value}"))
        })
    }

    /// A number inside its bounds, or its default.
    pub(crate) fn bounded(self, name: &str, bounds: Bounds) -> Result<usize, ApiError> {
        let Some(value) = self.integer(name)? else { return Ok(to_usize(bounds.default)) };
        match u64::try_from(value) {
            Ok(value) if bounds.contains(value) => Ok(to_usize(value)),
            Ok(_) | Err(_) => Err(ApiError::bad_request(format!(
                "query `{name}` must be {} to {}, not {value}",
                bounds.min, bounds.max
            ))),
        }
    }

    /// The cursor of a page of jobs: 16 hexadecimal digits, which mean nothing to clients.
    pub(crate) fn cursor(self) -> Result<Option<Cursor>, ApiError> {
        let Some(text) = self.text("cursor") else { return Ok(None) };
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_cursor = text.len() == 16 && text.bytes().all(is_digit);
        match u64::from_str_radix(&text, 16) {
            Ok(position) if is_cursor => Ok(Some(Cursor(position))),
            _ => Err(ApiError::bad_request("query `cursor` must be the `cursor` of a page")),
        }
    }

    fn integer(self, name: &str) -> Result<Option<i64>, ApiError> {
        let Some(text) = self.text(name) else { return Ok(None) };
        integer(&text).map(Some).ok_or_else(|| {
            ApiError::bad_request(format!("query `{name}` must be an integer, not `{text}`"))
        })
    }
}

/// A flag in a query: `true` or `false` in any case, or absent. With several names, it is set if
/// one of them is true.
pub(crate) fn flag(query: &str, names: &[&str]) -> Result<bool, ApiError> {
    let given = url::form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| names.contains(&name.as_ref()));
    let mut is_set = false;
    for (name, value) in given {
        // Python's `requests` sends `True`.
        let is = |word: &str| value.eq_ignore_ascii_case(word);
        if is("true") {
            is_set = true;
        } else if !is("false") {
            return Err(ApiError::bad_request(format!(
                "query `{name}` must be true or false, as in `{name}=true`, not `{value}`"
            )));
        }
    }
    Ok(is_set)
}

/// An integer; with too many digits it saturates.
pub(crate) fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let limit = if text.starts_with('-') { i64::MIN } else { i64::MAX };
    Some(text.parse().unwrap_or(limit))
}

fn to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
#[path = "query_tests.rs"]
mod tests;
