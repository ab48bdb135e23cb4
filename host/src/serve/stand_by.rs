//! A host with a database before it is active: it accepts connections, forwards their calls, and runs attempts for
//! the active host.
//!
//! **Its end.** After SIGTERM it accepts no more connections, calls and attempts, and those in progress end within
//! the drain limit. A call that takes longer is cut off, and its job continues on the active host; an attempt that
//! takes longer is stopped, and its job waits again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gristmill_cluster::Runner;
use gristmill_store::{ActiveHost, CacheDir, Candidate, NotTaken, TakenOver, Vacancy};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::AbortOnDropHandle;
use tracing::info;

use super::cluster::forward::Standby;
use super::cluster::handshake::Membership;
use super::cluster::host_runtime::HostRuntime;
use super::cluster::{Joined, connect, join, standby};
use super::disk::Disk;
use super::listeners::{Addresses, Bounds, Fronts, Listeners, Running};
use super::ready;
use super::runner;
use super::runtime_settings::RuntimeParts;
use super::settings::{Database, ServeSettings};

/// Time in which attempts that are stopped report their ends.
const LAST_REPORTS: Duration = Duration::from_secs(3);

/// What a host needs to stand by.
#[derive(Clone, Copy)]
pub(crate) struct StandbyParts<'a> {
    pub(crate) bounds: &'a Bounds,
    pub(crate) runtime_parts: &'a RuntimeParts<'a>,
    pub(crate) disk: &'a Disk,
}

/// A host that accepts connections and does not have the jobs.
pub(crate) struct StandingBy<'a> {
    settings: &'a ServeSettings,
    database: &'a Database,
    standby: Arc<Standby>,
    addresses: Addresses,
    pub(crate) fronts: Fronts,
    pub(crate) running: Running,
    /// Keeps the data directory to this process.
    pub(crate) cache_dir: CacheDir,
    pub(crate) local_runtime: Arc<HostRuntime>,
    runner: Arc<Runner>,
    /// The connections of the runner.
    running_attempts: AbortOnDropHandle<()>,
    stop: CancellationToken,
    /// Ends the measurements of the disk: the active host has its own.
    _disk_watch: DropGuard,
}

impl<'a> StandingBy<'a> {
    /// Connects to the database, and accepts connections.
    ///
    /// # Errors
    /// One sentence names the fault of the database, the key file or the data directory.
    pub(crate) async fn begin(
        settings: &'a ServeSettings,
        database: &'a Database,
        listeners: Listeners,
        StandbyParts { bounds, runtime_parts, disk }: StandbyParts<'_>,
    ) -> anyhow::Result<(Self, Candidate)> {
        let cache_dir = CacheDir::lock(&settings.data_dir)?;
        let disk_watch = CancellationToken::new();
        disk.clone().watch(disk_watch.clone(), || {}, || {})?;
        let candidate = connect(database.url(), &settings.key_file()).await?;
        let standby = Arc::new(standby(&candidate));
        let fronts = Fronts::new(Some(standby.clone()));
        let addresses = listeners.addresses();
        let running = listeners.serve(&fronts, bounds.clone());
        let stop = bounds.stop.clone();
        let depot = candidate.depot().context("cannot start the thread of the database")?;
        let local_runtime = HostRuntime::new(runtime_parts.settings(None)?, depot);
        let runner = runner::open(runtime_parts, addresses, local_runtime.clone());
        let running_attempts = runner::run(runner.clone(), standby.clone(), stop.clone());
        let begun = Self {
            settings,
            database,
            standby,
            addresses,
            fronts,
            running,
            cache_dir,
            local_runtime,
            runner,
            running_attempts: AbortOnDropHandle::new(tokio::spawn(running_attempts)),
            stop,
            _disk_watch: disk_watch.drop_guard(),
        };
        Ok((begun, candidate))
    }

    /// Stands by until this host is active.
    ///
    /// # Errors
    /// When the database, or this host, needs attention.
    pub(crate) async fn until_active(
        &self,
        candidate: Candidate,
        take_over: impl Fn(Candidate, Vacancy) -> Result<TakenOver, NotTaken> + Clone + Send + 'static,
    ) -> anyhow::Result<Joined> {
        let mut is_announced = false;
        let stands_by = |active: &ActiveHost| {
            let at = active.address.map_or_else(|| "unknown".to_owned(), |at| at.to_string());
            info!("standing by: the active host is at {at}");
            if std::mem::replace(&mut is_announced, true) {
                return Ok(());
            }
            ready::announce_standby(self.addresses, self.settings, self.database)
        };
        join(candidate, &self.standby, stands_by, take_over).await
    }

    pub(crate) fn membership(&self, session: u64) -> Membership {
        self.standby.membership(session)
    }

    /// Ends it in order.
    pub(crate) async fn stop(self) {
        let drain_max = self.settings.drain_timeout.as_seconds();
        info!("stopping: forwarded calls and running jobs have {} s", self.settings.drain_timeout);
        self.standby.stop();
        self.stop.cancel();
        let Self { runner, mut running_attempts, running, .. } = self;
        let calls = async {
            if let Ok(connections) = running.clients.await {
                connections.shutdown().await;
            }
        };
        match timeout(drain_max, async { tokio::join!(calls, &mut running_attempts) }).await {
            Ok(_) => info!("stopped; every forwarded call and every running job had ended"),
            Err(_) => {
                runner.stop();
                let _ = timeout(LAST_REPORTS, running_attempts).await;
                info!("stopped; some forwarded calls or running jobs had not ended");
            }
        }
    }
}
