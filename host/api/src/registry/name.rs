//! The name under which something is pushed: a handler's.

use super::RegistryError;
use super::error::OciCode;
use crate::images;

/// Refuses what cannot be a handler's name, before anything is sent for it.
///
/// # Errors
/// `NAME_INVALID`.
pub(super) fn check(name: &str) -> Result<(), RegistryError> {
    if images::is_part(name) {
        return Ok(());
    }
    let sentence = format!("`{name}` is no handler name: letters, digits, `.`, `_` and `-`");
    Err(RegistryError::invalid(OciCode::NameInvalid, sentence))
}
