//! The kinds of hardware.

use serde::{Deserialize, Serialize};

/// The hardware of workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ComputeType {
    /// Processors; there is no other kind.
    #[serde(rename = "CPU")]
    Cpu,
}
