//! The host: opens the data directory, connects the parts, serves until it is asked to stop, and
//! stops in order. Read [`serve`] as the index of the whole program.

mod admin_key;
mod backup;
mod charts_file;
mod clock;
mod cluster;
mod disk;
mod front;
mod guest_runtimes;
mod handler_logs;
mod hosts;
mod link_threads;
mod listeners;
mod log_queue;
mod manual_clock;
mod memory;
mod owned_store;
mod page_threads;
mod process;
mod ready;
mod runner;
mod running_host;
mod runtime_settings;
mod sandboxes;
mod settings;
mod stand_by;
mod stop_signals;
mod telemetry;
mod traces;
mod welcome;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use gristmill_author::DevHook;
use gristmill_cluster::{Runners, RunnersSettings};
use gristmill_core::billing::price::Prices;
use gristmill_core::catalog::Catalog;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::signals::Signals;
use gristmill_core::time::{Clock, SystemClock};
use gristmill_edge::ResponseBudget;
use gristmill_store::Store;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::clock::HostClock;
use self::disk::Disk;
use self::guest_runtimes::GuestRuntimes;
use self::listeners::{Listeners, Running};
pub use self::manual_clock::ManualClockStart;
use self::owned_store::{Cluster, OwnedStore};
use self::process::Process;
use self::running_host::RunningHost;
pub use self::settings::{Brand, Database, Domain, LogFilter, ServeSettings, Within};
use self::stop_signals::StopSignals;
use self::traces::Traces;
use crate::data_dir;

/// Runs the host until SIGTERM or SIGINT. With settings for traces it exports them.
///
/// # Errors
/// The reason why the host cannot start, in one sentence; and a failure of the disk under the
/// store, after which only a new start can trust the disk.
pub fn run(
    settings: &ServeSettings,
    traces: Option<gristmill_traces::TraceSettings>,
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
    traces: Option<gristmill_traces::TraceSettings>,
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
    let links = link_threads::start()?;
    let pages = settings.http_listen.map(|_| page_threads::start()).transpose()?;
    api.spawn(log.report_dropped());
    let of_pages = pages.as_ref().map(Runtime::handle);
    let threads = Threads { guests: &guests, links: links.handle(), pages: of_pages };
    let outcome = api.block_on(serve(settings, prices, open_files_max, threads, traces, dev_hook));
    guests.shutdown();
    links.shutdown_background();
    if let Some(pages) = pages {
        pages.shutdown_background();
    }
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

/// The threads beside those that serve HTTP.
#[derive(Clone, Copy)]
struct Threads<'a> {
    guests: &'a GuestRuntimes,
    /// Those of connections between hosts.
    links: &'a Handle,
    /// Those of the connections to HTTP endpoints by their names.
    pages: Option<&'a Handle>,
}

async fn serve(
    settings: &ServeSettings,
    prices: Prices,
    open_files_max: u64,
    Threads { guests, links, pages }: Threads<'_>,
    traces: Option<gristmill_traces::TraceSettings>,
    dev_hook: Option<DevHook>,
) -> anyhow::Result<()> {
    let started = std::time::Instant::now();
    let listeners = Listeners::bind(settings, links, pages)?;
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
    let (failed, mut failure) = mpsc::unbounded_channel();
    let process = Process {
        settings,
        prices,
        guests,
        links,
        pages,
        is_watched,
        open_files_max,
        listens_on: listeners.addresses(),
        certificate: listeners.certificate(),
        clock,
        guard,
        signals,
        disk: Disk::open(&settings.data_dir, reserve_bytes, disk_space.clone())?,
        disk_space,
        address_policy: runtime_settings::address_policy(settings),
        tracer: traces.tracer().clone(),
        response_budget: Arc::new(ResponseBudget::new(tenancy.clone())),
        tenancy,
        failed,
        stop: CancellationToken::new(),
    };
    let opened = OwnedStore::open(&process, listeners, &mut stop_signals).await?;
    let Some(opened) = opened else { return Ok(()) };
    let OwnedStore { store, recovery, cluster, fronts, serving, took_over_at } = opened;
    let catalog = open_catalog(&process, &store).await?;
    let new_key = admin_key::ensure(&catalog, &settings.data_dir, process.clock.now()).await?;
    let runners = RunnersSettings {
        catalog: catalog.clone(),
        clock: process.clock.clone(),
        adopt_within: settings.adopt_within.as_seconds(),
    };
    let runners = Runners::new(runners);
    let host = RunningHost::start(&process, store, &catalog, cluster.as_ref(), &runners).await?;

    // A host with a database accepts connections already.
    fronts.activate(host.api.clone(), cluster.as_ref().map(Cluster::gate), process.listens_on);
    let ready = ready::Ready {
        addresses: process.listens_on,
        data_dir: &settings.data_dir,
        database: settings.database.as_ref(),
        pool: host.local_runtime.pool(),
        recovery,
        started_in: took_over_at.unwrap_or(started).elapsed(),
        admin_key: new_key.as_ref().map(|key| key.reveal()),
        as_json: settings.json,
    };
    let work = match work {
        Some(work) => work(process.listens_on.clients),
        None => {
            ready::announce(&ready)?;
            let now = process.clock.now();
            welcome::greet(settings, process.listens_on, &catalog, &host.sessions, now);
            Box::pin(std::future::pending())
        }
    };

    let Running { clients, hosts } = serving.start(&fronts, &process);
    // Until the process ends, since it keeps the data directory.
    let _cache_dir = cluster.map(|cluster| cluster.accept(hosts, &fronts, &process, runners));
    let wiping = host.local_runtime.wipe_leftovers().inspect_err(|error| {
        warn!(%error, "files of earlier processes stay until the next start: {error}");
    });
    let outcome = tokio::select! {
        () = stop_signals.next() => Ok(()),
        outcome = work => outcome,
        Some(error) = failure.recv() => return Err(error),
    };
    process.stop.cancel();
    drop(wiping);
    tokio::select! {
        Some(error) = failure.recv() => Err(error),
        () = host.stop(clients, traces, settings.drain_timeout.as_seconds()) => outcome,
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
    let of_key = |file: &Option<PathBuf>| file.as_deref().and_then(data_dir::check_key_file);
    let warnings = [
        data_dir::check(&settings.data_dir)?,
        of_key(&settings.secrets_key),
        of_key(&settings.cluster_key),
    ];
    for warning in warnings.into_iter().flatten() {
        warn!("{warning}");
    }
    Ok(())
}

/// Opens the catalog, and deletes components that nothing names.
///
/// # Errors
/// When it is damaged: see [`owned_store::check_endpoints`].
async fn open_catalog(process: &Process<'_>, store: &Arc<Store>) -> anyhow::Result<Arc<Catalog>> {
    let Process { settings, clock, tenancy, disk_space, .. } = process;
    let catalog = Catalog::open(store.clone(), clock.clone()).await?;
    let catalog = catalog.with_bounds(settings.owner_bounds()).with_tenancy(tenancy.clone());
    let catalog = Arc::new(catalog.with_disk_space(disk_space.clone()));
    owned_store::check_endpoints(store, &catalog, settings).await?;
    // They could not be deleted while they were running.
    catalog.remove_unused_components().await?;
    Ok(catalog)
}
