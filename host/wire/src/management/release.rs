//! The handlers that an endpoint has run.

use serde::{Deserialize, Serialize};

use super::endpoint::EndpointSettings;
use crate::id::{TemplateId, VolumeId};
#[cfg(feature = "openapi")]
use crate::schema;
use crate::whole_number;

/// A handler that an endpoint has run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// The version of the endpoint that ran it first.
    pub version: u32,
    /// When the endpoint began to run it.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub released_at: String,
    /// The handler's name in the template at that time.
    pub image: String,
    /// Of the component's bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Digest))]
    pub sha256: String,
}

/// A handler that an endpoint has run, with the settings with which it began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ReleaseWithSettings {
    /// The release.
    #[serde(flatten)]
    pub release: Release,
    /// Absent for a release of a host that did not keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(nullable = false))]
    pub settings: Option<ReleaseSettings>,
}

/// The settings of an endpoint at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ReleaseSettings {
    /// The template with its handler.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub template_id: TemplateId,
    /// Absent: no network volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Id))]
    pub network_volume_id: Option<VolumeId>,
    /// The others. Each variable of `env` has a fingerprint of its value: the host keeps no old
    /// values, since they may be secrets. The first 64 variables have one.
    #[serde(flatten)]
    pub settings: EndpointSettings,
}

/// The target of a rollback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The `version` of a release; by default the release before the current one. A repeated call
    /// with it changes nothing more.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub version: Option<u64>,
    /// The `version` of the endpoint that the caller saw. The call is refused if the endpoint has
    /// another one. Without `version` and `from`, a repeated call returns to the handler that the
    /// first one replaced.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub from: Option<u64>,
}
