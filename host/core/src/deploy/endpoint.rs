//! Endpoints: a deployed handler with its workers, limits and permissions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use gristmill_wire::bounds;
use gristmill_wire::management::{
    self as wire, EndpointRetention, RateLimit, ReleaseSettings, ScalerType,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use gristmill_wire::Metering;

use crate::deploy::digest::ComponentDigest;
use crate::deploy::egress::AllowedHosts;
use crate::deploy::input_schema::SchemaText;
use crate::deploy::release::{Release, Releases};
use crate::deploy::template::Template;
use crate::deploy::volume::Volume;
use crate::id::{EndpointId, OwnerId, TemplateId, VolumeId};
use crate::incarnation::EndpointIncarnation;
use crate::job::retention::{ChosenRetention, HistoryMax};
use crate::limits::{Bounds, EXECUTION_TIMEOUT_MS};
use crate::sharing::rate::OperationLimit;
use crate::time::Timestamp;
use crate::webhook::signature::WebhookSecrets;

/// Most variables of a release's settings.
const FINGERPRINTS_MAX: usize = 64;

/// Bytes of the fingerprint of a variable's value.
const FINGERPRINT_BYTES: usize = 8;

/// A serverless endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its id, part of its URLs.
    pub id: EndpointId,
    /// A display name.
    pub name: String,
    /// Its owner.
    pub owner: OwnerId,
    /// The template that names its handler.
    pub template: TemplateId,
    /// Whether that template was deleted after the endpoint's owner could no longer use it: it had
    /// been another owner's public template. The endpoint then does not run a new template with the
    /// same id. Absent while the template exists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub template_is_deleted: bool,
    /// The owner of that deleted template: a new template of this owner with the same id can take its
    /// place. Absent without such a template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_template_owner: Option<OwnerId>,
    /// Number of changes of this record, its template and its handler, counted by the catalog. The
    /// first version is 1. A stored record has the version of its own last change.
    pub version: u32,
    /// The changes of the template that `version` and `releases` include, as the template counts
    /// them [for the owner](Template::revision_for); later ones are added when the endpoint is
    /// joined with its template.
    pub template_revision: u32,
    /// The handlers that it has run. Of another owner's template, only the one that it ran first.
    pub releases: Releases,
    /// When it was created.
    pub created_at: Timestamp,
    /// Its number of workers.
    pub scaling: Scaling,
    /// Default `executionTimeout` of its jobs, in milliseconds.
    pub execution_timeout_ms: u64,
    /// The resources of one attempt.
    pub limits: SandboxLimits,
    /// The lifetime of an instance of its handler.
    pub reuse: Reuse,
    /// Most waiting jobs; `None`: the host's default.
    pub waiting_jobs_max: Option<u32>,
    /// How long its jobs are kept after their end.
    pub retention: ChosenRetention,
    /// Most that it keeps of its ended jobs. Absent without a bound.
    #[serde(default, skip_serializing_if = "HistoryMax::is_none")]
    pub history_max: HistoryMax,
    /// Limits of operations, in place of the host's, by the names in [`Endpoint::RATE_LIMITED`].
    pub rate_limits: BTreeMap<String, OperationLimit>,
    /// Hosts that its handlers may call.
    pub allowed_hosts: AllowedHosts,
    /// Whether its handlers' requests and its webhooks carry the trace of their job.
    pub propagates_traces: bool,
    /// The endpoints that its handlers may submit jobs to. Absent without one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub call_endpoints: Vec<EndpointId>,
    /// Environment variables; they override those of the template.
    pub env: BTreeMap<String, String>,
    /// The network volume that its handlers see. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_volume: Option<VolumeId>,
    /// The secrets that sign its webhooks.
    pub webhook_secrets: WebhookSecrets,
    /// A random number of its creation, which tells its files apart from those of an earlier endpoint
    /// with its id.
    pub incarnation: u64,
}

impl Endpoint {
    /// Adds the revisions of its template that the endpoint has not counted yet.
    pub(crate) fn follow(endpoint: &mut Arc<Self>, template: &Template) {
        let counted = endpoint.template_revision;
        let revision = template.revision_for(&endpoint.owner);
        let Some(newer) = revision.checked_sub(counted).filter(|newer| *newer > 0) else {
            return;
        };
        let endpoint = Arc::make_mut(endpoint);
        if endpoint.owner == template.owner {
            for release in template.releases.iter().filter(|release| release.version > counted) {
                let version = endpoint.version.saturating_add(release.version - counted);
                let settings = Some(Arc::new(endpoint.settings()));
                endpoint.releases.push_new(Release { version, settings, ..release.clone() });
            }
        }
        endpoint.version = endpoint.version.saturating_add(newer);
        endpoint.template_revision = revision;
    }

    /// Its present settings, with fingerprints in place of the values of its environment.
    pub fn settings(&self) -> ReleaseSettings {
        let env = self.env.iter().take(FINGERPRINTS_MAX);
        let fingerprint =
            |(name, value): (&String, &String)| (name.clone(), self.fingerprint(name, value));
        self.settings_with(env.map(fingerprint).collect())
    }

    /// Its present settings, with this environment in place of its own.
    pub fn settings_with(&self, env: BTreeMap<String, String>) -> ReleaseSettings {
        let Scaling { workers_min, workers_max, paused, idle_timeout_s, scaler } = self.scaling;
        let Reuse { jobs_max, idle_s } = self.reuse;
        let limits = self.rate_limits.iter().map(|(operation, limit)| {
            let OperationLimit { calls_per_10s, concurrent, calls_per_worker } = *limit;
            (operation.clone(), RateLimit { calls_per_10s, concurrent, calls_per_worker })
        });
        ReleaseSettings {
            template_id: self.template.clone(),
            workers_min,
            workers_max,
            paused,
            idle_timeout: idle_timeout_s,
            scaler_type: match scaler {
                Scaler::QueueDelay(_) => ScalerType::QueueDelay,
                Scaler::RequestCount(_) => ScalerType::RequestCount,
            },
            scaler_value: scaler.value(),
            max_waiting_jobs: self.waiting_jobs_max,
            rate_limits: limits.collect(),
            execution_timeout_ms: self.execution_timeout_ms,
            retention: EndpointRetention {
                completed: self.retention.completed_ms,
                failed: self.retention.failed_ms,
                cancelled: self.retention.cancelled_ms,
                max_jobs: self.history_max.jobs,
                max_mib: self.history_max.bytes.map(|bytes| bytes >> 20),
            },
            memory_mib: self.limits.memory_bytes_max >> 20,
            metering: self.limits.metering,
            reuse: wire::Reuse { max_jobs: jobs_max, max_idle: idle_s },
            allowed_hosts: self.allowed_hosts.patterns().to_vec(),
            propagate_traces: self.propagates_traces,
            call_endpoints: self.call_endpoints.clone(),
            env,
            network_volume_id: self.network_volume.clone(),
            max_fuel: self.limits.fuel_max,
        }
    }

    /// Shows whether the value of a variable has changed. The digest includes a random number of the endpoint
    /// that no answer shows, so that a value cannot be guessed from it.
    fn fingerprint(&self, name: &str, value: &str) -> String {
        let digest = Sha256::new().chain_update(self.incarnation.to_be_bytes());
        let digest = digest.chain_update(name).chain_update([0]).chain_update(value).finalize();
        HEXLOWER.encode(digest.get(..FINGERPRINT_BYTES).unwrap_or_default())
    }

    /// Its incarnation, as a new object.
    pub fn new_incarnation(&self) -> EndpointIncarnation {
        EndpointIncarnation::named(self.owner.clone(), self.id.as_str(), self.incarnation)
    }

    /// The operations that have rate limits.
    pub const RATE_LIMITED: [&str; 9] = bounds::RATE_LIMITED_OPERATIONS;

    /// Bounds of `waiting_jobs_max`.
    pub const WAITING_JOBS_MAX: Bounds = bounds::WAITING_JOBS;

    /// The first version of an endpoint, with its id as its name and the default of every setting.
    pub fn new(
        id: EndpointId,
        owner: OwnerId,
        template: TemplateId,
        created_at: Timestamp,
    ) -> Self {
        Self {
            name: id.to_string(),
            id,
            owner,
            template,
            template_is_deleted: false,
            deleted_template_owner: None,
            version: 1,
            template_revision: 0,
            releases: Releases::default(),
            created_at,
            scaling: Scaling::default(),
            execution_timeout_ms: EXECUTION_TIMEOUT_MS.default,
            limits: SandboxLimits::default(),
            reuse: Reuse::default(),
            waiting_jobs_max: None,
            retention: ChosenRetention::NONE,
            history_max: HistoryMax::default(),
            rate_limits: BTreeMap::new(),
            allowed_hosts: AllowedHosts::default(),
            propagates_traces: false,
            call_endpoints: Vec::new(),
            env: BTreeMap::new(),
            network_volume: None,
            webhook_secrets: WebhookSecrets::generate(),
            incarnation: rand::random(),
        }
    }
}

/// The number of workers of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scaling {
    /// Workers that are kept even when no job waits.
    pub workers_min: u32,
    /// Most workers at one time; 0: its jobs wait.
    pub workers_max: u32,
    /// Whether it has no workers for now, whatever these numbers are. Absent in the record of an endpoint
    /// that is not paused.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Seconds for which a worker beyond `workers_min` waits for work before it ends.
    pub idle_timeout_s: u32,
    /// The rule for starting further workers.
    pub scaler: Scaler,
}

/// The rule for starting further workers. The first worker starts as soon as a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scaler {
    /// One worker when a job has waited for this many seconds, and one more after each further
    /// period.
    QueueDelay(u32),
    /// One worker when there are more than this many jobs, waiting and running, for each worker.
    RequestCount(u32),
}

impl Scaler {
    /// Bounds of the seconds, and of the jobs.
    pub const VALUE: Bounds = bounds::SCALER_VALUE;

    /// The number, in either unit.
    pub fn value(self) -> u32 {
        let (Self::QueueDelay(value) | Self::RequestCount(value)) = self;
        value
    }
}

impl Default for Scaler {
    /// A worker for each job: it costs nothing while it waits, and starts in microseconds.
    fn default() -> Self {
        Self::RequestCount(1)
    }
}

impl Scaling {
    /// The scaling that counts now: no workers while the endpoint is paused.
    #[must_use]
    pub fn in_effect(self) -> Self {
        match self.paused {
            true => Self { workers_min: 0, workers_max: 0, ..self },
            false => self,
        }
    }

    /// Bounds and default of `workers_max`. A worker costs nothing while it waits, and a sandbox
    /// starts in microseconds, so the default is generous.
    pub const WORKERS_MAX: Bounds = bounds::WORKERS;
    /// Bounds and default of `idle_timeout_s`.
    pub const IDLE_TIMEOUT_S: Bounds = bounds::IDLE_TIMEOUT_S;
}

impl Default for Scaling {
    fn default() -> Self {
        Self {
            workers_min: 0,
            workers_max: 16,
            paused: false,
            idle_timeout_s: 5,
            scaler: Scaler::default(),
        }
    }
}

/// The resources that one attempt may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxLimits {
    /// Most bytes of all its memories together.
    pub memory_bytes_max: u64,
    /// Most fuel; `None` derives it from the attempt's timeout.
    pub fuel_max: Option<u64>,
    /// How the handler's computation is metered.
    pub metering: Metering,
}

impl SandboxLimits {
    /// Bounds and default of `memory_bytes_max`, in MiB.
    pub const MEMORY_MIB: Bounds = bounds::MEMORY_MIB;
}

impl Default for SandboxLimits {
    fn default() -> Self {
        Self {
            memory_bytes_max: Self::MEMORY_MIB.default << 20,
            fuel_max: None,
            metering: Metering::Fuel,
        }
    }
}

/// The lifetime of an instance: one job, or several jobs of its endpoint and version, for handlers
/// with a costly start. A job finds the memory as the previous job left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reuse {
    /// Most jobs of one instance; 1: every job has its own instance.
    pub jobs_max: u32,
    /// Seconds for which an instance waits for its next job.
    pub idle_s: u32,
}

impl Reuse {
    /// Bounds and default of `jobs_max`.
    pub const JOBS_MAX: Bounds = bounds::REUSE_JOBS;
    /// Bounds and default of `idle_s`.
    pub const IDLE_S: Bounds = bounds::REUSE_IDLE_S;

    /// How long an instance waits for another job after this many jobs; `None`: it ends at once.
    pub fn waits_after(self, jobs: u32) -> Option<Duration> {
        (jobs < self.jobs_max).then(|| Duration::from_secs(self.idle_s.into()))
    }
}

impl Default for Reuse {
    fn default() -> Self {
        Self { jobs_max: 1, idle_s: 60 }
    }
}

/// An endpoint joined with its template and the component that the template's image names:
/// everything that is needed to run one of its jobs. Immutable; a change of any part makes a new
/// one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// Its template.
    pub template: Arc<Template>,
    /// The component to run; `None` when the template's image refers to no stored component, or
    /// when the endpoint's owner may no longer use the template.
    pub component: Option<ComponentDigest>,
    /// The schema of the component's input, if it has one.
    pub input_schema: Option<SchemaText>,
    /// The network volume that the endpoint names.
    pub volume: Option<Arc<Volume>>,
    /// The incarnation of the endpoint.
    pub incarnation: EndpointIncarnation,
}

impl Deployment {
    /// Whether the endpoint uses its template: the template exists, and the endpoint's owner may use it.
    pub fn uses_template(&self) -> bool {
        !self.endpoint.template_is_deleted && self.template.is_usable_by(&self.endpoint.owner)
    }

    /// Why there is no component to run, in one sentence.
    pub fn missing_component(&self) -> String {
        let Template { id, image, .. } = &*self.template;
        if self.endpoint.template_is_deleted {
            return format!(
                "template `{id}` of another owner was deleted; set the endpoint's `templateId` to another template"
            );
        }
        match self.template.is_usable_by(&self.endpoint.owner) {
            true => format!("no component is stored as `{image}`"),
            false => format!("template `{id}` of another owner is no longer public"),
        }
    }

    /// The component's arguments: the entry point followed by the start command.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        let template = &self.template;
        template.entrypoint.iter().chain(&template.start_command).map(String::as_str)
    }

    /// The component's environment: the template's variables, then the endpoint's, which override
    /// them.
    pub fn environment(&self) -> impl Iterator<Item = (&str, &str)> {
        let overridden = &self.endpoint.env;
        self.template
            .env
            .iter()
            .filter(|(name, _)| !overridden.contains_key(*name))
            .chain(overridden)
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
