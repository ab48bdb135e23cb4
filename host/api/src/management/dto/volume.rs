//! Network volumes.

use gristmill_core::volume;
use gristmill_wire::management::NetworkVolume;

/// The only data center of volumes: this host.
const DATA_CENTER: &str = "local";

/// The answer's form of a network volume.
pub(crate) fn network_volume(volume: &volume::Volume) -> NetworkVolume {
    NetworkVolume {
        id: volume.id.clone(),
        name: volume.name.clone(),
        size: volume.size_gb,
        data_center_id: DATA_CENTER.to_owned(),
    }
}
