//! The host that has the jobs: the sandbox, the workers, the deliveries of webhooks, and the
//! services behind the API, above its store.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gristmill_api::{ApiParts, ApiState, Compatibility, HostFacts};
use gristmill_cluster::{ClusterRuntime, Runners};
use gristmill_control::{Access, Control, ControlParts, Sessions};
use gristmill_core::catalog::Catalog;
use gristmill_core::id::OwnerId;
use gristmill_core::jobs::operations::Jobs;
use gristmill_core::runtime::Runtime;
use gristmill_core::store::JobStore as _;
use gristmill_core::workers::Workers as _;
use gristmill_dispatch::{
    Deliverer, DeliveryParts, Dispatcher, Drained, HttpSender, Parts, Scheduler, SchedulerParts,
};
use gristmill_logs::LogWriter;
use gristmill_registry::{Fetcher, RegistryHosts};
use gristmill_runtime::WasmtimeRuntime;
use gristmill_store::Store;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::backup::HostBackup;
use super::charts_file::ChartsFile;
use super::guest_runtimes::GuestRuntimes;
use super::listeners::Clients;
use super::owned_store::Cluster;
use super::process::Process;
use super::settings::Brand;
use super::traces::Traces;
use super::{handler_logs, runtime_settings};

/// The default brand, since the Rust SDK of this service requires the field with this name.
const DEFAULT_BRAND: &str = "Runpod";

/// Most endpoints whose handlers are loaded at the start.
const LOADED_AHEAD_MAX: usize = 64;

/// Time for answers that are being written once everything else has stopped.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Time for writing handlers' last log lines to the disk.
const LAST_LOG_LINES: Duration = Duration::from_secs(2);

/// The host that has the jobs: its parts above the store, running.
pub(super) struct RunningHost {
    pub(super) local_runtime: Arc<WasmtimeRuntime>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) deliverer: Deliverer,
    pub(super) jobs: Arc<Jobs>,
    pub(super) charts: Arc<ChartsFile>,
    pub(super) store: Arc<Store>,
    pub(super) log_writer: Option<LogWriter>,
    pub(super) sessions: Sessions,
    pub(super) api: ApiState,
}

impl RunningHost {
    /// Makes the parts above the store, and starts the workers and the deliveries. A host with a
    /// database has `cluster`, whose `runners` are the other hosts that run attempts.
    ///
    /// # Errors
    /// The reason why the host cannot start, in one sentence.
    pub(super) async fn start(
        process: &Process<'_>,
        store: Arc<Store>,
        catalog: &Arc<Catalog>,
        cluster: Option<&Cluster>,
        runners: &Arc<Runners>,
    ) -> anyhow::Result<Self> {
        let Process { settings, signals, clock, tracer, disk_space, address_policy, .. } = process;
        let local_runtime = open_runtime(process, catalog, cluster).await?;
        let runtime: Arc<dyn Runtime> = match cluster {
            Some(_) => Arc::new(ClusterRuntime::new(local_runtime.clone(), runners.clone())),
            None => local_runtime.clone(),
        };
        let (logs, log_writer) = handler_logs::open(settings, catalog, disk_space.clone())?;
        let dispatcher = Dispatcher::start(Parts {
            store: store.clone(),
            catalog: catalog.clone(),
            runtime: runtime.clone(),
            signals: signals.clone(),
            clock: clock.clone(),
            logs: logs.clone(),
            tracer: tracer.clone(),
            guests: process.guests.normal.handle().clone(),
        });
        let webhook_allow = settings.webhook_allow.clone();
        let sender = Arc::new(HttpSender::new(webhook_allow, address_policy.clone()));
        let deliverer = Deliverer::start(DeliveryParts {
            store: store.clone(),
            catalog: catalog.clone(),
            signals: signals.clone(),
            clock: clock.clone(),
            sender: sender.clone(),
            tracer: tracer.clone(),
        });
        let jobs = Arc::new(Jobs::new(
            store.clone(),
            signals.clone(),
            dispatcher.clone(),
            settings.strictness(),
            catalog.input_checks().clone(),
        ));
        let scheduler = Scheduler::start(SchedulerParts {
            jobs: jobs.clone(),
            store: store.clone(),
            notes: store.clone(),
            catalog: catalog.clone(),
            clock: clock.clone(),
        });
        let access = match settings.no_key {
            true => Access::without_keys(OwnerId::operator(), clock.now()),
            false => Access::with_keys(),
        };
        let registry_hosts = RegistryHosts::new(&settings.registry_allow);
        let fetcher = Fetcher::new(registry_hosts, address_policy.clone(), local_runtime.clone());
        let control = Control::new(ControlParts {
            access,
            clock: clock.clone(),
            catalog: catalog.clone(),
            workers: dispatcher.clone(),
            components: local_runtime.clone(),
            registries: Arc::new(fetcher),
            runtime,
            volumes: local_runtime.volumes(),
            store: store.clone(),
            scheduler,
            actions: store.clone(),
            deliveries: store.clone(),
            logs,
            usage: store.clone(),
            prices: process.prices,
            backups: Arc::new(HostBackup {
                store: store.clone(),
                catalog: catalog.clone(),
                data_dir: settings.data_dir.clone(),
            }),
            metrics_endpoints_max: settings.metrics_endpoints.as_u32() as usize,
        });
        control.job_actions.resume().await?;
        let charts =
            ChartsFile::open(control.charts.clone(), &settings.data_dir, disk_space.clone());
        tokio::spawn(charts.clone().sample(clock.clone()));
        let sessions = control.sessions.clone();
        let api = api(process, control, (jobs.clone(), dispatcher.clone()), &store, sender);
        watch_disk(process, &store, catalog, &dispatcher)?;
        Ok(Self {
            local_runtime,
            dispatcher,
            deliverer,
            jobs,
            charts,
            store,
            log_writer,
            sessions,
            api,
        })
    }

    /// Stops in order: accepts no new jobs, lets running jobs end within `drain_max` or returns
    /// them to the queue, answers waiting calls, and closes the store, and then the log lines and
    /// the traces. Webhooks in progress get a few seconds. `clients` ends, with their connections,
    /// once no more are accepted.
    pub(super) async fn stop(self, clients: Clients, traces: Traces, drain_max: Duration) {
        info!("stopping: running jobs have {} s", drain_max.as_secs());
        self.jobs.stop_accepting();
        let drained = self.dispatcher.drain(drain_max).await;
        self.deliverer.drain().await;
        self.jobs.stop_waiting();
        // Clients that have not read their answers by then are disconnected.
        let _ = tokio::time::timeout(LAST_ANSWERS, clients.shut_down()).await;
        self.dispatcher.settle().await;
        self.charts.close().await;
        self.store.close().await;
        if let Some(log_writer) = self.log_writer {
            // It only panics with the process.
            let _ = tokio::task::spawn_blocking(move || log_writer.close(LAST_LOG_LINES)).await;
        }
        traces.close().await;
        match drained {
            Drained::Finished => info!("stopped; every running job had ended"),
            Drained::Requeued => info!("stopped; some jobs were still running and wait again"),
        }
    }
}

/// The state of the API's routes.
fn api(
    process: &Process<'_>,
    control: Control,
    (jobs, http_calls): (Arc<Jobs>, Arc<Dispatcher>),
    store: &Arc<Store>,
    receivers: Arc<HttpSender>,
) -> ApiState {
    let settings = process.settings;
    let advertised = process.listens_on.advertised;
    let cluster_address = advertised.map(|address| address.to_string());
    let brand = settings.brand.as_ref().map_or(DEFAULT_BRAND, Brand::as_str);
    ApiState::new(ApiParts {
        clock: process.clock.clone(),
        control,
        jobs,
        http_calls,
        disk_space: process.disk_space.clone(),
        secrets: store.clone(),
        receivers,
        tracer: process.tracer.clone(),
        facts: HostFacts { cluster_address, ..settings.facts() },
        certificate: process.certificate.clone(),
        connections_max: settings.connections().connections_max,
        http_domain: settings.http_domain.as_ref().map(|domain| domain.as_str().into()),
        limits: settings.rate_limits.clone(),
        compatibility: Compatibility {
            brand: brand.into(),
            ignores_gpu: settings.ignore_gpu_fields,
        },
    })
}

/// The sandbox, with the volumes of earlier processes.
async fn open_runtime(
    process: &Process<'_>,
    catalog: &Arc<Catalog>,
    cluster: Option<&Cluster>,
) -> anyhow::Result<Arc<WasmtimeRuntime>> {
    let local_runtime = match cluster {
        Some(Cluster { local_runtime, depot, .. }) => {
            let local_runtime = local_runtime.owned(catalog.clone(), depot.clone())?;
            // It may have been opened while this host stood by.
            local_runtime
                .remove_orphans()
                .await
                .context("cannot remove files of deleted components")?;
            local_runtime
        }
        None => Arc::new(WasmtimeRuntime::open(runtime_settings::of(process)?, catalog.clone())?),
    };
    let view = catalog.view();
    local_runtime.resume_volume_removals(|volume| view.volumes.contains_key(volume))?;
    local_runtime.sweep_depot().await.context("cannot remove components that nothing names")?;
    local_runtime.restore_volumes(view.volumes.values().map(|volume| &**volume));
    process.guests.low_priority.spawn(local_runtime.count_volumes());
    load_ahead(catalog, local_runtime.clone(), process.guests);
    Ok(local_runtime)
}

/// Starts waiting jobs when the disk has room again, and frees space of the store when it is nearly
/// full.
fn watch_disk(
    process: &Process<'_>,
    store: &Arc<Store>,
    catalog: &Arc<Catalog>,
    dispatcher: &Arc<Dispatcher>,
) -> anyhow::Result<()> {
    let store = Arc::downgrade(store);
    let on_tight = move || {
        if let Some(store) = store.upgrade() {
            store.give_back_space();
        }
    };
    let until = CancellationToken::new();
    process.disk.clone().watch(until, start_waiting_jobs(catalog, dispatcher), on_tight)
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
fn load_ahead(catalog: &Catalog, local_runtime: Arc<WasmtimeRuntime>, guests: &GuestRuntimes) {
    let mut deployments: Vec<_> = catalog.view().deployments.values().cloned().collect();
    deployments.sort_by_key(|deployment| Reverse(deployment.endpoint.created_at));
    guests.low_priority.spawn(async move {
        for deployment in deployments.into_iter().take(LOADED_AHEAD_MAX) {
            // An error is reported by its first job.
            let _ = local_runtime.prepare(&deployment).await;
        }
    });
}
