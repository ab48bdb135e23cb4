//! The parts of the host above the store, connected: the sandbox, the workers, the deliveries of webhooks, and the
//! services behind the API.

use std::cmp::Reverse;
use std::sync::Arc;

use anyhow::Context as _;
use gristmill_api::{ApiState, CertificateExpiry, Compatibility, HostFacts, Services};
use gristmill_cluster::{ClusterRuntime, Runners};
use gristmill_control::{Access, Control};
use gristmill_core::billing::price::Prices;
use gristmill_core::catalog::Catalog;
use gristmill_core::depot::Depot;
use gristmill_core::id::OwnerId;
use gristmill_core::job::operations::Jobs;
use gristmill_core::job::signals::Signals;
use gristmill_core::logs::Logs;
use gristmill_core::runtime::Runtime;
use gristmill_core::sharing::disk_space::DiskSpaceGauge;
use gristmill_core::time::Clock;
use gristmill_core::trace::Tracer;
use gristmill_core::workers::Workers as _;
use gristmill_dispatch::{Deliverer, DeliveryParts, Dispatcher, HttpSender, Parts};
use gristmill_egress::AddressPolicy;
use gristmill_logs::LogWriter;
use gristmill_registry::{Fetcher, RegistryHosts};
use gristmill_runtime::WasmtimeRuntime;
use gristmill_store::Store;
use tokio_util::sync::CancellationToken;

use super::backup::HostBackup;
use super::charts_file::ChartsFile;
use super::cluster::host_runtime::HostRuntime;
use super::disk::Disk;
use super::guest_runtimes::GuestRuntimes;
use super::handler_logs;
use super::runtime_settings::RuntimeParts;
use super::settings::{Brand, ServeSettings};

/// The default brand, since the Rust SDK of this service requires the field with this name.
const DEFAULT_BRAND: &str = "Runpod";

/// Most endpoints whose handlers are loaded at the start.
const LOADED_AHEAD_MAX: usize = 64;

/// What the parts are made from.
pub(super) struct Foundation<'a> {
    pub(super) settings: &'a ServeSettings,
    pub(super) runtime_parts: RuntimeParts<'a>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) signals: Arc<Signals>,
    pub(super) disk: Disk,
    pub(super) disk_space: Arc<DiskSpaceGauge>,
    pub(super) store: Arc<Store>,
    pub(super) catalog: Arc<Catalog>,
    /// Of a host with a database.
    pub(super) shared: Option<Shared>,
    pub(super) cluster_address: Option<String>,
    pub(super) prices: Prices,
    pub(super) tracer: Tracer,
    pub(super) certificate: CertificateExpiry,
}

/// The parts of a host with a database that it has with other hosts.
pub(super) struct Shared {
    pub(super) local_runtime: Arc<HostRuntime>,
    pub(super) depot: Arc<dyn Depot>,
    /// The other hosts that run attempts.
    pub(super) runners: Arc<Runners>,
}

/// The parts, running.
pub(super) struct Connected {
    pub(super) local_runtime: Arc<WasmtimeRuntime>,
    pub(super) dispatcher: Arc<Dispatcher>,
    pub(super) deliverer: Deliverer,
    pub(super) jobs: Arc<Jobs>,
    pub(super) charts: Arc<ChartsFile>,
    pub(super) log_writer: Option<LogWriter>,
    pub(super) api: ApiState,
}

impl Foundation<'_> {
    /// Makes the parts, and starts the workers and the deliveries.
    ///
    /// # Errors
    /// The reason why the host cannot start, in one sentence.
    pub(super) async fn connect(self) -> anyhow::Result<Connected> {
        let addresses = self.runtime_parts.addresses.clone();
        let local_runtime = self.local_runtime().await?;
        let runtime: Arc<dyn Runtime> = match &self.shared {
            Some(shared) => {
                Arc::new(ClusterRuntime::new(local_runtime.clone(), shared.runners.clone()))
            }
            None => local_runtime.clone(),
        };
        let Self { settings, store, catalog, signals, clock, tracer, disk_space, .. } = &self;
        let (logs, log_writer) = handler_logs::open(settings, catalog, disk_space.clone())?;
        let dispatcher = Dispatcher::start(Parts {
            store: store.clone(),
            catalog: catalog.clone(),
            runtime: runtime.clone(),
            signals: signals.clone(),
            clock: clock.clone(),
            logs: logs.clone(),
            tracer: tracer.clone(),
            guests: self.runtime_parts.guests.normal.handle().clone(),
        });
        let webhook_allow = settings.webhook_allow.clone();
        let sender = Arc::new(HttpSender::new(webhook_allow, addresses.clone()));
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
        let control = self.control(&local_runtime, runtime, &dispatcher, logs, addresses);
        control.job_actions.resume().await?;
        let charts =
            ChartsFile::open(control.charts.clone(), &settings.data_dir, disk_space.clone());
        tokio::spawn(charts.clone().sample(clock.clone()));
        let services = Services {
            clock: clock.clone(),
            control,
            jobs: jobs.clone(),
            disk_space: disk_space.clone(),
            secrets: store.clone(),
            receivers: sender,
            tracer: tracer.clone(),
            facts: HostFacts { cluster_address: self.cluster_address.clone(), ..settings.facts() },
            certificate: self.certificate.clone(),
            connections_max: settings.connections().connections_max,
        };
        let brand = settings.brand.as_ref().map_or(DEFAULT_BRAND, Brand::as_str);
        let compatibility =
            Compatibility { brand: brand.into(), ignores_gpu: settings.ignore_gpu_fields };
        let api = ApiState::new(services, settings.rate_limits.clone(), compatibility);
        self.watch_disk(&dispatcher)?;
        Ok(Connected { local_runtime, dispatcher, deliverer, jobs, charts, log_writer, api })
    }

    /// The sandbox, with the volumes of earlier processes.
    async fn local_runtime(&self) -> anyhow::Result<Arc<WasmtimeRuntime>> {
        let Self { catalog, runtime_parts, shared, .. } = self;
        let guests = runtime_parts.guests;
        let local_runtime = match shared {
            Some(Shared { local_runtime, depot, .. }) => {
                let local_runtime = local_runtime.owned(catalog.clone(), depot.clone())?;
                // It may have been opened while this host stood by.
                local_runtime
                    .remove_orphans()
                    .await
                    .context("cannot remove files of deleted components")?;
                local_runtime
            }
            None => {
                Arc::new(WasmtimeRuntime::open(runtime_parts.settings(None)?, catalog.clone())?)
            }
        };
        let view = catalog.view();
        local_runtime.resume_volume_removals(|volume| view.volumes.contains_key(volume))?;
        local_runtime.sweep_depot().await.context("cannot remove components that nothing names")?;
        local_runtime.restore_volumes(view.volumes.values().map(|volume| &**volume));
        guests.low_priority.spawn(local_runtime.count_volumes());
        load_ahead(catalog, local_runtime.clone(), guests);
        Ok(local_runtime)
    }

    fn control(
        &self,
        local_runtime: &Arc<WasmtimeRuntime>,
        runtime: Arc<dyn Runtime>,
        dispatcher: &Arc<Dispatcher>,
        logs: Arc<Logs>,
        addresses: AddressPolicy,
    ) -> Control {
        let Self { settings, store, catalog, clock, .. } = self;
        let access = match settings.no_key {
            true => Access::without_keys(OwnerId::operator(), clock.now()),
            false => Access::with_keys(),
        };
        let registry_hosts = RegistryHosts::new(&settings.registry_allow);
        Control::new(gristmill_control::Parts {
            access,
            clock: clock.clone(),
            catalog: catalog.clone(),
            workers: dispatcher.clone(),
            components: local_runtime.clone(),
            registries: Arc::new(Fetcher::new(registry_hosts, addresses, local_runtime.clone())),
            runtime,
            volumes: local_runtime.clone(),
            store: store.clone(),
            actions: store.clone(),
            deliveries: store.clone(),
            logs,
            usage: store.clone(),
            prices: self.prices,
            backups: Arc::new(HostBackup {
                store: store.clone(),
                catalog: catalog.clone(),
                data_dir: settings.data_dir.clone(),
            }),
            metrics_endpoints_max: settings.metrics_endpoints.as_u32() as usize,
        })
    }

    /// Starts waiting jobs when the disk has room again, and frees space of the store when it is nearly full.
    fn watch_disk(self, dispatcher: &Arc<Dispatcher>) -> anyhow::Result<()> {
        let store = Arc::downgrade(&self.store);
        let on_tight = move || {
            if let Some(store) = store.upgrade() {
                store.give_back_space();
            }
        };
        let until = CancellationToken::new();
        self.disk.watch(until, start_waiting_jobs(&self.catalog, dispatcher), on_tight)
    }
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
