//! Network volumes.

use gristmill_core::deploy::volume;
use gristmill_core::deploy::volume_files::{FileEntry, FileKind};
use gristmill_wire::management::{NetworkVolume, VolumeFile, VolumeFileType};

use crate::answer::wire_time::rfc3339;

/// The only data center: this host.
pub(crate) const DATA_CENTER: &str = "local";

/// The answer's form of a network volume.
pub(crate) fn network_volume(volume: &volume::Volume) -> NetworkVolume {
    NetworkVolume {
        id: volume.id.clone(),
        name: volume.name.clone(),
        size: volume.size_gb,
        data_center_id: DATA_CENTER.to_owned(),
    }
}

/// The answer's form of a file.
pub(crate) fn volume_file(entry: FileEntry) -> VolumeFile {
    let kind = match entry.kind {
        FileKind::File => VolumeFileType::File,
        FileKind::Directory => VolumeFileType::Directory,
        FileKind::Other => VolumeFileType::Other,
    };
    let modified_at = rfc3339(entry.modified_at);
    VolumeFile { name: entry.name, kind, size: entry.bytes, modified_at }
}
