//! Network volumes.

use gristmill_core::id::VolumeId;
use gristmill_core::volume;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::whole;

/// The one place where volumes are: this host.
const DATA_CENTER: &str = "local";

/// A network volume to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewNetworkVolume {
    #[schema(value_type = schema::Name)]
    pub(crate) name: String,
    /// Most that it may hold, in gigabytes.
    #[schema(value_type = schema::VolumeSize)]
    #[serde(deserialize_with = "whole::required")]
    pub(crate) size: u64,
    /// Any short text; there is one place only.
    #[schema(value_type = Option<schema::DataCenter>)]
    pub(crate) data_center_id: Option<String>,
}

/// The fields of a network volume to change.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkVolumeInput {
    #[schema(value_type = Option<schema::Name>)]
    pub(crate) name: Option<String>,
    /// At least as much as now, in gigabytes.
    #[schema(value_type = Option<schema::VolumeSize>)]
    #[serde(default, deserialize_with = "whole::optional")]
    pub(crate) size: Option<u64>,
}

/// A network volume as it is shown.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NetworkVolume {
    #[schema(value_type = schema::Id)]
    id: VolumeId,
    name: String,
    /// In gigabytes.
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
