//! The host: opens the data directory, connects the parts, serves until it is asked to stop, and
//! stops in order. Read [`run`] as the index of the whole program.

mod addresses;
mod admin_key;
mod backup;
mod charts_file;
mod clock;
mod cluster;
mod connection;
mod disk;
mod front;
mod guest_runtimes;
mod half_close;
mod handler_logs;
mod interrupts;
mod linger;
mod listener;
mod listeners;
mod log_queue;
mod manual_clock;
mod memory;
mod ready;
mod response_budget;
mod settings;
mod telemetry;
mod tls;
mod traces;
mod unread;

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use futures::future::LocalBoxFuture;
use gristmill_api::{ApiState, Services};
use gristmill_control::{Access, Control};
use gristmill_core::billing::price::Prices;
use gristmill_core::catalog::Catalog;
use gristmill_core::deploy::egress::AllowedHosts;
use gristmill_core::depot::Depot;
use gristmill_core::id::OwnerId;
use gristmill_core::job::event_notice::JobListener;
use gristmill_core::job::operations::Jobs;
use gristmill_core::job::signals::Signals;
use gristmill_core::runtime::Runtime as _;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::sharing::tenancy::Tenancy;
use gristmill_core::store::JobStore;
use gristmill_core::time::{Clock, SystemClock};
use gristmill_core::workers::Workers as _;
use gristmill_dispatch::{Deliverer, DeliveryParts, Dispatcher, Drained, HttpSender, Parts};
use gristmill_egress::AddressPolicy;
use gristmill_logs::LogWriter;
use gristmill_registry::{Fetcher, RegistryHosts};
use gristmill_runtime::{Sandbox, SandboxSettings};
use gristmill_store::{ActiveState, CacheDir, Damage, OpenError, Store, TakenOver};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::backup::HostBackup;
use self::charts_file::ChartsFile;
use self::clock::HostClock;
use self::cluster::Joined;
use self::cluster::gate::Gate;
use self::cluster::handshake::Membership;
use self::cluster::stand_by::StandingBy;
use self::disk::Disk;
use self::guest_runtimes::GuestRuntimes;
use self::listener::Connections;
use self::listeners::{Bounds, Fronts, Listeners, Running, Serving};
pub use self::manual_clock::ManualClockStart;
use self::response_budget::ResponseBudget;
pub use self::settings::{Brand, Database, LogFilter, ServeSettings, Within};
use self::traces::Traces;
use crate::{compilers, data_dir};

/// The default brand, since the Rust SDK of this service requires the field with this name.
const DEFAULT_BRAND: &str = "Runpod";

/// Most endpoints whose handlers are loaded at the start.
const LOADED_AHEAD_MAX: usize = 64;

/// Time for answers that are being written once everything else has stopped.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Time for writing handlers' last log lines to the disk.
const LAST_LOG_LINES: Duration = Duration::from_secs(2);

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
    // A host that stood by counts from its take-over.
    let mut started = std::time::Instant::now();
    let listeners = Listeners::bind(settings).await?;
    let (listens_on, certificate) = (listeners.addresses(), listeners.certificate());
    let traces = Traces::start(traces)?;
    let mut stop_signals = StopSignals::new()?;

    let host_clock = match settings.clock_jump_max() {
        Some(jump_max) if settings.manual_clock.is_none() => {
            Some(Arc::new(HostClock::new(jump_max)))
        }
        _ => None,
    };
    let clock: Arc<dyn Clock> = match (&host_clock, settings.manual_clock) {
        (Some(clock), _) => clock.clone(),
        (None, Some(start)) => manual_clock::start(start)?,
        (None, None) => Arc::new(SystemClock),
    };
    let signals = Arc::new(Signals::default());
    let is_watched = dev_hook.is_some();
    let work = dev_hook.map(|DevHook { listener, work }| {
        signals.set_job_listener(listener);
        work
    });
    if let Some(warning) = data_dir::check(&settings.data_dir)? {
        warn!("{warning}");
    }
    if let Some(warning) = settings.secrets_key.as_deref().and_then(data_dir::check_key_file) {
        warn!("{warning}");
    }
    let tenancy = Tenancy::default();
    let disk_space = Arc::new(DiskSpaceGauge::new(tenancy.clone()));
    let reserve_bytes = settings.disk_reserve_mib.map(Within::mib_as_bytes);
    let disk = Disk::open(&settings.data_dir, reserve_bytes, disk_space.clone())?;
    let (failed, mut failure) = mpsc::unbounded_channel();
    let store_settings = store_settings(settings, disk_space.clone(), failed);
    let bounds = Bounds {
        limits: settings.connections(),
        open_files_max,
        response_budget: Arc::new(ResponseBudget::new(tenancy.clone())),
        stop: CancellationToken::new(),
    };
    let (owned, recovery, fronts, serving) = match &settings.database {
        None => {
            let guard = host_clock.filter(|_| !settings.accept_clock);
            let open = |clock_jump_max_ms| {
                let store_settings =
                    gristmill_store::Settings { clock_jump_max_ms, ..store_settings.clone() };
                Store::open(&settings.data_dir, clock.clone(), signals.clone(), store_settings)
            };
            let (store, recovery) = match guard {
                Some(guard) => tokio::select! {
                    opened = clock::open_in_time(&guard, open) => opened?,
                    () = stop_signals.next() => return Ok(()),
                },
                None => open(None)?,
            };
            (Owned::alone(store), recovery, Fronts::new(None), Serving::Bound(listeners))
        }
        Some(database) => {
            let (clock, signals) = (clock.clone(), signals.clone());
            let clock_jump_max = settings.clock_jump_max().filter(|_| !settings.accept_clock);
            let clock_jump_max_ms = clock_jump_max
                .filter(|_| host_clock.is_some())
                .map(|most| u64::try_from(most.as_millis()).unwrap_or(u64::MAX));
            let store_settings = gristmill_store::Settings { clock_jump_max_ms, ..store_settings };
            let take_over = move |candidate, vacancy| {
                let (clock, signals, settings) =
                    (clock.clone(), signals.clone(), store_settings.clone());
                Store::take_over(candidate, vacancy, listens_on.hosts, clock, signals, settings)
            };
            let (standing_by, candidate) = tokio::select! {
                begun = StandingBy::begin(settings, database, listeners, &bounds) => begun?,
                () = stop_signals.next() => return Ok(()),
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
                return Ok(());
            };
            started = began.unwrap_or(started);
            let membership = standing_by.membership(taken.session);
            let StandingBy { fronts, running, cache_dir, .. } = standing_by;
            let TakenOver { store, recovery, depot, active_state, .. } = taken;
            let cluster = Some(Cluster { depot, active_state, membership });
            let owned = Owned { store, cluster, cache_dir: Some(cache_dir) };
            (owned, recovery, fronts, Serving::Running(running))
        }
    };
    let Owned { store, cluster, cache_dir: _cache_dir } = owned;
    let store = Arc::new(store);
    let catalog = Catalog::open(store.clone(), clock.clone()).await?;
    let catalog = catalog.with_bounds(settings.owner_bounds()).with_tenancy(tenancy);
    let catalog = Arc::new(catalog.with_disk_space(disk_space.clone()));
    check_endpoints(&store, &catalog, settings).await?;
    let new_key = admin_key::ensure(&catalog, &settings.data_dir, clock.now()).await?;
    // Components without any reference, which could not be deleted while they were running.
    catalog.remove_unused_components().await?;
    let addresses = address_policy(settings);
    let tracer = traces.tracer().clone();
    let sandbox_settings = SandboxSettings {
        disk_space: disk_space.clone(),
        addresses: addresses.clone(),
        tracer: tracer.clone(),
        depot: cluster.as_ref().map(|cluster| cluster.depot.clone()),
        ..sandbox_settings(settings, is_watched, &catalog, guests)?
    };
    let sandbox = sandbox(sandbox_settings, &catalog)?;
    let sandbox = Arc::new(sandbox);
    sandbox.sweep_depot().await.context("cannot remove components that nothing names")?;
    sandbox.restore_volumes(catalog.view().volumes.values().map(|volume| &**volume));
    guests.low_priority.spawn(sandbox.count_volumes());
    load_ahead(&catalog, sandbox.clone(), guests);
    let (logs, log_writer) = handler_logs::open(settings, &catalog, disk_space.clone())?;
    let dispatcher = Dispatcher::start(Parts {
        store: store.clone(),
        catalog: catalog.clone(),
        runtime: sandbox.clone(),
        signals: signals.clone(),
        clock: clock.clone(),
        logs: logs.clone(),
        tracer: tracer.clone(),
        guests: guests.normal.handle().clone(),
    });
    let weak_store = Arc::downgrade(&store);
    let on_tight = move || {
        if let Some(store) = weak_store.upgrade() {
            store.give_back_space();
        }
    };
    disk.watch(start_waiting_jobs(&catalog, &dispatcher), on_tight)?;
    let webhook_allow = AllowedHosts::new(settings.webhook_allow.clone());
    let sender = Arc::new(HttpSender::new(webhook_allow, addresses.clone()));
    let deliverer = Deliverer::start(DeliveryParts {
        store: store.clone(),
        catalog: catalog.clone(),
        signals: signals.clone(),
        clock: clock.clone(),
        sender: sender.clone(),
        tracer: tracer.clone(),
    });
    let jobs =
        Arc::new(Jobs::new(store.clone(), signals, dispatcher.clone(), settings.strictness()));
    let access = match settings.no_key {
        true => Access::without_keys(OwnerId::operator(), clock.now()),
        false => Access::with_keys(),
    };
    let control = Control::new(gristmill_control::Parts {
        access,
        clock: clock.clone(),
        catalog: catalog.clone(),
        workers: dispatcher.clone(),
        components: sandbox.clone(),
        registries: Arc::new(Fetcher::new(
            RegistryHosts::new(&settings.registry_allow),
            addresses,
            sandbox.clone(),
        )),
        runtime: sandbox.clone(),
        volumes: sandbox.clone(),
        store: store.clone(),
        actions: store.clone(),
        deliveries: store.clone(),
        logs,
        usage: store.clone(),
        prices,
        backups: Arc::new(HostBackup {
            store: store.clone(),
            catalog,
            data_dir: settings.data_dir.clone(),
        }),
        metrics_endpoints_max: settings.metrics_endpoints.as_u32() as usize,
    });
    control.job_actions.resume().await?;
    let charts_file =
        ChartsFile::open(control.charts.clone(), &settings.data_dir, disk_space.clone());
    tokio::spawn(charts_file.clone().sample(clock.clone()));
    let services = Services {
        clock: clock.clone(),
        control,
        jobs: jobs.clone(),
        disk_space,
        secrets: store.clone(),
        receivers: sender,
        tracer,
        facts: settings.facts(),
        certificate,
    };
    let brand = settings.brand.as_ref().map_or(DEFAULT_BRAND, Brand::as_str);
    let state = ApiState::new(services, settings.rate_limits.clone(), brand);

    // A host with a database accepts connections already.
    let gate = cluster.as_ref().map(|cluster| Gate::new(cluster.active_state.clone()));
    fronts.activate(state, gate);
    let ready = ready::Ready {
        addresses: listens_on,
        data_dir: &settings.data_dir,
        database: settings.database.as_ref(),
        pool: sandbox.pool(),
        recovery,
        started_in: started.elapsed(),
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

    let stop = bounds.stop.clone();
    let response_budget = bounds.response_budget.clone();
    let Running { clients: serving, hosts } = serving.start(&fronts, bounds);
    if let (Some(listener), Some(cluster)) = (hosts, cluster) {
        let idle_wait = settings.connections().idle_wait;
        // Until the process ends, so that hosts that stand by see it stop.
        let never = CancellationToken::new();
        let server = listener::server(fronts.of_hosts(), idle_wait, response_budget, never);
        tokio::spawn(cluster::hosts::serve(listener, cluster.membership, server));
    }
    let wiping = sandbox.wipe_leftovers().inspect_err(|error| {
        warn!(%error, "files of earlier processes stay until the next start: {error}");
    });
    let outcome = tokio::select! {
        () = stop_signals.next() => Ok(()),
        outcome = work => outcome,
        Some(error) = failure.recv() => return Err(error),
    };
    stop.cancel();
    drop(wiping);
    tokio::select! {
        Some(error) = failure.recv() => Err(error),
        () = shut_down(
            settings,
            &dispatcher,
            &deliverer,
            &jobs,
            &*store,
            serving,
            Last { charts: &charts_file, log_writer, traces },
        ) => outcome,
        () = stop_signals.next() => {
            warn!("stopped at once; the next start runs interrupted jobs again");
            outcome
        }
    }
}

/// The settings of the store. Its failure is sent to `failed`.
fn store_settings(
    settings: &ServeSettings,
    disk_space: Arc<DiskSpaceGauge>,
    failed: mpsc::UnboundedSender<anyhow::Error>,
) -> gristmill_store::Settings {
    gristmill_store::Settings {
        queue_jobs_max: settings.max_waiting_jobs.as_u32() as usize,
        host_waiting_jobs_max: memory::waiting_jobs_max(),
        host_jobs_max: memory::jobs_max(),
        host_webhook_bytes_max: memory::webhook_bytes_max(),
        waiting_bytes_max: settings.max_waiting_mib.mib_as_bytes(),
        result_bytes_max: settings.max_result_mib.mib_as_bytes(),
        disk_space,
        archive_after_ms: settings.archive_after.as_seconds().as_secs() * 1_000,
        secrets_key: settings.secrets_key.clone(),
        on_fatal: Arc::new(move |reason| {
            error!(reason, "the store failed, the host ends now: {reason}");
            // The receiver is dropped when the host is stopping anyway.
            let _ = failed.send(anyhow!("the store failed: {reason}"));
        }),
        ..gristmill_store::Settings::with_journal(settings.journal_mib.mib_as_bytes())
    }
}

/// The store that this host has, and its place among the hosts of a database.
struct Owned {
    store: Store,
    cluster: Option<Cluster>,
    /// Keeps the data directory of a host with a database to this process.
    cache_dir: Option<CacheDir>,
}

/// What a host with a database has besides the store.
struct Cluster {
    depot: Arc<dyn Depot>,
    active_state: ActiveState,
    membership: Membership,
}

impl Owned {
    /// The store of a host without a database.
    fn alone(store: Store) -> Self {
        Self { store, cluster: None, cache_dir: None }
    }
}

/// Checks that the catalog has a record of each endpoint with jobs. The store itself continues the
/// deletions that a crash interrupted, so a missing record is damage, and the endpoint's jobs must
/// not be deleted because of it.
///
/// # Errors
/// Names the first such endpoint, and the remedy.
async fn check_endpoints(
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
                 placeholder that keeps them. If an earlier version was killed while it deleted this \
                 endpoint, repair the directory, and then delete the placeholder"
            );
            let file = settings.data_dir.join("store.db");
            return Err(OpenError::from(Damage { file, offset: None, details }).into());
        }
        // Only its counts are left.
        store.delete_endpoint(&endpoint).await?;
    }
    Ok(())
}

/// The addresses that requests to public hosts may reach.
fn address_policy(settings: &ServeSettings) -> AddressPolicy {
    let addresses = AddressPolicy::new(&settings.egress_deny);
    if let Err(error) = addresses.look() {
        warn!(
            %error,
            "cannot list this host's network interfaces: {error}; webhooks, images and handlers' \
             requests to public addresses are refused until that is permitted (systemd: add \
             AF_NETLINK to RestrictAddressFamilies=)"
        );
    }
    addresses
}

/// The settings of the sandbox, with compiles in child processes of this same program.
fn sandbox_settings(
    settings: &ServeSettings,
    is_watched: bool,
    catalog: &Catalog,
    guests: &GuestRuntimes,
) -> anyhow::Result<SandboxSettings> {
    let compiler = if is_watched { compilers::for_developer()? } else { compilers::for_host()? };
    Ok(SandboxSettings {
        running_jobs_max: settings.max_running_jobs.as_u32(),
        memory_bytes_max: settings
            .max_sandbox_memory_mib
            .map_or_else(memory::default_budget, Within::mib_as_bytes),
        low_priority_threads: Some(guests.low_priority.handle().clone()),
        private_hosts: AllowedHosts::new(settings.handler_allow.clone()),
        explains_traps: is_watched,
        tenancy: catalog.tenancy(),
        ..SandboxSettings::new(settings.data_dir.clone(), compiler)
    })
}

fn sandbox(settings: SandboxSettings, catalog: &Arc<Catalog>) -> anyhow::Result<Sandbox> {
    let sandbox = Sandbox::open(settings, catalog.clone())?;
    let view = catalog.view();
    sandbox.resume_volume_removals(|volume| view.volumes.contains_key(volume))?;
    Ok(sandbox)
}

/// Makes the workers of all endpoints check their queues once the disk has room, since they start
/// no jobs while it is full.
fn start_waiting_jobs(
    catalog: &Arc<Catalog>,
    dispatcher: &Arc<Dispatcher>,
) -> impl Fn() + Send + use<> {
    let (catalog, workers) = (Arc::downgrade(catalog), Arc::downgrade(dispatcher));
    move || {
        let (Some(catalog), Some(workers)) = (catalog.upgrade(), workers.upgrade()) else { return };
        for endpoint in catalog.view().deployments.keys() {
            workers.refresh(endpoint);
        }
    }
}

/// Loads the components of the newest endpoints before their first jobs: loading a Python handler
/// takes up to 20 ms. Runs at the lowest priority, and no job waits for it.
fn load_ahead(catalog: &Catalog, sandbox: Arc<Sandbox>, guests: &GuestRuntimes) {
    let mut deployments: Vec<_> = catalog.view().deployments.values().cloned().collect();
    deployments.sort_by_key(|deployment| Reverse(deployment.endpoint.created_at));
    guests.low_priority.spawn(async move {
        for deployment in deployments.into_iter().take(LOADED_AHEAD_MAX) {
            // An error is reported by its first job.
            let _ = sandbox.prepare(&deployment).await;
        }
    });
}

/// Parts that write or send the rest when the host stops.
struct Last<'a> {
    charts: &'a ChartsFile,
    log_writer: Option<LogWriter>,
    traces: Traces,
}

/// Stops in order: accepts no new connections and jobs, lets running jobs end or returns them to
/// the queue, answers waiting calls, and closes the store last. Webhooks in progress get a few
/// seconds.
async fn shut_down(
    settings: &ServeSettings,
    dispatcher: &Dispatcher,
    deliverer: &Deliverer,
    jobs: &Jobs,
    store: &dyn JobStore,
    serving: tokio::task::JoinHandle<Connections>,
    Last { charts, log_writer, traces }: Last<'_>,
) {
    info!("stopping: running jobs have {} s", settings.drain_timeout);
    jobs.stop_accepting();
    let drained = dispatcher.drain(settings.drain_timeout.as_seconds()).await;
    deliverer.drain().await;
    jobs.stop_waiting();
    if let Ok(connections) = serving.await {
        // Clients that have not read their answers by then are disconnected.
        let _ = tokio::time::timeout(LAST_ANSWERS, connections.shutdown()).await;
    }
    charts.close().await;
    store.close().await;
    if let Some(log_writer) = log_writer {
        // It only panics with the process.
        let _ = tokio::task::spawn_blocking(move || log_writer.close(LAST_LOG_LINES)).await;
    }
    traces.close().await;
    match drained {
        Drained::Finished => info!("stopped; every running job had ended"),
        Drained::Requeued => info!("stopped; some jobs were still running and wait again"),
    }
}

/// SIGTERM and SIGINT: the first asks to stop in order, the second to stop at once.
struct StopSignals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
}

impl StopSignals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
