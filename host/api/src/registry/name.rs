//! The name of a pushed image, which is a handler's name.

use gristmill_control::is_image_part;

use super::error::{OciCode, RegistryError};

/// Refuses an invalid handler's name, before the client sends anything for it.
///
/// # Errors
/// `NAME_INVALID`.
pub(super) fn check(name: &str) -> Result<(), RegistryError> {
    if is_image_part(name) {
        return Ok(());
    }
    let sentence = format!("`{name}` is not a handler name: letters, digits, `.`, `_` and `-`");
    Err(RegistryError::invalid(OciCode::NameInvalid, sentence))
}
