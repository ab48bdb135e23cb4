//! A host that stands by runs attempts for the active host.
//!
//! It connects to the active host, and again when the connection has ended. Its sandbox is opened
//! by the first connection, and is the same when the host becomes active: what it has compiled
//! stays.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use gristmill_cluster::{Runner, RunnerSettings};
use gristmill_core::sharing::cores::cores;
use gristmill_store::{ActiveHost, CacheDir};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::cluster::forward::Standby;
use super::cluster::handshake::Purpose;
use super::cluster::host_runtime::HostRuntime;
use super::process::Process;

/// Pause before the next connection.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// The runner of this host.
pub(crate) fn open(
    process: &Process<'_>,
    local_runtime: Arc<HostRuntime>,
    cache_dir: &CacheDir,
) -> Arc<Runner> {
    let settings = RunnerSettings {
        address: process.listens_on.advertised,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        directory: cache_dir.id(),
        sandboxes: process.settings.sandboxes_max().into(),
        memory_bytes: process.settings.sandbox_bytes_max(),
        cores: cores() as u64,
        tenancy: process.tenancy.clone(),
        guests: process.guests.normal.handle().clone(),
        adopt_within: process.settings.adopt_within.as_seconds(),
    };
    Runner::new(settings, local_runtime)
}

/// Runs attempts for the host that is active, until `drain` fires and the last attempt has ended.
pub(crate) async fn run(runner: Arc<Runner>, standby: Arc<Standby>, drain: CancellationToken) {
    while !drain.is_cancelled() {
        if let Some(active) = standby.active() {
            match serve(&runner, &standby, active, &drain).await {
                Ok(()) => info!("the connection of this host's sandboxes has ended"),
                Err(error) => debug!("this host's sandboxes are not used: {error:#}"),
            }
        }
        tokio::select! {
            () = tokio::time::sleep(RECONNECT_PAUSE) => {}
            () = drain.cancelled() => {}
        }
    }
}

/// Serves one connection until it ends, or another host is active.
async fn serve(
    runner: &Arc<Runner>,
    standby: &Standby,
    active: ActiveHost,
    drain: &CancellationToken,
) -> anyhow::Result<()> {
    let address = active.address.context("the active host has no address for other hosts")?;
    let stream = standby.membership(active.session).connect(address, Purpose::Attempts).await?;
    let replaced = async {
        while standby.active() == Some(active) {
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    };
    tokio::select! {
        served = runner.serve(stream, drain.clone()) => served.map_err(|error| anyhow!(error)),
        () = replaced => Err(anyhow!("another host is active")),
    }
}
