//! Values of options that only the domain can check.

use gristmill_core::deploy::volume::MountPath;

/// A path where a volume can be mounted.
pub(crate) fn mount_path(text: &str) -> Result<String, String> {
    match MountPath::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("write {error}")),
    }
}
