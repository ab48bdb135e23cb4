//! The key of stored secrets.

use serde::{Deserialize, Serialize};

/// The secrets that were encrypted with the new key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RotatedSecrets {
    /// Records: templates, endpoints, handlers, credentials of registries, volumes and keys.
    pub records: u64,
    /// Jobs whose `s3Config` was encrypted again.
    pub jobs: u64,
}
