//! The handlers that an endpoint has run.

use serde::{Deserialize, Serialize};

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
    /// The handler's name in the template.
    pub image: String,
    /// Of the component's bytes.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Digest))]
    pub sha256: String,
}

/// The target of a rollback.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// The `version` of a release; by default the release before the current one.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1))]
    #[serde(
        default,
        deserialize_with = "whole_number::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub version: Option<u64>,
}
