//! Network volumes: persistent directories that endpoints share by name.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::{OwnerId, VolumeId};
use crate::limits::Bounds;
use crate::time::Timestamp;

/// A network volume. The API defines the field names of the wire format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Its id; also the name of its directory on the host.
    pub id: VolumeId,
    /// Its owner.
    pub owner: OwnerId,
    /// A display name.
    pub name: String,
    /// Its size limit, in gigabytes; it can only grow.
    pub size_gb: u32,
    /// When it was created.
    pub created_at: Timestamp,
}

impl Volume {
    /// Bounds of `size_gb`.
    pub const SIZE_GB: Bounds = gristmill_wire::bounds::VOLUME_GB;

    /// Its size limit, in bytes.
    pub fn bytes_max(&self) -> u64 {
        gigabytes(self.size_gb)
    }
}

/// The bytes of this many gigabytes, of 2^30 bytes each.
pub fn gigabytes(count: u32) -> u64 {
    u64::from(count) << 30
}

/// The path of the scratch space in a handler.
pub const SCRATCH_PATH: &str = "/tmp";

/// The path of the volume in a handler: absolute and normalised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountPath(String);

/// The error for a text that is not a mount path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "an absolute path such as `/workspace`, of visible ASCII characters, without `.`, `..` and \
     empty parts, of {max} bytes at most, and not `{SCRATCH_PATH}`, which is the scratch space",
    max = MountPath::BYTES_MAX
)]
pub struct InvalidMountPath;

impl MountPath {
    /// Longest path, in bytes.
    pub const BYTES_MAX: usize = gristmill_wire::bounds::MOUNT_PATH_BYTES_MAX;

    /// The path when a template names none.
    pub const DEFAULT: &str = "/workspace";

    /// Parses a template's `volumeMountPath`; an empty one means the default.
    ///
    /// # Errors
    /// [`InvalidMountPath`] says what is allowed.
    pub fn parse(text: &str) -> Result<Self, InvalidMountPath> {
        if text.is_empty() {
            return Ok(Self(Self::DEFAULT.to_owned()));
        }
        let parts = text.strip_prefix('/').ok_or(InvalidMountPath)?;
        let is_normal = parts.split('/').all(|part| !matches!(part, "" | "." | ".."));
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_normal && is_plain && text.len() <= Self::BYTES_MAX && text != SCRATCH_PATH {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidMountPath)
        }
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MountPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_paths_are_absolute_and_normal() {
        assert_eq!(MountPath::parse("").unwrap().as_str(), "/workspace");
        let longest = format!("/{}", "x".repeat(MountPath::BYTES_MAX - 1));
        for fine in ["/workspace", "/grain", "/a/b.c/..d", "/tmp/volume", &longest] {
            assert_eq!(MountPath::parse(fine).unwrap().as_str(), fine);
        }
        let too_long = format!("{longest}x");
        let wrong = [
            "/", "//", "a", "a/b", "./a", "/a/", "/a//b", "/a/./b", "/../etc", "/a\0", "/a b", "/ä",
        ];
        for wrong in wrong.into_iter().chain(["/tmp", &too_long]) {
            assert_eq!(MountPath::parse(wrong), Err(InvalidMountPath), "{wrong}");
        }
    }
}
