//! A host with a database before it is active: it accepts connections, forwards their calls, and
//! runs attempts for the active host.
//!
//! **Its end.** After SIGTERM it accepts no more connections, calls and attempts, and those in
//! progress end within the drain limit. A call that takes longer is cut off, and its job continues
//! on the active host; an attempt that takes longer is stopped, and its job waits again.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gristmill_api::StandbyMetrics;
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
use super::front::StandbyAnswers;
use super::listeners::{Fronts, Listeners, Running};
use super::process::Process;
use super::settings::Database;
use super::{ready, runner, runtime_settings};

/// Time in which attempts that are stopped report their ends.
const LAST_REPORTS: Duration = Duration::from_secs(3);

/// A host that accepts connections and does not have the jobs.
pub(super) struct StandingBy<'a> {
    process: &'a Process<'a>,
    database: &'a Database,
    standby: Arc<Standby>,
    pub(crate) fronts: Fronts,
    pub(crate) running: Running,
    /// Keeps the data directory to this process.
    pub(crate) cache_dir: CacheDir,
    pub(crate) local_runtime: Arc<HostRuntime>,
    /// Has the attempts of the active host, also when this host becomes that.
    pub(crate) runner: Arc<Runner>,
    /// The connections of the runner.
    running_attempts: AbortOnDropHandle<()>,
    /// Ends the measurements of the disk: the active host has its own.
    _disk_watch: DropGuard,
}

impl<'a> StandingBy<'a> {
    /// Connects to the database, and accepts connections.
    ///
    /// # Errors
    /// One sentence names the fault of the database, the key file or the data directory.
    pub(crate) async fn begin(
        process: &'a Process<'a>,
        database: &'a Database,
        listeners: Listeners,
    ) -> anyhow::Result<(Self, Candidate)> {
        let settings = process.settings;
        let cache_dir = CacheDir::lock(&settings.data_dir)?;
        let candidate = connect(database.url(), &settings.key_file()).await?;
        // It makes the ballast, which a start that fails would leave.
        let disk_watch = CancellationToken::new();
        process.disk.clone().watch(disk_watch.clone(), || {}, || {})?;
        let standby = Arc::new(standby(&candidate, settings.cluster_key.as_deref())?);
        let metrics = StandbyMetrics {
            disk_space: process.disk_space.clone(),
            certificate: process.certificate.clone(),
            is_loopback: process.listens_on.has_loopback_for_collectors(),
        };
        let answers = StandbyAnswers { forward: standby.clone(), metrics };
        let fronts = Fronts::new(settings, Some(answers));
        let running = listeners.serve(&fronts, process);
        let depot = candidate.depot().context("cannot start the thread of the database")?;
        let local_runtime = HostRuntime::new(runtime_settings::of(process)?, depot);
        let runner = runner::open(process, local_runtime.clone(), &cache_dir);
        let running_attempts = runner::run(runner.clone(), standby.clone(), process.stop.clone());
        let begun = Self {
            process,
            database,
            standby,
            fronts,
            running,
            cache_dir,
            local_runtime,
            runner,
            running_attempts: AbortOnDropHandle::new(process.links.spawn(running_attempts)),
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
            ready::announce_standby(self.process, self.database)
        };
        join(candidate, &self.standby, stands_by, take_over).await
    }

    pub(crate) fn membership(&self, session: u64) -> Membership {
        self.standby.membership(session)
    }

    /// Ends it in order.
    pub(crate) async fn stop(self) {
        let drain_timeout = self.process.settings.drain_timeout;
        info!("stopping: forwarded calls and running jobs have {drain_timeout} s");
        self.standby.stop();
        self.process.stop.cancel();
        let Self { runner, mut running_attempts, running, .. } = self;
        let calls = running.clients.shut_down();
        match timeout(drain_timeout.as_seconds(), async {
            tokio::join!(calls, &mut running_attempts)
        })
        .await
        {
            Ok(_) => info!("stopped; every forwarded call and every running job had ended"),
            Err(_) => {
                runner.stop();
                let _ = timeout(LAST_REPORTS, running_attempts).await;
                info!("stopped; some forwarded calls or running jobs had not ended");
            }
        }
    }
}
