//! The state of the whole host.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[cfg(feature = "openapi")]
use crate::schema;

/// The host itself: its load, its disk and its settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct System {
    /// The version of the program.
    pub version: String,
    /// When the process started.
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub started_at: String,
    /// Milliseconds since then.
    pub uptime_ms: u64,
    /// Endpoints of all owners.
    pub endpoints: u64,
    /// Jobs that exist, those included that are only on the disk.
    pub jobs: u64,
    /// Sandboxes.
    pub sandboxes: Sandboxes,
    /// The file system of the data directory.
    pub disk: Disk,
    /// Bytes of the journal that are still to be copied to the tables, at most.
    pub journal_bytes: u64,
    /// Webhooks.
    pub webhooks: Webhooks,
    /// Log lines of handlers that could not be written to the disk, since the start.
    pub lost_log_lines: u64,
    /// When the last backup was complete. Absent: there was none since the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = schema::Time))]
    pub last_backup_at: Option<String>,
    /// The bounds that the host works with, by the names of the options of `gristmill serve`.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, String>))]
    pub settings: BTreeMap<String, String>,
}

/// Sandboxes of all endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sandboxes {
    /// Those that run a job.
    pub running: u64,
    /// Those that wait for their next job.
    pub idle: u64,
    /// Workers that wait for a sandbox, since there is no room for one more.
    pub waiting: u64,
    /// Those that wait for more memory.
    pub growing: u64,
    /// Most sandboxes at one time.
    pub max: u64,
    /// Their memory on the host that answers.
    pub memory: SandboxBytes,
}

/// The memory of all sandboxes of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxBytes {
    /// Most bytes of all of them.
    pub max_bytes: u64,
    /// What they are charged: their memories, their inputs, and a part for each.
    pub charged_bytes: u64,
    /// What ended sandboxes have left in memory, for the next ones.
    pub kept_bytes: u64,
    /// The part of `maxBytes` that no sandbox gets now, since the machine is short of memory.
    pub withheld_bytes: u64,
}

/// The file system of the data directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    /// Free bytes.
    pub free_bytes: u64,
    /// The host takes no new work below so many free bytes.
    pub reserve_bytes: u64,
}

/// Webhooks of all endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Webhooks {
    /// Those that are still to be sent.
    pub waiting: u64,
    /// Those of the present endpoints that were given up, since the start.
    pub given_up: u64,
}
