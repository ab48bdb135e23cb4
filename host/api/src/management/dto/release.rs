//! The handlers that an endpoint has run.

use gristmill_core::deploy::release;
use gristmill_wire::management::{Release, ReleaseWithSettings};

use crate::answer::wire_time::rfc3339;

/// The answer's form of a release.
pub(crate) fn release(release: &release::Release) -> Release {
    Release {
        version: release.version,
        released_at: rfc3339(release.released_at),
        image: release.image.to_string(),
        sha256: release.component.to_string(),
    }
}

/// The answer's form of a release with its settings.
pub(crate) fn release_with_settings(of: &release::Release) -> ReleaseWithSettings {
    let settings = of.settings.as_deref().cloned();
    ReleaseWithSettings { release: release(of), settings }
}
