//! The handlers that an endpoint has run.

use gristmill_core::release;
use gristmill_wire::management::Release;

use crate::wire_time::rfc3339;

/// The answer's form of a release.
pub(crate) fn release(release: &release::Release) -> Release {
    Release {
        version: release.version,
        released_at: rfc3339(release.released_at),
        image: release.image.to_string(),
        sha256: release.component.to_string(),
    }
}
