//! Everything that is deployed, at one moment, and how a change leads to the next moment.
//!
//! **Cost.** A change copies the maps of references, and joins each endpoint with what it runs.

use std::collections::HashMap;
use std::sync::Arc;

use super::component::Component;
use super::entry::{CatalogChange, CatalogEntry, CatalogKey, EntryRef};
use super::image::{Image, ImageKey};
use super::owner_share::OwnerShares;
use crate::digest::ComponentDigest;
use crate::endpoint::{Deployment, Endpoint, EndpointIncarnation, Release};
use crate::id::{EndpointId, KeyId, OwnerId, RegistryAuthId, TemplateId, VolumeId};
use crate::image::RemoteImage;
use crate::key::ApiKey;
use crate::registry_auth::RegistryAuth;
use crate::template::Template;
use crate::time::Timestamp;
use crate::volume::Volume;

/// Everything that is deployed, at one moment.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Templates by id.
    pub templates: HashMap<TemplateId, Arc<Template>>,
    /// Endpoints, joined with what they run, by id.
    pub deployments: HashMap<EndpointId, Arc<Deployment>>,
    /// Uploaded components by digest.
    pub components: HashMap<ComponentDigest, Arc<Component>>,
    /// Image names by owner and `name:tag`.
    pub images: HashMap<ImageKey, Arc<Image>>,
    /// API keys by id.
    pub keys: HashMap<KeyId, Arc<ApiKey>>,
    /// Credentials for registries by id.
    pub registry_auths: HashMap<RegistryAuthId, Arc<RegistryAuth>>,
    /// Network volumes by id.
    pub volumes: HashMap<VolumeId, Arc<Volume>>,
    /// What each owner has of all this.
    pub(super) shares: OwnerShares,
}

impl View {
    /// The component that an image reference names for this owner: `name`, `name:tag` or
    /// `name@sha256:…`. Without a tag it means `latest`.
    pub fn resolve_image(&self, owner: &OwnerId, reference: &str) -> Option<ComponentDigest> {
        if let Some((_, digest)) = reference.split_once("@sha256:") {
            let digest = digest.parse().ok()?;
            return self.has_component(owner, &digest).then_some(digest);
        }
        self.image(owner, reference).map(|image| image.digest)
    }

    /// Whether the component is stored, and this owner may name it by its digest.
    pub fn has_component(&self, owner: &OwnerId, digest: &ComponentDigest) -> bool {
        self.components.get(digest).is_some_and(|component| component.owners.contains(owner))
    }

    /// The owner's image with this name: `name`, which means `name:latest`, or `name:tag`.
    pub fn image(&self, owner: &OwnerId, reference: &str) -> Option<&Arc<Image>> {
        self.images.get(&ImageKey::new(owner, reference))
    }

    /// The endpoints, of any owner, whose templates name this image by its tag.
    pub fn users_of(&self, image: &Image) -> Vec<&Arc<Endpoint>> {
        let key = image.key();
        let names_it = |deployment: &&Arc<Deployment>| {
            let Deployment { template, endpoint, .. } = &***deployment;
            template.fetched.is_none()
                && template.is_usable_by(&endpoint.owner)
                && ImageKey::new(&template.owner, &template.image) == key
        };
        let users = self.deployments.values().filter(names_it);
        users.map(|deployment| &deployment.endpoint).collect()
    }

    /// The component that a template runs: the one that was fetched for it, or the one that its
    /// image names here.
    pub fn component_of(&self, template: &Template) -> Option<ComponentDigest> {
        template.fetched.or_else(|| self.resolve_image(&template.owner, &template.image))
    }

    /// The endpoints, of any owner, that use the template. An endpoint whose owner may use the template
    /// no more does not count.
    pub fn bound_to<'v>(
        &'v self,
        template: &'v TemplateId,
    ) -> impl Iterator<Item = &'v Arc<Endpoint>> {
        let deployments = self.deployments.values().filter(move |deployment| {
            let Deployment { endpoint, template: joined, .. } = &***deployment;
            endpoint.template == *template
                && !endpoint.template_is_deleted
                && joined.is_usable_by(&endpoint.owner)
        });
        deployments.map(|deployment| &deployment.endpoint)
    }

    /// Whether the credentials may be sent to the registry of this image.
    pub fn may_send(&self, auth: &RegistryAuth, image: &RemoteImage) -> bool {
        if let Some(registry) = &auth.registry {
            return registry.has(image);
        }
        // Old credentials name no registry: they stay with those that stored templates use them for.
        let mut users = self.templates.values().filter(|template| {
            template.owner == auth.owner && template.registry_auth == auth.id.as_str()
        });
        users.any(|user| {
            let used: Option<RemoteImage> = user.image.parse().ok();
            used.is_some_and(|used| used.registry().eq_ignore_ascii_case(image.registry()))
        })
    }

    /// An endpoint that uses the network volume.
    pub fn user_of(&self, volume: &VolumeId) -> Option<&EndpointId> {
        let mut users = self.deployments.values().map(|deployment| &deployment.endpoint);
        users.find(|e| e.network_volume.as_ref() == Some(volume)).map(|endpoint| &endpoint.id)
    }

    /// The entry with this key.
    fn entry(&self, key: &CatalogKey) -> Option<EntryRef<'_>> {
        Some(match key {
            CatalogKey::Template(id) => EntryRef::Template(self.templates.get(id)?),
            CatalogKey::Endpoint(id) => EntryRef::Endpoint(&self.deployments.get(id)?.endpoint),
            CatalogKey::Component(digest) => EntryRef::Component(self.components.get(digest)?),
            CatalogKey::Image(key) => EntryRef::Image(self.images.get(key)?),
            CatalogKey::Key(id) => EntryRef::Key(self.keys.get(id)?),
            CatalogKey::RegistryAuth(id) => EntryRef::RegistryAuth(self.registry_auths.get(id)?),
            CatalogKey::Volume(id) => EntryRef::Volume(self.volumes.get(id)?),
        })
    }

    pub(super) fn has_several_owners(&self) -> bool {
        let of_keys = self.keys.values().map(|key| &key.owner);
        let of_endpoints = self.deployments.values().map(|deployment| &deployment.endpoint.owner);
        let mut owners = of_keys.chain(of_endpoints);
        let first = owners.next();
        owners.any(|owner| Some(owner) != first)
    }

    pub(super) fn apply(&mut self, change: CatalogChange) {
        let key = match &change {
            CatalogChange::Put(entry) => &entry.key(),
            CatalogChange::Delete(key) => key,
        };
        let mut shares = std::mem::take(&mut self.shares);
        if let Some(replaced) = self.entry(key) {
            shares.remove(replaced);
        }
        if let CatalogChange::Put(entry) = &change {
            shares.add(entry.into());
        }
        self.shares = shares;
        match change {
            CatalogChange::Put(CatalogEntry::Template(template)) => {
                self.templates.insert(template.id.clone(), Arc::new(template));
            }
            CatalogChange::Put(CatalogEntry::Endpoint(endpoint)) => {
                let deployment = self.join(Arc::new(endpoint));
                self.deployments.insert(deployment.endpoint.id.clone(), Arc::new(deployment));
            }
            CatalogChange::Put(CatalogEntry::Component(component)) => {
                self.components.insert(component.digest, Arc::new(component));
            }
            CatalogChange::Put(CatalogEntry::Image(image)) => {
                self.images.insert(image.key(), Arc::new(image));
            }
            CatalogChange::Put(CatalogEntry::Key(key)) => {
                self.keys.insert(key.id.clone(), Arc::new(key));
            }
            CatalogChange::Put(CatalogEntry::RegistryAuth(auth)) => {
                self.registry_auths.insert(auth.id.clone(), Arc::new(auth));
            }
            CatalogChange::Put(CatalogEntry::Volume(volume)) => {
                self.volumes.insert(volume.id.clone(), Arc::new(volume));
            }
            CatalogChange::Delete(CatalogKey::Template(id)) => {
                self.templates.remove(&id);
            }
            CatalogChange::Delete(CatalogKey::Endpoint(id)) => {
                self.deployments.remove(&id);
            }
            CatalogChange::Delete(CatalogKey::Component(digest)) => {
                self.components.remove(&digest);
            }
            CatalogChange::Delete(CatalogKey::Image(key)) => {
                self.images.remove(&key);
            }
            CatalogChange::Delete(CatalogKey::Key(id)) => {
                self.keys.remove(&id);
            }
            CatalogChange::Delete(CatalogKey::RegistryAuth(id)) => {
                self.registry_auths.remove(&id);
            }
            CatalogChange::Delete(CatalogKey::Volume(id)) => {
                self.volumes.remove(&id);
            }
        }
    }

    /// Joins an endpoint with its template and component. Without its template it has no component, and
    /// a placeholder for the template.
    fn join(&self, endpoint: Arc<Endpoint>) -> Deployment {
        let template = self.templates.get(&endpoint.template);
        // Another template may have the id of a deleted one by now: it was not meant.
        let template = template.filter(|_| !endpoint.template_is_deleted).cloned();
        let is_there = template.is_some();
        let template = template.unwrap_or_else(|| {
            Arc::new(Template::new(endpoint.template.clone(), endpoint.owner.clone(), ""))
        });
        // A private template runs for its owner alone, even if it was public before.
        let is_usable = is_there && template.is_usable_by(&endpoint.owner);
        let component = self.component_of(&template).filter(|_| is_usable);
        let volume = endpoint.network_volume.as_ref().and_then(|id| self.volumes.get(id)).cloned();
        let incarnation =
            self.deployments.get(&endpoint.id).map(|current| current.incarnation.clone());
        let incarnation =
            incarnation.unwrap_or_else(|| EndpointIncarnation::new(endpoint.owner.clone()));
        Deployment { endpoint, template, component, volume, incarnation }
    }

    /// Gives the next version to each endpoint whose deployment is not what it was before, and answers
    /// with them.
    pub(super) fn release(&mut self, before: &Self, now: Timestamp) -> Vec<Endpoint> {
        let mut released = vec![];
        for (id, deployment) in &mut self.deployments {
            let earlier = before.deployments.get(id);
            if earlier.is_some_and(|earlier| earlier == deployment) {
                continue;
            }
            let mut endpoint = (*deployment.endpoint).clone();
            endpoint.version = earlier.map_or(0, |earlier| earlier.endpoint.version) + 1;
            if let Some(component) = deployment.component
                && endpoint.releases.last().is_none_or(|last| last.component != component)
            {
                let image = deployment.template.image.clone();
                let version = endpoint.version;
                endpoint.releases.push(Release { version, released_at: now, image, component });
                let surplus = endpoint.releases.len().saturating_sub(Release::KEPT_MAX);
                endpoint.releases.drain(..surplus);
            }
            self.shares.remove(EntryRef::Endpoint(&deployment.endpoint));
            self.shares.add(EntryRef::Endpoint(&endpoint));
            released.push(endpoint.clone());
            let endpoint = Arc::new(endpoint);
            *deployment = Arc::new(Deployment { endpoint, ..(**deployment).clone() });
        }
        released
    }

    /// Makes new deployments where a template, an image or a volume has changed; the others stay the same
    /// objects, so that a holder can tell. An endpoint whose template was deleted is marked.
    pub(super) fn rejoin(&mut self) {
        let mut changed = Vec::new();
        for current in self.deployments.values() {
            let mut endpoint = current.endpoint.clone();
            if !endpoint.template_is_deleted && !self.templates.contains_key(&endpoint.template) {
                Arc::make_mut(&mut endpoint).template_is_deleted = true;
                self.shares.remove(EntryRef::Endpoint(&current.endpoint));
                self.shares.add(EntryRef::Endpoint(&endpoint));
            }
            let joined = self.join(endpoint);
            if joined != **current {
                changed.push(Arc::new(joined));
            }
        }
        for deployment in changed {
            self.deployments.insert(deployment.endpoint.id.clone(), deployment);
        }
    }
}
