//! Counters of the whole host.

use std::sync::Arc;

use gristmill_core::logs::Logs;
use gristmill_core::runtime::{Runtime, RuntimeLoad};
use gristmill_core::store::StoreStats;

use crate::deployed::Deployed;

/// The whole host.
#[derive(Debug, Clone)]
pub struct Host {
    deployed: Arc<Deployed>,
    runtime: Arc<dyn Runtime>,
    logs: Arc<Logs>,
}

/// The present counters. They cover all owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostCounters {
    /// The store's.
    pub store: StoreStats,
    /// Handlers' log lines that could not be written to the disk.
    pub lost_log_lines: u64,
    /// Sandboxes, and workers that wait for one.
    pub load: RuntimeLoad,
    /// Endpoints that exist.
    pub endpoints: u64,
}

impl Host {
    pub(crate) fn new(deployed: Arc<Deployed>, runtime: Arc<dyn Runtime>, logs: Arc<Logs>) -> Self {
        Self { deployed, runtime, logs }
    }

    /// The present counters.
    pub fn counters(&self) -> HostCounters {
        HostCounters {
            store: self.deployed.store.stats(),
            lost_log_lines: self.logs.lost_lines(),
            load: self.runtime.load(),
            endpoints: self.deployed.view().deployments.len() as u64,
        }
    }
}
