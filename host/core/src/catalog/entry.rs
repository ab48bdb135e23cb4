//! The objects of the catalog, their keys, and their changes.

use serde::{Deserialize, Serialize};

use super::component::Component;
use super::image::{Image, ImageKey};
use crate::access::key::ApiKey;
use crate::deploy::digest::ComponentDigest;
use crate::deploy::endpoint::Endpoint;
use crate::deploy::registry_auth::RegistryAuth;
use crate::deploy::template::Template;
use crate::deploy::volume::Volume;
use crate::id::{EndpointId, KeyId, RegistryAuthId, ScheduleId, TemplateId, VolumeId};
use crate::schedule::record::Schedule;

/// One change of the catalog.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "changes are rare, and a box would save nothing")]
pub enum CatalogChange {
    /// Adds the entry, or replaces the one with the same key.
    Put(CatalogEntry),
    /// Removes the entry, if it exists.
    Delete(CatalogKey),
}

/// One thing in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum CatalogEntry {
    /// A template.
    Template(Template),
    /// An endpoint.
    Endpoint(Endpoint),
    /// An uploaded component.
    Component(Component),
    /// A name for a component.
    Image(Image),
    /// An API key.
    Key(ApiKey),
    /// Credentials for a registry.
    RegistryAuth(RegistryAuth),
    /// A network volume.
    Volume(Volume),
    /// A schedule.
    Schedule(Schedule),
}

/// What a catalog entry is found by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CatalogKey {
    /// A template's id.
    Template(TemplateId),
    /// An endpoint's id.
    Endpoint(EndpointId),
    /// A component's digest.
    Component(ComponentDigest),
    /// An image's owner and `name:tag`.
    Image(ImageKey),
    /// An API key's id.
    Key(KeyId),
    /// The id of credentials for a registry.
    RegistryAuth(RegistryAuthId),
    /// A network volume's id.
    Volume(VolumeId),
    /// A schedule's id.
    Schedule(ScheduleId),
}

impl CatalogKey {
    /// All kinds of entries, as they are stored, in the order of their text.
    pub const KINDS: [&str; 8] = [
        "component",
        "endpoint",
        "image",
        "key",
        "registry_auth",
        "schedule",
        "template",
        "volume",
    ];

    /// The kind of entry, as it is stored.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Template(_) => "template",
            Self::Endpoint(_) => "endpoint",
            Self::Component(_) => "component",
            Self::Image(_) => "image",
            Self::Key(_) => "key",
            Self::RegistryAuth(_) => "registry_auth",
            Self::Volume(_) => "volume",
            Self::Schedule(_) => "schedule",
        }
    }

    /// The entry's name among those of its kind.
    pub fn name(&self) -> String {
        match self {
            Self::Template(id) => id.to_string(),
            Self::Endpoint(id) => id.to_string(),
            Self::Component(digest) => digest.to_string(),
            Self::Image(key) => key.row_name(),
            Self::Key(id) => id.to_string(),
            Self::RegistryAuth(id) => id.to_string(),
            Self::Volume(id) => id.to_string(),
            Self::Schedule(id) => id.to_string(),
        }
    }
}

/// One thing in the catalog, by reference. As JSON it is the same as a [`CatalogEntry`].
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum EntryRef<'v> {
    Template(&'v Template),
    Endpoint(&'v Endpoint),
    Component(&'v Component),
    Image(&'v Image),
    Key(&'v ApiKey),
    RegistryAuth(&'v RegistryAuth),
    Volume(&'v Volume),
    Schedule(&'v Schedule),
}

impl<'v> From<&'v CatalogEntry> for EntryRef<'v> {
    fn from(entry: &'v CatalogEntry) -> Self {
        match entry {
            CatalogEntry::Template(template) => Self::Template(template),
            CatalogEntry::Endpoint(endpoint) => Self::Endpoint(endpoint),
            CatalogEntry::Component(component) => Self::Component(component),
            CatalogEntry::Image(image) => Self::Image(image),
            CatalogEntry::Key(key) => Self::Key(key),
            CatalogEntry::RegistryAuth(auth) => Self::RegistryAuth(auth),
            CatalogEntry::Volume(volume) => Self::Volume(volume),
            CatalogEntry::Schedule(schedule) => Self::Schedule(schedule),
        }
    }
}

impl CatalogEntry {
    /// What the entry is found by.
    pub fn key(&self) -> CatalogKey {
        match self {
            Self::Template(template) => CatalogKey::Template(template.id.clone()),
            Self::Endpoint(endpoint) => CatalogKey::Endpoint(endpoint.id.clone()),
            Self::Component(component) => CatalogKey::Component(component.digest),
            Self::Image(image) => CatalogKey::Image(image.key()),
            Self::Key(key) => CatalogKey::Key(key.id.clone()),
            Self::RegistryAuth(auth) => CatalogKey::RegistryAuth(auth.id.clone()),
            Self::Volume(volume) => CatalogKey::Volume(volume.id.clone()),
            Self::Schedule(schedule) => CatalogKey::Schedule(schedule.id.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::deploy::endpoint::EndpointType;
    use crate::id::{EndpointId, OwnerId, TemplateId};
    use crate::time::Timestamp;

    #[test]
    fn an_endpoint_of_each_type_is_read_as_it_was_written() {
        for kind in [EndpointType::Queue, EndpointType::LoadBalancer] {
            let (id, template) = (EndpointId::new("e").unwrap(), TemplateId::new("t").unwrap());
            let at = Timestamp::from_millis(7);
            let mut endpoint = Endpoint::new(id, OwnerId::operator(), template, at);
            endpoint.kind = kind;
            let entry = CatalogEntry::Endpoint(endpoint);
            let text = serde_json::to_string(&EntryRef::from(&entry)).unwrap();
            assert_eq!(serde_json::from_str::<CatalogEntry>(&text).unwrap(), entry, "{text}");
        }
    }
}
