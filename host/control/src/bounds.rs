//! The checks that several kinds of objects share: lengths of texts and lists, and bounds of
//! numbers. A refusal names the field and its bound.

use std::collections::BTreeMap;

use gristmill_core::limits::{
    Bounds, ENV_NAME_CHARS_MAX, ENV_VALUE_CHARS_MAX, ENV_VARIABLES_MAX, NAME_CHARS_MAX,
};

use crate::error::ControlError;

/// Refuses a text that is longer than `chars_max` characters.
///
/// # Errors
/// [`ControlError::Invalid`] with the name of the field.
pub fn check_text(field: &str, text: &str, chars_max: usize) -> Result<(), ControlError> {
    // A text has at most as many characters as bytes, so most texts need no count.
    if text.len() > chars_max && text.chars().nth(chars_max).is_some() {
        return Err(ControlError::invalid(format!(
            "`{field}` has more than {chars_max} characters, the most allowed"
        )));
    }
    Ok(())
}

/// Refuses a list or an object with more than `count_max` entries.
pub(crate) fn check_count(field: &str, count: usize, count_max: usize) -> Result<(), ControlError> {
    if count > count_max {
        return Err(ControlError::invalid(format!(
            "`{field}` has {count} entries; at most {count_max} are allowed"
        )));
    }
    Ok(())
}

/// Refuses an environment that is larger than a deployment may keep.
pub(crate) fn check_env(env: &BTreeMap<String, String>) -> Result<(), ControlError> {
    check_count("env", env.len(), ENV_VARIABLES_MAX)?;
    for (name, value) in env {
        if name.chars().nth(ENV_NAME_CHARS_MAX).is_some() {
            return Err(ControlError::invalid(format!(
                "`env` has a variable whose name has more than {ENV_NAME_CHARS_MAX} characters, the \
                 most allowed"
            )));
        }
        check_text(&format!("env.{name}"), value, ENV_VALUE_CHARS_MAX)?;
    }
    Ok(())
}

/// Refuses an invalid display name.
pub(crate) fn check_name(name: &str) -> Result<(), ControlError> {
    if name.is_empty() || name.chars().nth(NAME_CHARS_MAX).is_some() {
        return Err(ControlError::invalid(format!(
            "`name` is required and has 1 to {NAME_CHARS_MAX} characters"
        )));
    }
    Ok(())
}

/// The number, if it is inside its bounds.
pub(crate) fn bounded(field: &str, bounds: Bounds, value: u64) -> Result<u64, ControlError> {
    if bounds.contains(value) {
        return Ok(value);
    }
    let Bounds { min, max, .. } = bounds;
    Err(ControlError::invalid(format!("`{field}` must be {min} to {max}, not {value}")))
}

/// The same for a number of 32 bits.
pub(crate) fn bounded_u32(field: &str, bounds: Bounds, value: u64) -> Result<u32, ControlError> {
    let value = bounded(field, bounds, value)?;
    u32::try_from(value)
        .map_err(|_| ControlError::invalid(format!("`{field}` is too large: {value}")))
}
