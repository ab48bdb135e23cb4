//! All services, made from the parts of the host.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gristmill_core::backup::BackupSource;
use gristmill_core::billing::price::Prices;
use gristmill_core::billing::usage::UsageStore;
use gristmill_core::catalog::Catalog;
use gristmill_core::job::action::JobActionStore;
use gristmill_core::jobs::scheduling::Scheduling;
use gristmill_core::logs::Logs;
use gristmill_core::registries::Registries;
use gristmill_core::runtime::{Components, Runtime, VolumeDirectories};
use gristmill_core::store::JobStore;
use gristmill_core::time::Clock;
use gristmill_core::webhook::delivery::DeliveryStore;
use gristmill_core::workers::Workers;

use crate::access::Access;
use crate::backup::Backups;
use crate::billing::Billing;
use crate::blob_uploads::BlobUploads;
use crate::charts::Charts;
use crate::deployed::Deployed;
use crate::endpoints::Endpoints;
use crate::host::Host;
use crate::images::Images;
use crate::job_actions::JobActions;
use crate::keys::Keys;
use crate::live::Live;
use crate::registry_auths::RegistryAuths;
use crate::schedules::Schedules;
use crate::sessions::Sessions;
use crate::templates::Templates;
use crate::volumes::Volumes;

/// The parts of the host that the services use.
#[derive(Debug)]
pub struct ControlParts {
    /// The callers that the host serves.
    pub access: Access,
    /// The clock that measures sessions.
    pub clock: Arc<dyn Clock>,
    /// The deployed objects.
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
    pub volumes: Arc<dyn VolumeDirectories>,
    /// The store, for jobs.
    pub store: Arc<dyn JobStore>,
    /// Submits the jobs of schedules.
    pub scheduler: Arc<dyn Scheduling>,
    /// The store, for actions on many jobs.
    pub actions: Arc<dyn JobActionStore>,
    /// The store, for webhooks.
    pub deliveries: Arc<dyn DeliveryStore>,
    /// The newest log lines of handlers.
    pub logs: Arc<Logs>,
    /// The store, for usage.
    pub usage: Arc<dyn UsageStore>,
    /// Convert usage to credits.
    pub prices: Prices,
    /// The source of backups.
    pub backups: Arc<dyn BackupSource>,
    /// Most endpoints with their own name in the metrics.
    pub metrics_endpoints_max: usize,
}

/// The services, one for each kind of object.
#[derive(Debug)]
pub struct Control {
    /// Endpoints, with their releases, webhooks and logs.
    pub endpoints: Endpoints,
    /// Templates.
    pub templates: Templates,
    /// Image names and their components.
    pub images: Images,
    /// The blobs of images that are being pushed.
    pub blob_uploads: BlobUploads,
    /// Network volumes.
    pub volumes: Volumes,
    /// Credentials for registries.
    pub registry_auths: RegistryAuths,
    /// Schedules.
    pub schedules: Schedules,
    /// API keys.
    pub keys: Keys,
    /// Sessions of the web console.
    pub sessions: Sessions,
    /// The present values of endpoints.
    pub live: Live,
    /// What endpoints did in the last days.
    pub charts: Charts,
    /// Actions on many jobs.
    pub job_actions: JobActions,
    /// Reports of usage.
    pub billing: Billing,
    /// Backups.
    pub backups: Backups,
    /// The whole host.
    pub host: Host,
}

impl Control {
    /// Makes the services.
    pub fn new(parts: ControlParts) -> Self {
        let ControlParts {
            access, clock, catalog, workers, components, registries, runtime, ..
        } = parts;
        let ControlParts {
            volumes,
            store,
            scheduler,
            actions,
            deliveries,
            logs,
            usage,
            prices,
            backups,
            ..
        } = parts;
        let metrics_endpoints_max = parts.metrics_endpoints_max;
        let deployed = Arc::new(Deployed {
            catalog,
            store,
            workers,
            components,
            access,
            backup_turn: Arc::default(),
            backed_up_at_ms: AtomicU64::new(0),
        });
        let billing = Billing::new(usage, prices);
        Self {
            endpoints: Endpoints::new(deployed.clone(), deliveries, logs.clone()),
            templates: Templates::new(deployed.clone(), registries, billing.clone()),
            images: Images::new(deployed.clone()),
            blob_uploads: BlobUploads::new(&*deployed.components),
            volumes: Volumes::new(deployed.clone(), volumes),
            registry_auths: RegistryAuths::new(deployed.clone()),
            schedules: Schedules::new(deployed.clone(), scheduler),
            keys: Keys::new(deployed.clone()),
            sessions: Sessions::new(deployed.clone(), clock),
            live: Live::new(deployed.clone()),
            charts: Charts::new(deployed.clone()),
            job_actions: JobActions::new(deployed.clone(), actions),
            billing,
            backups: Backups::new(backups, deployed.clone()),
            host: Host::new(deployed, runtime, logs, metrics_endpoints_max),
        }
    }
}
