//! The host: opens the data directory, connects the parts, serves until it is asked to stop, and
//! stops in order. Read [`serve`] as the index of the whole program.

mod admin_key;
mod backup;
mod charts_file;
mod clock;
mod cluster;
mod disk;
mod edge;
mod front;
mod guest_runtimes;
mod handler_logs;
mod hosts;
mod listeners;
mod log_queue;
mod manual_clock;
mod memory;
mod owned_store;
mod parts;
mod ready;
mod runner;
mod runtime_settings;
mod settings;
mod stand_by;
mod stop;
mod telemetry;
mod traces;

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use futures::future::LocalBoxFuture;
use gristmill_cluster::{Runners, RunnersSettings};
use gristmill_core::billing::price::Prices;
use gristmill_core::catalog::Catalog;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::signals::Signals;
use gristmill_core::signals::event_notice::JobListener;
use gristmill_core::time::{Clock, SystemClock};
use gristmill_store::Store;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::clock::HostClock;
use self::disk::Disk;
use self::edge::response_budget::ResponseBudget;
use self::guest_runtimes::GuestRuntimes;
use self::listeners::{Bounds, Listeners, Running};
pub use self::manual_clock::ManualClockStart;
use self::owned_store::{Cluster, OwnedStore, Surroundings};
use self::parts::{Connected, Foundation, Shared};
use self::runtime_settings::RuntimeParts;
pub use self::settings::{Brand, Database, LogFilter, ServeSettings, Within};
use self::stand_by::StandbyParts;
use self::stop::{StopSignals, Stopping};
use self::traces::Traces;
use crate::data_dir;

/// A task beside the host in the same process, which observes it.
pub(crate) struct DevHook {
    /// Receives the events of jobs, with the stacks of handlers that trap.
    pub(crate) listener: Arc<dyn JobListener>,
    /// Starts when the host serves this address. The host stops when this ends, and this is dropped
    /// when the host stops.
    pub(crate) work: Box<dyn FnOnce(SocketAddr) -> LocalBoxFuture<'static, anyhow::Result<()>>>,
}

/// Runs the host until SIGTERM or SIGINT. With settings for traces it exports them.
///
/// # Errors
/// The reason why the host cannot start, in one sentence; and a failure of the disk under the
/// store, after which only a new start can trust the disk.
pub fn run(
    settings: &ServeSettings,
    traces: Option<gristmill_traces::Settings>,
) -> anyhow::Result<()> {
    start(settings, traces, None)
}

/// The same with a hook for `gristmill dev`; the hook, not the host, reports that the host is
/// ready.
///
/// # Errors
/// Errors of [`run`], and of the hook.
pub(crate) fn run_with(settings: &ServeSettings, dev_hook: DevHook) -> anyhow::Result<()> {
    start(settings, None, Some(dev_hook))
}

fn start(
    settings: &ServeSettings,
    traces: Option<gristmill_traces::Settings>,
    dev_hook: Option<DevHook>,
) -> anyhow::Result<()> {
    settings.check()?;
    let prices = settings.read_prices()?;
    let log = telemetry::start(settings)?;
    let open_files_max = allow_open_files();
    let api = tokio::runtime::Builder::new_multi_thread()
        .thread_name("api")
        .enable_all()
        .build()
        .context("cannot start the threads that serve HTTP")?;
    let guests = GuestRuntimes::start()?;
    api.spawn(log.report_dropped());
    let outcome = api.block_on(serve(settings, prices, open_files_max, &guests, traces, dev_hook));
    guests.shutdown();
    api.shutdown_background();
    outcome
}

/// Raises the process's limit of open files to its maximum. The usual 1,024 are fewer than the
/// listener's connections, and each 64 MiB of large payloads are an open file of the journal.
/// Returns the new limit.
fn allow_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "cannot raise the number of open files: {error}");
    }
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

async fn serve(
    settings: &ServeSettings,
    prices: Prices,
    open_files_max: u64,
    guests: &GuestRuntimes,
    traces: Option<gristmill_traces::Settings>,
    dev_hook: Option<DevHook>,
) -> anyhow::Result<()> {
    let started = std::time::Instant::now();
    let listeners = Listeners::bind(settings).await?;
    let (listens_on, certificate) = (listeners.addresses(), listeners.certificate());
    let traces = Traces::start(traces)?;
    let mut stop_signals = StopSignals::new(settings.tls().is_some())?;
    let Clocks { clock, guard } = Clocks::start(settings)?;
    let signals = Arc::new(Signals::default());
    let is_watched = dev_hook.is_some();
    let work = dev_hook.map(|DevHook { listener, work }| {
        signals.set_job_listener(listener);
        work
    });

    warn_of_permissions(settings)?;
    let tenancy = Tenancy::default();
    let disk_space = Arc::new(DiskSpaceGauge::new(tenancy.clone()));
    let reserve_bytes = settings.disk_reserve_mib.map(Within::mib_as_bytes);
    let disk = Disk::open(&settings.data_dir, reserve_bytes, disk_space.clone())?;
    let bounds = Bounds {
        limits: settings.connections(),
        open_files_max,
        response_budget: Arc::new(ResponseBudget::new(tenancy.clone())),
        stop: CancellationToken::new(),
    };
    let (failed, mut failure) = mpsc::unbounded_channel();
    let around = Surroundings {
        guard,
        clock: clock.clone(),
        signals: signals.clone(),
        disk_space: disk_space.clone(),
        failed,
    };
    let runtime_parts = RuntimeParts {
        settings,
        guests,
        is_watched,
        tenancy: tenancy.clone(),
        disk_space: disk_space.clone(),
        addresses: runtime_settings::address_policy(settings),
        tracer: traces.tracer().clone(),
    };
    let standby = StandbyParts { bounds: &bounds, runtime_parts: &runtime_parts, disk: &disk };
    let opened = OwnedStore::open(settings, listeners, around, standby, &mut stop_signals).await?;
    let Some(opened) = opened else { return Ok(()) };
    let OwnedStore { store, recovery, cluster, fronts, serving, took_over_at } = opened;
    let catalog = open_catalog(settings, &store, &clock, tenancy, disk_space.clone()).await?;
    let new_key = admin_key::ensure(&catalog, &settings.data_dir, clock.now()).await?;
    let runners = Runners::new(RunnersSettings { catalog: catalog.clone(), clock: clock.clone() });
    let shared = cluster.as_ref().map(|cluster| Shared {
        local_runtime: cluster.local_runtime.clone(),
        depot: cluster.depot.clone(),
        runners: runners.clone(),
    });
    let foundation = Foundation {
        settings,
        runtime_parts,
        clock,
        signals,
        disk,
        disk_space,
        store: store.clone(),
        catalog,
        shared,
        cluster_address: listens_on.advertised.map(|address| address.to_string()),
        prices,
        tracer: traces.tracer().clone(),
        certificate,
    };
    let Connected { local_runtime, dispatcher, deliverer, jobs, charts, log_writer, api } =
        foundation.connect().await?;

    // A host with a database accepts connections already.
    fronts.activate(api, cluster.as_ref().map(Cluster::gate), listens_on);
    let ready = ready::Ready {
        addresses: listens_on,
        data_dir: &settings.data_dir,
        database: settings.database.as_ref(),
        pool: local_runtime.pool(),
        recovery,
        started_in: took_over_at.unwrap_or(started).elapsed(),
        admin_key: new_key.as_ref().map(|key| key.reveal()),
        as_json: settings.json,
    };
    let work = match work {
        Some(work) => work(listens_on.clients),
        None => {
            ready::announce(&ready)?;
            Box::pin(std::future::pending())
        }
    };

    let (stop, response_budget) = (bounds.stop.clone(), bounds.response_budget.clone());
    let Running { clients, hosts } = serving.start(&fronts, bounds);
    // Until the process ends, since it keeps the data directory.
    let _cache_dir = cluster.map(|cluster| {
        let idle_wait = settings.connections().idle_wait;
        cluster.accept(hosts, &fronts, idle_wait, response_budget, runners, open_files_max)
    });
    let wiping = local_runtime.wipe_leftovers().inspect_err(|error| {
        warn!(%error, "files of earlier processes stay until the next start: {error}");
    });
    let outcome = tokio::select! {
        () = stop_signals.next() => Ok(()),
        outcome = work => outcome,
        Some(error) = failure.recv() => return Err(error),
    };
    stop.cancel();
    drop(wiping);
    let stopping =
        Stopping { jobs, dispatcher, deliverer, clients, charts, store, log_writer, traces };
    tokio::select! {
        Some(error) = failure.recv() => Err(error),
        () = stopping.run(settings.drain_timeout.as_seconds()) => outcome,
        () = stop_signals.next() => {
            warn!("stopped at once; the next start runs interrupted jobs again");
            outcome
        }
    }
}

/// The clocks of the host.
struct Clocks {
    clock: Arc<dyn Clock>,
    /// Confirms the time of the store; `None` if any time is accepted.
    guard: Option<Arc<HostClock>>,
}

impl Clocks {
    fn start(settings: &ServeSettings) -> anyhow::Result<Self> {
        if let Some(start) = settings.manual_clock {
            return Ok(Self { clock: manual_clock::start(start)?, guard: None });
        }
        let Some(jump_max) = settings.clock_jump_max() else {
            return Ok(Self { clock: Arc::new(SystemClock), guard: None });
        };
        let clock = Arc::new(HostClock::new(jump_max));
        let guard = Some(clock.clone()).filter(|_| !settings.accept_clock);
        Ok(Self { clock, guard })
    }
}

/// Reports files with secrets that other users may read.
///
/// # Errors
/// Those of [`data_dir::check`].
fn warn_of_permissions(settings: &ServeSettings) -> anyhow::Result<()> {
    let key_file = settings.secrets_key.as_deref();
    let warnings =
        [data_dir::check(&settings.data_dir)?, key_file.and_then(data_dir::check_key_file)];
    for warning in warnings.into_iter().flatten() {
        warn!("{warning}");
    }
    Ok(())
}

/// Opens the catalog, and deletes components that nothing names.
///
/// # Errors
/// When it is damaged: see [`owned_store::check_endpoints`].
async fn open_catalog(
    settings: &ServeSettings,
    store: &Arc<Store>,
    clock: &Arc<dyn Clock>,
    tenancy: Tenancy,
    disk_space: Arc<DiskSpaceGauge>,
) -> anyhow::Result<Arc<Catalog>> {
    let catalog = Catalog::open(store.clone(), clock.clone()).await?;
    let catalog = catalog.with_bounds(settings.owner_bounds()).with_tenancy(tenancy);
    let catalog = Arc::new(catalog.with_disk_space(disk_space));
    owned_store::check_endpoints(store, &catalog, settings).await?;
    // They could not be deleted while they were running.
    catalog.remove_unused_components().await?;
    Ok(catalog)
}
