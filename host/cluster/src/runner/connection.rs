//! A runner, and its connection to the active host.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use gristmill_core::catalog::Component;
use gristmill_core::deploy::endpoint::Deployment;
use gristmill_core::runtime::Runtime;
use gristmill_core::sharing::tenancy::Tenancy;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::attempts::KeptAttempts;

/// Opens the sandboxes of this host, and receives the records of components.
#[async_trait]
pub trait RuntimeSource: Send + Sync + std::fmt::Debug {
    /// The runtime of this host, which the first call opens. The files of components without a
    /// record are removed then.
    ///
    /// # Errors
    /// The reason why it cannot be opened.
    fn open(&self, components: Vec<Component>) -> Result<Arc<dyn Runtime>, CannotOpen>;

    /// Adds the record of a component.
    fn add(&self, component: Component);

    /// Removes the records and files of components that were deleted. Called after each new
    /// deployment.
    async fn prune(&self);
}

/// Why a host has no sandboxes.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct CannotOpen(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// What a runner offers.
#[derive(Debug)]
pub struct RunnerSettings {
    /// The address at which other hosts reach it, for the operator.
    pub address: Option<SocketAddr>,
    /// The version of the program.
    pub version: String,
    /// Names its data directory, which no other process uses meanwhile.
    pub directory: u64,
    /// Most attempts at one time.
    pub sandboxes: u64,
    /// Most memory of all sandboxes together, in bytes.
    pub memory_bytes: u64,
    /// Its cores.
    pub cores: u64,
    /// Whether the active host has several owners; set by its messages.
    pub tenancy: Tenancy,
    /// The threads for attempts.
    pub guests: Handle,
    /// How long an attempt is kept when its connection is lost.
    pub adopt_within: Duration,
}

/// Runs attempts for the active host.
#[derive(Debug)]
pub struct Runner {
    pub(super) settings: RunnerSettings,
    pub(super) source: Arc<dyn RuntimeSource>,
    pub(super) stop: CancellationToken,
    pub(super) attempts: Arc<KeptAttempts>,
    /// Names this process.
    pub(super) instance: u64,
}

/// The state of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) runner: Arc<Runner>,
    pub(super) runtime: OnceLock<Arc<dyn Runtime>>,
    pub(super) deployments: Mutex<HashMap<u64, Arc<Deployment>>>,
    /// Fires when it takes no more attempts.
    pub(super) drain: CancellationToken,
    /// Fires when it ends.
    pub(super) lost: CancellationToken,
}

impl Connection {
    pub(super) fn runtime(&self) -> Result<Arc<dyn Runtime>, String> {
        self.runtime.get().cloned().ok_or_else(|| "there was no greeting".to_owned())
    }

    pub(super) fn deployment(&self, number: u64) -> Option<Arc<Deployment>> {
        self.deployments.lock().get(&number).cloned()
    }
}
