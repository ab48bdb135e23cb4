//! The store of this host: in its data directory, or in a database that it shares with other hosts.
//!
//! A host with a database stands by until it is active; its listeners accept connections meanwhile.
//! The checks here refuse a start whose clock or catalog would lose jobs.

use std::sync::Arc;
use std::time::Instant;

use anyhow::anyhow;
use gristmill_cluster::{Runner, Runners};
use gristmill_core::catalog::Catalog;
use gristmill_core::depot::Depot;
use gristmill_core::store::JobStore as _;
use gristmill_edge::ForwardedCalls;
use gristmill_store::{
    ActiveState, CacheDir, Candidate, Damage, NotTaken, OpenError, Recovery, Settings, Store,
    TakenOver, Vacancy,
};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::clock::{is_synchronised, open_in_time};
use super::cluster::Joined;
use super::cluster::gate::Gate;
use super::cluster::handshake::Membership;
use super::cluster::host_runtime::HostRuntime;
use super::hosts::LinkFiles;
use super::listeners::{Fronts, Listeners, Serving};
use super::process::Process;
use super::settings::{Database, ServeSettings};
use super::stand_by::StandingBy;
use super::stop_signals::StopSignals;
use super::{hosts, memory};

/// Bytes that wait in the connection of a host to its own attempts, in each direction.
const OWN_LINK_BYTES: usize = 64 << 10;

/// The store that this host has, and its place among the hosts of a database.
pub(super) struct OwnedStore {
    pub(super) store: Arc<Store>,
    pub(super) recovery: Recovery,
    /// `None` for a host without a database.
    pub(super) cluster: Option<Cluster>,
    pub(super) fronts: Fronts,
    pub(super) serving: Serving,
    /// When this host began to take over from another one, if it did.
    pub(super) took_over_at: Option<Instant>,
}

/// What a host with a database has besides the store.
pub(super) struct Cluster {
    pub(super) depot: Arc<dyn Depot>,
    pub(super) local_runtime: Arc<HostRuntime>,
    active_state: ActiveState,
    membership: Membership,
    cache_dir: CacheDir,
    /// Has the attempts that this host has begun as a standby.
    runner: Arc<Runner>,
}

impl OwnedStore {
    /// Opens the store of the data directory, or stands by until this host is active in the
    /// database. `None` when the host was asked to stop meanwhile.
    ///
    /// # Errors
    /// The reason why the host cannot start, in one sentence.
    pub(super) async fn open(
        process: &Process<'_>,
        listeners: Listeners,
        stop_signals: &mut StopSignals,
    ) -> anyhow::Result<Option<Self>> {
        match &process.settings.database {
            None => tokio::select! {
                opened = Self::of_directory(process, listeners) => opened.map(Some),
                () = stop_signals.next() => Ok(None),
            },
            Some(database) => Self::of_database(process, database, listeners, stop_signals).await,
        }
    }

    async fn of_directory(process: &Process<'_>, listeners: Listeners) -> anyhow::Result<Self> {
        let open = |clock_jump_max_ms| {
            let store_settings = store_settings(process, clock_jump_max_ms);
            let (clock, signals) = (process.clock.clone(), process.signals.clone());
            Store::open(&process.settings.data_dir, clock, signals, store_settings)
        };
        let (store, recovery) = match &process.guard {
            Some(guard) => open_in_time(guard, open).await?,
            None => open(None)?,
        };
        let (fronts, serving) =
            (Fronts::new(process.settings, None), Serving::Bound(Box::new(listeners)));
        Ok(Self {
            store: Arc::new(store),
            recovery,
            cluster: None,
            fronts,
            serving,
            took_over_at: None,
        })
    }

    async fn of_database(
        process: &Process<'_>,
        database: &Database,
        listeners: Listeners,
        stop_signals: &mut StopSignals,
    ) -> anyhow::Result<Option<Self>> {
        let clock_jump_max_ms = process.guard.as_ref().map(|guard| guard.jump_max_ms());
        let store_settings = store_settings(process, clock_jump_max_ms);
        let at = process.listens_on.advertised;
        let (clock, signals) = (process.clock.clone(), process.signals.clone());
        let take_over =
            move |candidate: Candidate, vacancy: Vacancy| -> Result<TakenOver, NotTaken> {
                let (clock, signals) = (clock.clone(), signals.clone());
                let is_clock_synchronised = is_synchronised();
                let store_settings = Settings { is_clock_synchronised, ..store_settings.clone() };
                Store::take_over(candidate, vacancy, at, clock, signals, store_settings)
            };
        let (standing_by, candidate) = tokio::select! {
            begun = StandingBy::begin(process, database, listeners) => begun?,
            () = stop_signals.next() => return Ok(None),
        };
        let joined = tokio::select! {
            joined = standing_by.until_active(candidate, take_over) => Some(joined?),
            () = stop_signals.next() => None,
        };
        let Some(Joined { taken, began }) = joined else {
            tokio::select! {
                () = standing_by.stop() => {}
                () = stop_signals.next() => {}
            }
            return Ok(None);
        };
        let membership = standing_by.membership(taken.session);
        let StandingBy { fronts, running, cache_dir, local_runtime, runner, .. } = standing_by;
        let TakenOver { store, recovery, depot, active_state, .. } = taken;
        Ok(Some(Self {
            store: Arc::new(store),
            recovery,
            cluster: Some(Cluster {
                depot,
                local_runtime,
                active_state,
                membership,
                cache_dir,
                runner,
            }),
            fronts,
            serving: Serving::Running(running),
            took_over_at: began,
        }))
    }
}

impl Cluster {
    /// Refuses calls while this host may have been replaced.
    pub(super) fn gate(&self) -> Gate {
        Gate::new(self.active_state.clone())
    }

    /// Goes on with the attempts of this process, and accepts other hosts, for the calls that they
    /// forward and for their sandboxes, until the process ends, so that they see it stop. The data
    /// directory is this process's until the answer is dropped.
    pub(super) fn accept(
        self,
        listener: Option<TcpListener>,
        fronts: &Fronts,
        process: &Process<'_>,
        runners: Arc<Runners>,
    ) -> CacheDir {
        let (active, own) = tokio::io::duplex(OWN_LINK_BYTES);
        let at = process.listens_on.advertised.unwrap_or(process.listens_on.clients);
        let (attempts, runner) = (runners.clone(), self.runner);
        process.links.spawn(async move { attempts.serve_own(active, at).await });
        process.links.spawn(async move { runner.serve(own, CancellationToken::new()).await });
        if let Some(listener) = listener {
            let response_budget = process.response_budget.clone();
            let calls = ForwardedCalls::new(fronts.of_hosts(), response_budget);
            let files = LinkFiles::within(process.open_files_max);
            let api = Handle::current();
            let hosts = hosts::serve(listener, self.membership, calls, runners, files, api);
            process.links.spawn(hosts);
        }
        self.cache_dir
    }
}

fn store_settings(process: &Process<'_>, clock_jump_max_ms: Option<u64>) -> Settings {
    let Process { settings, failed, .. } = process;
    let failed = failed.clone();
    Settings {
        queue_jobs_max: settings.max_waiting_jobs.as_u32() as usize,
        host_waiting_jobs_max: memory::waiting_jobs_max(),
        host_jobs_max: memory::jobs_max(),
        host_webhook_bytes_max: memory::webhook_bytes_max(),
        waiting_bytes_max: settings.max_waiting_mib.mib_as_bytes(),
        result_bytes_max: settings.max_result_mib.mib_as_bytes(),
        disk_space: process.disk_space.clone(),
        archive_after_ms: settings.archive_after.as_seconds().as_secs() * 1_000,
        secrets_key: settings.secrets_key.clone(),
        clock_jump_max_ms,
        loss_bounds: settings.loss_bounds(),
        on_fatal: Arc::new(move |reason| {
            error!(reason, "the store failed, the host ends now: {reason}");
            // The receiver is dropped when the host is stopping anyway.
            let _ = failed.send(anyhow!("the store failed: {reason}"));
        }),
        ..Settings::with_journal(settings.journal_mib.mib_as_bytes())
    }
}

/// Checks that the catalog has a record of each endpoint with jobs. The store itself continues the
/// deletions that a crash interrupted, so a missing record is damage, and the endpoint's jobs must
/// not be deleted because of it.
///
/// # Errors
/// Names the first such endpoint, and the remedy.
pub(super) async fn check_endpoints(
    store: &Store,
    catalog: &Catalog,
    settings: &ServeSettings,
) -> anyhow::Result<()> {
    for (endpoint, jobs) in store.endpoints()? {
        if catalog.deployment(&endpoint).is_some() {
            continue;
        }
        if jobs > 0
            && let Some(database) = &settings.database
        {
            anyhow::bail!(
                "damaged: endpoint `{endpoint}` has {jobs} jobs in the database {}, and no record in the \
                 catalog: restore a backup of the database, or delete the rows of its jobs",
                database.url()
            );
        }
        if jobs > 0 {
            let details = format!(
                "endpoint `{endpoint}` has {jobs} jobs, and no record in the catalog: a repair adds a \
                 placeholder that keeps them"
            );
            let file = settings.data_dir.join("store.db");
            return Err(OpenError::from(Damage { file, offset: None, details }).into());
        }
        // Only its counts are left.
        store.delete_endpoint(&endpoint).await?;
    }
    Ok(())
}
