//! Endpoints: a deployed handler with its workers, limits and permissions.

use std::sync::Arc;
use std::time::Duration;

use data_encoding::HEXLOWER;
use gristmill_wire::management::{EndpointRetention, ReleaseSettings};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub use gristmill_wire::Metering;
pub use gristmill_wire::management::{EndpointSettings, EndpointType, RateLimit, ScalerType};

use crate::deploy::digest::ComponentDigest;
use crate::deploy::release::{Release, Releases};
use crate::deploy::template::Template;
use crate::deploy::volume::Volume;
use crate::id::{EndpointId, OwnerId, TemplateId, VolumeId};
use crate::incarnation::EndpointIncarnation;
use crate::job::retention::{ChosenRetention, HistoryMax};
use crate::time::Timestamp;
use crate::webhook::signature::WebhookSecrets;
use gristmill_json_schema::SchemaText;

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
    /// What it handles, from its creation on. Absent: jobs. Stored as `type`, since `kind` is the
    /// [tag of a catalog's entry](crate::catalog::CatalogEntry).
    #[serde(default, rename = "type", skip_serializing_if = "EndpointType::is_default")]
    pub kind: EndpointType,
    /// The template that names its handler.
    pub template: TemplateId,
    /// Whether that template was deleted after the endpoint's owner could no longer use it: it had
    /// been another owner's public template. The endpoint then does not run a new template with the
    /// same id. Absent while the template exists.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub template_is_deleted: bool,
    /// The owner of that deleted template: a new template of this owner with the same id can take
    /// its place. Absent without such a template.
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
    /// Its settings.
    pub settings: EndpointSettings,
    /// The network volume that its handlers see. Absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_volume: Option<VolumeId>,
    /// The secrets that sign its webhooks.
    pub webhook_secrets: WebhookSecrets,
    /// A random number of its creation, which tells its files apart from those of an earlier
    /// endpoint with its id.
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
                let settings = Some(Arc::new(endpoint.release_settings()));
                endpoint.releases.push_new(Release { version, settings, ..release.clone() });
            }
        }
        endpoint.version = endpoint.version.saturating_add(newer);
        endpoint.template_revision = revision;
    }

    /// Its present settings, with fingerprints in place of the values of its environment.
    pub fn release_settings(&self) -> ReleaseSettings {
        let env = self.settings.env.iter().take(FINGERPRINTS_MAX);
        let fingerprint =
            |(name, value): (&String, &String)| (name.clone(), self.fingerprint(name, value));
        let env = env.map(fingerprint).collect();
        ReleaseSettings {
            template_id: self.template.clone(),
            network_volume_id: self.network_volume.clone(),
            settings: EndpointSettings { env, ..self.settings.clone() },
        }
    }

    /// Shows whether the value of a variable has changed. The digest includes a random number of
    /// the endpoint that no answer shows, so that a value cannot be guessed from it.
    fn fingerprint(&self, name: &str, value: &str) -> String {
        let digest = Sha256::new().chain_update(self.incarnation.to_be_bytes());
        let digest = digest.chain_update(name).chain_update([0]).chain_update(value).finalize();
        HEXLOWER.encode(digest.get(..FINGERPRINT_BYTES).unwrap_or_default())
    }

    /// Its incarnation, as a new object.
    pub fn new_incarnation(&self) -> EndpointIncarnation {
        EndpointIncarnation::named(self.owner.clone(), self.id.as_str(), self.incarnation)
    }

    /// The number of its workers.
    pub fn scaling(&self) -> Scaling {
        Scaling::of(&self.settings)
    }

    /// Most bytes of all memories of an attempt together.
    pub fn memory_bytes_max(&self) -> u64 {
        self.settings.memory_mib << 20
    }

    /// How long an instance waits for another job after this many jobs; `None`: it ends at once.
    pub fn reuse_wait(&self, jobs: u32) -> Option<Duration> {
        let reuse = self.settings.reuse;
        (jobs < reuse.max_jobs).then(|| Duration::from_secs(reuse.max_idle.into()))
    }

    /// How long its jobs are kept after their end.
    pub fn retention(&self) -> ChosenRetention {
        let EndpointRetention { completed, failed, cancelled, .. } = self.settings.retention;
        ChosenRetention { completed_ms: completed, failed_ms: failed, cancelled_ms: cancelled }
    }

    /// Most that it keeps of its ended jobs.
    pub fn history_max(&self) -> HistoryMax {
        let EndpointRetention { max_jobs, max_mib, .. } = self.settings.retention;
        HistoryMax { jobs: max_jobs, bytes: max_mib.map(|mib| mib << 20) }
    }

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
            kind: EndpointType::default(),
            template,
            template_is_deleted: false,
            deleted_template_owner: None,
            version: 1,
            template_revision: 0,
            releases: Releases::default(),
            created_at,
            settings: EndpointSettings::default(),
            network_volume: None,
            webhook_secrets: WebhookSecrets::generate(),
            incarnation: rand::random(),
        }
    }
}

/// The number of workers of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scaling {
    /// Workers that are kept even when no job waits.
    pub workers_min: u32,
    /// Most workers at one time, beside those whose jobs wait for called ones; 0: its jobs wait.
    pub workers_max: u32,
    /// Whether it has no workers for now, whatever these numbers are.
    pub paused: bool,
    /// Seconds for which a worker beyond `workers_min` waits for work before it ends.
    pub idle_timeout_s: u32,
    /// The rule for starting further workers.
    pub scaler: Scaler,
}

/// The rule for starting further workers. The first worker starts as soon as a job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scaler {
    /// One worker when a job has waited for this many seconds, and one more after each further
    /// period.
    QueueDelay(u32),
    /// One worker when there are more than this many jobs, waiting and running, for each worker.
    RequestCount(u32),
}

impl Default for Scaler {
    /// A worker for each job: it costs nothing while it waits, and starts in microseconds.
    fn default() -> Self {
        Self::RequestCount(1)
    }
}

impl Scaling {
    /// That of an endpoint with these settings.
    pub fn of(settings: &EndpointSettings) -> Self {
        Self {
            workers_min: settings.workers_min,
            workers_max: settings.workers_max,
            paused: settings.paused,
            idle_timeout_s: settings.idle_timeout,
            scaler: match settings.scaler_type {
                ScalerType::QueueDelay => Scaler::QueueDelay(settings.scaler_value),
                ScalerType::RequestCount => Scaler::RequestCount(settings.scaler_value),
            },
        }
    }

    /// The scaling that counts now: no workers while the endpoint is paused.
    #[must_use]
    pub fn in_effect(self) -> Self {
        match self.paused {
            true => Self { workers_min: 0, workers_max: 0, ..self },
            false => self,
        }
    }
}

impl Default for Scaling {
    fn default() -> Self {
        Self::of(&EndpointSettings::default())
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
    /// Whether the endpoint uses its template: the template exists, and the endpoint's owner may
    /// use it.
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
        let overridden = &self.endpoint.settings.env;
        self.template
            .env
            .iter()
            .filter(|(name, _)| !overridden.contains_key(*name))
            .chain(overridden)
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}
