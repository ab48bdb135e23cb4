//! Properties of the host that stay as they are from its start on.

use std::collections::BTreeMap;
use std::time::Duration;

use gristmill_core::time::Timestamp;

/// What the operator has set.
#[derive(Debug, Clone, Default)]
pub struct HostFacts {
    /// Most sandboxes at one time.
    pub sandboxes_max: u64,
    /// The address at which other hosts reach this one.
    pub cluster_address: Option<String>,
    /// Settings without secrets, by the names of their options.
    pub settings: BTreeMap<String, String>,
}

/// When the process started, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started {
    pub(crate) at: Timestamp,
    pub(crate) elapsed: Duration,
}
