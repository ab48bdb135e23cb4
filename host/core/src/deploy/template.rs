//! Templates: reusable definitions of the image that workers run.

use std::collections::BTreeMap;

use gristmill_wire::management::TemplateCategory;
use serde::{Deserialize, Serialize};

use crate::access::key::ApiKey;
use crate::deploy::digest::ComponentDigest;
use crate::deploy::release::Releases;
use crate::id::{OwnerId, TemplateId};

/// A template. The API defines the field names of the wire format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Template {
    /// Its id.
    pub id: TemplateId,
    /// Its owner.
    pub owner: OwnerId,
    /// Number of changes of this record and of the component that its image names, counted by the
    /// catalog. Endpoints add it to their versions.
    pub revision: u32,
    /// Those of its changes before and after which no other owner could use it. Endpoints of other
    /// owners do not count them.
    #[serde(default)]
    pub hidden_changes: u32,
    /// The components that its image has named, by its revisions. Endpoints of the same owner add
    /// them to their releases. Absent before the first one.
    #[serde(default, skip_serializing_if = "Releases::is_empty")]
    pub releases: Releases,
    /// Unique among the owner's templates.
    pub name: String,
    /// The name of the handler: an uploaded component, `name:tag` or `name@sha256:…`, or an image
    /// in a registry.
    pub image: String,
    /// The component that was fetched for an image in a registry.
    pub fetched: Option<ComponentDigest>,
    /// A label for readers.
    pub category: TemplateCategory,
    /// Scratch space of a worker, in gigabytes.
    pub container_disk_gb: u32,
    /// Persistent space, in gigabytes; shown, without effect.
    pub volume_gb: u32,
    /// Where a network volume is mounted.
    pub volume_mount_path: String,
    /// The id of the credentials for fetching the image; empty: none.
    pub registry_auth: String,
    /// First part of the component's arguments.
    pub entrypoint: Vec<String>,
    /// Second part of the component's arguments.
    pub start_command: Vec<String>,
    /// The component's environment.
    pub env: BTreeMap<String, String>,
    /// Ports, as `number/protocol`; shown, never opened.
    pub ports: Vec<String>,
    /// Markdown text for readers.
    pub readme: String,
    /// Whether other owners may use it.
    pub is_public: bool,
    /// Whether it is a platform template of the operator.
    pub is_platform: bool,
    /// Whether its instances are serverless workers.
    pub is_serverless: bool,
}

/// The further templates that a lookup may find: templates of other owners, and templates in use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TemplateFilter {
    /// Templates that an endpoint uses.
    pub endpoint_bound: bool,
    /// Public templates of other owners.
    pub public: bool,
    /// Platform templates.
    pub platform: bool,
}

impl Template {
    /// A serverless template that runs `image`, with its id as its name and no other setting.
    pub fn new(id: TemplateId, owner: OwnerId, image: &str) -> Self {
        Self {
            name: id.to_string(),
            id,
            owner,
            revision: 0,
            hidden_changes: 0,
            releases: Releases::default(),
            image: image.to_owned(),
            fetched: None,
            category: TemplateCategory::default(),
            container_disk_gb: 0,
            volume_gb: 0,
            volume_mount_path: String::new(),
            registry_auth: String::new(),
            entrypoint: Vec::new(),
            start_command: Vec::new(),
            env: BTreeMap::new(),
            ports: Vec::new(),
            readme: String::new(),
            is_public: false,
            is_platform: false,
            is_serverless: true,
        }
    }

    /// Whether `reader` finds this template with `filter`. The reader's own unbound template is
    /// always found; a bound, a public foreign and a platform template with its flag, and one that
    /// is several of these with any of their flags. A platform template is not public besides: the
    /// flag for public templates is for those of the community.
    /// `is_bound`: an endpoint that the reader sees uses the template.
    pub fn is_visible_to(&self, reader: &ApiKey, is_bound: bool, filter: TemplateFilter) -> bool {
        let is_own = reader.sees(&self.owner);
        let by_kind = match (self.is_platform, is_own) {
            (true, _) => filter.platform,
            (false, true) => !is_bound,
            (false, false) => self.is_public && filter.public,
        };
        let may_be_seen = is_own || self.is_public || self.is_platform;
        by_kind || (is_bound && filter.endpoint_bound && may_be_seen)
    }

    /// Whether endpoints of this owner may run the template.
    pub fn is_usable_by(&self, owner: &OwnerId) -> bool {
        self.owner == *owner || self.is_shared()
    }

    /// Whether endpoints of all owners may run the template.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_public || self.is_platform
    }

    /// The number of its changes that endpoints of this owner count.
    pub(crate) fn revision_for(&self, owner: &OwnerId) -> u32 {
        match self.owner == *owner {
            true => self.revision,
            false => self.revision.saturating_sub(self.hidden_changes),
        }
    }
}

#[cfg(test)]
#[path = "template_tests.rs"]
mod tests;
