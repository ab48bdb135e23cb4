//! The handlers that an endpoint has run.

use gristmill_core::digest::ComponentDigest;
use gristmill_core::release;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::openapi::schema;
use crate::whole_number;
use crate::wire_time::rfc3339;

/// A handler that an endpoint has run.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Release {
    /// The version of the endpoint that ran it first.
    version: u32,
    #[schema(value_type = schema::Time)]
    released_at: String,
    /// The handler's name in the template.
    image: String,
    #[schema(value_type = schema::Digest)]
    sha256: ComponentDigest,
}

impl From<&release::Release> for Release {
    fn from(release: &release::Release) -> Self {
        Self {
            version: release.version,
            released_at: rfc3339(release.released_at),
            image: release.image.to_string(),
            sha256: release.component,
        }
    }
}

/// The target of a rollback.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = Rollback)]
pub(crate) struct RollbackInput {
    /// The `version` of a release; by default the release before the current one.
    #[schema(value_type = Option<u32>, minimum = 1)]
    #[serde(default, deserialize_with = "whole_number::optional")]
    pub(crate) version: Option<u64>,
}
