//! Network volumes.

use serde::{Deserialize, Serialize};

use crate::id::VolumeId;
#[cfg(feature = "openapi")]
use crate::schema;
use crate::whole_number;

/// A network volume to create.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewNetworkVolume {
    /// A display name.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Name))]
    pub name: String,
    /// The bytes that its files may take.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::VolumeSize))]
    #[serde(deserialize_with = "whole_number::required")]
    pub size: u64,
    /// Any short text, without effect: there is only one data center.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::DataCenter>))]
    pub data_center_id: Option<String>,
}

/// The fields of a network volume to change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkVolumeInput {
    /// A display name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::Name>))]
    pub name: Option<String>,
    /// The new size, at least the current one.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<schema::VolumeSize>))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub size: Option<u64>,
}

/// The answer's form of a network volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkVolume {
    /// Its id, for the field `networkVolumeId` of endpoints.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub id: VolumeId,
    /// A display name.
    pub name: String,
    /// The bytes that its files may take, in gigabytes of 2^30 bytes.
    pub size: u32,
    /// `local`: this host.
    pub data_center_id: String,
}

/// A file or directory of a network volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct VolumeFile {
    /// Its name in its directory.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: VolumeFileType,
    /// The size of a file, in bytes; 0 for anything else.
    pub size: u64,
    /// When its content was changed last.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub modified_at: String,
}

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum VolumeFileType {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A link, a device or the like, which the operator of the host has created.
    Other,
}
