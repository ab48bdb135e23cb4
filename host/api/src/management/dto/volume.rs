//! Network volumes.

use gristmill_core::id::VolumeId;
use gristmill_core::volume;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::whole_number;

/// The only data center of volumes: this host.
const DATA_CENTER: &str = "local";

/// A network volume to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewNetworkVolume {
    #[schema(value_type = schema::Name)]
    pub(crate) name: String,
    /// The volume's size limit, in gigabytes.
    #[schema(value_type = schema::VolumeSize)]
    #[serde(deserialize_with = "whole_number::required")]
    pub(crate) size: u64,
    /// Any short text, without effect: there is only one data center.
    #[schema(value_type = Option<schema::DataCenter>)]
    pub(crate) data_center_id: Option<String>,
}

/// The fields of a network volume to change.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkVolumeInput {
    #[schema(value_type = Option<schema::Name>)]
    pub(crate) name: Option<String>,
    /// The new size limit in gigabytes, at least the current one.
    #[schema(value_type = Option<schema::VolumeSize>)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) size: Option<u64>,
}

/// The answer's form of a network volume.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkVolume {
    #[schema(value_type = schema::Id)]
    id: VolumeId,
    name: String,
    /// The size limit, in gigabytes.
    size: u32,
    data_center_id: &'static str,
}

impl From<&volume::Volume> for NetworkVolume {
    fn from(volume: &volume::Volume) -> Self {
        Self {
            id: volume.id.clone(),
            name: volume.name.clone(),
            size: volume.size_gb,
            data_center_id: DATA_CENTER,
        }
    }
}
