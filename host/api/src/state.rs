//! The state of the routes: handles to the parts that the host has created.

use std::ops::Deref;
use std::sync::Arc;

use gristmill_core::backup::BackupSource;
use gristmill_core::catalog::Catalog;
use gristmill_core::delivery::DeliveryStore;
use gristmill_core::disk_space::DiskSpaceGauge;
use gristmill_core::jobs::Jobs;
use gristmill_core::logs::Logs;
use gristmill_core::price::Prices;
use gristmill_core::registries::Registries;
use gristmill_core::runtime::{Components, Runtime, Volumes};
use gristmill_core::secrets::SecretsStore;
use gristmill_core::store::JobStore;
use gristmill_core::time::Clock;
use gristmill_core::usage::UsageStore;
use gristmill_core::workers::Workers;
use tokio::sync::Semaphore;

use crate::access::Access;
use crate::billing::Totals;
use crate::body::BodyReader;
use crate::checks::{Checks, Pages};
use crate::in_flight::InFlight;
use crate::rate_limit::{RateLimiter, RateLimits};
use crate::registry::uploads::Uploads;
use crate::unauthenticated::UnauthenticatedLimiter;

/// The state of the routes. Each call clones it several times; a clone costs one counter.
#[derive(Debug, Clone)]
pub struct ApiState(Arc<Parts>);

/// The parts.
#[derive(Debug)]
pub struct Parts {
    pub(crate) jobs: Arc<Jobs>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) workers: Arc<dyn Workers>,
    pub(crate) components: Arc<dyn Components>,
    pub(crate) registries: Arc<dyn Registries>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) volumes: Arc<dyn Volumes>,
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) disk_space: Arc<DiskSpaceGauge>,
    pub(crate) deliveries: Arc<dyn DeliveryStore>,
    pub(crate) logs: Arc<Logs>,
    pub(crate) usage: Arc<dyn UsageStore>,
    pub(crate) template_totals: Totals,
    pub(crate) prices: Prices,
    pub(crate) backups: Arc<dyn BackupSource>,
    pub(crate) secrets: Arc<dyn SecretsStore>,
    /// Held by the one backup that is being sent.
    pub(crate) backup_turn: Arc<Semaphore>,
    pub(crate) bodies: BodyReader,
    /// The turns of checks of large bodies.
    pub(crate) checks: Checks,
    /// The turns of lists.
    pub(crate) pages: Pages,
    /// The memory of large results that are being assembled.
    pub(crate) results: InFlight,
    pub(crate) uploads: Uploads,
    pub(crate) limiter: RateLimiter,
    pub(crate) access: Access,
    pub(crate) unauthenticated: UnauthenticatedLimiter,
    pub(crate) brand: Box<str>,
}

/// The parts of the host that the routes use.
#[derive(Debug)]
pub struct Services {
    /// The clock that counts the calls of a key.
    pub clock: Arc<dyn Clock>,
    /// The jobs.
    pub jobs: Arc<Jobs>,
    /// The deployed endpoints.
    pub catalog: Arc<Catalog>,
    /// The workers of the endpoints.
    pub workers: Arc<dyn Workers>,
    /// The store of uploaded handlers.
    pub components: Arc<dyn Components>,
    /// Fetches images of templates.
    pub registries: Arc<dyn Registries>,
    /// Runs handlers.
    pub runtime: Arc<dyn Runtime>,
    /// The content of network volumes.
    pub volumes: Arc<dyn Volumes>,
    /// The store, for jobs.
    pub store: Arc<dyn JobStore>,
    /// The free space of the disk.
    pub disk_space: Arc<DiskSpaceGauge>,
    /// The store, for webhooks.
    pub deliveries: Arc<dyn DeliveryStore>,
    /// The newest log lines of handlers.
    pub logs: Arc<Logs>,
    /// The store, for usage.
    pub usage: Arc<dyn UsageStore>,
    /// The source of backups.
    pub backups: Arc<dyn BackupSource>,
    /// The store, for the key of its secrets.
    pub secrets: Arc<dyn SecretsStore>,
}

impl ApiState {
    /// Combines the parts. `brand` completes the names of the template field and query flag for
    /// platform templates: `is<Brand>`, `include<Brand>Templates`. `prices` convert usage to
    /// credits.
    pub fn new(
        services: Services,
        access: Access,
        limits: RateLimits,
        brand: &str,
        prices: Prices,
    ) -> Self {
        let Services { clock, jobs, catalog, workers, components, runtime, .. } = services;
        let Services {
            store,
            disk_space,
            deliveries,
            usage,
            logs,
            registries,
            volumes,
            backups,
            secrets,
            ..
        } = services;
        Self(Arc::new(Parts {
            jobs,
            catalog,
            workers,
            components,
            registries,
            runtime,
            volumes,
            store,
            disk_space,
            deliveries,
            logs,
            usage,
            template_totals: Totals::default(),
            prices,
            backups,
            secrets,
            backup_turn: Arc::new(Semaphore::new(1)),
            bodies: BodyReader::default(),
            checks: Checks::default(),
            pages: Pages::default(),
            results: InFlight::of_results(),
            uploads: Uploads::default(),
            access,
            unauthenticated: UnauthenticatedLimiter::new(limits.unauthenticated),
            limiter: RateLimiter::new(limits, clock),
            brand: brand.into(),
        }))
    }
}

impl Deref for ApiState {
    type Target = Parts;
    fn deref(&self) -> &Parts {
        &self.0
    }
}
