//! The hosts that share the jobs.

use serde::{Deserialize, Serialize};

#[cfg(feature = "openapi")]
use crate::schema;

/// The hosts of a database; a host without one is alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Cluster {
    /// The active host first, then the others by the times at which they have connected to it.
    pub hosts: Vec<ClusterHost>,
}

/// One host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClusterHost {
    /// Its role.
    pub role: HostRole,
    /// The address at which other hosts reach it, or from which it has connected. Absent: it has no
    /// `--cluster-listen`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The version of its program.
    pub version: String,
    /// When it has connected to the active host; of the active host, when its process started.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub since: String,
    /// Jobs that it runs now.
    pub running: u64,
    /// Most jobs that it runs at one time.
    pub max_running: u64,
    /// Bytes that its sandboxes have; of a standby, as it has reported them.
    pub memory_bytes: u64,
    /// Most bytes that its sandboxes may have.
    pub max_memory_bytes: u64,
    /// Its cores.
    pub cores: u64,
}

/// The role of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum HostRole {
    /// It has the queue, and runs jobs.
    Active,
    /// It runs jobs for the active host, and becomes active when that has ended.
    Standby,
}

impl HostRole {
    /// The role as clients see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Standby => "standby",
        }
    }
}
