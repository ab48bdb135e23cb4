//! Everything that is deployed, at one moment.
//!
//! **Cost.** Some hundred bytes for each record, besides its own, and the records themselves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};

use super::component::Component;
use super::entry::{CatalogChange, CatalogEntry, CatalogKey, EntryRef};
use super::image::{Image, ImageKey};
use super::owner_share::{OwnerShares, Share};
use crate::access::key::ApiKey;
use crate::deploy::digest::ComponentDigest;
use crate::deploy::endpoint::{Deployment, Endpoint};
use crate::deploy::registry_auth::RegistryAuth;
use crate::deploy::template::Template;
use crate::deploy::volume::Volume;
use crate::id::{EndpointId, KeyId, OwnerId, RegistryAuthId, ScheduleId, TemplateId, VolumeId};
use crate::schedule::record::Schedule;
use crate::sharing::tenancy::Tenancy;

/// Everything that is deployed, at one moment.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Templates by id.
    pub templates: HashMap<TemplateId, Arc<Template>>,
    /// Endpoints, joined with what they run, by id.
    pub deployments: HashMap<EndpointId, Arc<Deployment>>,
    /// The endpoints that have host names of their own, by these.
    pub hosts: HashMap<String, EndpointId>,
    /// Uploaded components by digest.
    pub components: HashMap<ComponentDigest, Arc<Component>>,
    /// Image names by owner and `name:tag`, in this order.
    pub images: BTreeMap<ImageKey, Arc<Image>>,
    /// API keys by id.
    pub keys: HashMap<KeyId, Arc<ApiKey>>,
    /// Credentials for registries by id.
    pub registry_auths: HashMap<RegistryAuthId, Arc<RegistryAuth>>,
    /// Network volumes by id.
    pub volumes: HashMap<VolumeId, Arc<Volume>>,
    /// Schedules by id.
    pub schedules: HashMap<ScheduleId, Arc<Schedule>>,
    /// What each owner has of all this.
    pub(crate) shares: OwnerShares,
    /// What each endpoint's stored record counts. The record in `deployments` has counted more:
    /// what its template has changed since.
    endpoint_shares: HashMap<EndpointId, Share>,
}

impl View {
    /// The view of a stored catalog.
    pub(super) fn of(mut entries: Vec<CatalogEntry>) -> Self {
        // Endpoints last: they are joined with what the others bring.
        entries.sort_by_key(|entry| matches!(entry, CatalogEntry::Endpoint(_)));
        let mut view = Self::default();
        for entry in entries {
            view.apply(CatalogChange::Put(entry));
        }
        view
    }

    /// Each component that a record names, with the owners who need it. A release keeps a component
    /// only for the component's owners, since it counts in their shares: an endpoint cannot go back
    /// to a handler of another owner's template.
    pub(super) fn users_of_components(&self) -> HashMap<ComponentDigest, BTreeSet<OwnerId>> {
        let mut users: HashMap<_, BTreeSet<_>> = HashMap::new();
        let mut needs = |owner: &OwnerId, component: ComponentDigest| {
            let users = users.entry(component).or_default();
            if !users.contains(owner) {
                users.insert(owner.clone());
            }
        };
        self.images.values().for_each(|image| needs(&image.owner, image.digest));
        for template in self.templates.values() {
            self.component_of(template).iter().for_each(|named| needs(&template.owner, *named));
        }
        for deployment in self.deployments.values() {
            let Endpoint { releases, owner, .. } = &*deployment.endpoint;
            let targets = releases.iter().map(|release| release.component);
            targets
                .filter(|target| self.has_component(owner, target))
                .for_each(|target| needs(owner, target));
        }
        users
    }

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

    /// The owner's images with this name, by their tags.
    pub fn images_named<'v>(
        &'v self,
        owner: &OwnerId,
        name: &'v str,
    ) -> impl Iterator<Item = &'v Arc<Image>> {
        let first = ImageKey { owner: owner.clone(), reference: format!("{name}:") };
        let images = self.images.range(first..);
        let owner = owner.clone();
        images
            .map(|(_, image)| image)
            .take_while(move |image| image.owner == owner && image.name == name)
    }

    /// The endpoints, of any owner, whose templates name one of these images by its tag.
    pub fn users_of<'i>(&self, images: impl IntoIterator<Item = &'i Image>) -> Vec<&Arc<Endpoint>> {
        let keys: HashSet<_> = images.into_iter().map(Image::key).collect();
        let names_one = |deployment: &&Arc<Deployment>| {
            let Deployment { template, endpoint, .. } = &***deployment;
            template.fetched.is_none()
                && template.is_usable_by(&endpoint.owner)
                && keys.contains(&ImageKey::new(&template.owner, &template.image))
        };
        let users = self.deployments.values().filter(names_one);
        users.map(|deployment| &deployment.endpoint).collect()
    }

    /// The component that a template runs: the one that was fetched for it, or the one that its
    /// image names here.
    pub fn component_of(&self, template: &Template) -> Option<ComponentDigest> {
        template.fetched.or_else(|| self.resolve_image(&template.owner, &template.image))
    }

    /// The endpoints, of any owner, that use their template. An endpoint whose template was
    /// deleted, or whose owner may no longer use the template, does not count.
    pub fn bound(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        let bound = self.deployments.values().filter(|deployment| deployment.uses_template());
        bound.map(|deployment| &deployment.endpoint)
    }

    /// The endpoints of [`bound`](Self::bound) that use this template.
    pub fn bound_to<'v>(
        &'v self,
        template: &'v TemplateId,
    ) -> impl Iterator<Item = &'v Arc<Endpoint>> {
        self.bound().filter(move |endpoint| endpoint.template == *template)
    }

    /// An endpoint that uses the network volume.
    pub fn user_of(&self, volume: &VolumeId) -> Option<&EndpointId> {
        let mut users = self.deployments.values().map(|deployment| &deployment.endpoint);
        users.find(|e| e.network_volume.as_ref() == Some(volume)).map(|endpoint| &endpoint.id)
    }

    /// A schedule that submits jobs to the endpoint.
    pub fn schedule_of(&self, endpoint: &EndpointId) -> Option<&Arc<Schedule>> {
        self.schedules.values().find(|schedule| schedule.endpoint == *endpoint)
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
            CatalogKey::Schedule(id) => EntryRef::Schedule(self.schedules.get(id)?),
        })
    }

    /// Shows the parties that share the host. Takes time for each endpoint, as each change does.
    pub(super) fn show_tenants(&self, tenancy: &Tenancy) {
        let endpoints = || self.deployments.values().map(|deployment| &deployment.endpoint);
        let of_keys = self.keys.values().map(|key| &key.owner);
        let mut owners = of_keys.chain(endpoints().map(|endpoint| &endpoint.owner));
        let first = owners.next();
        tenancy.set_several_owners(owners.any(|owner| Some(owner) != first));
        tenancy.set_calls(endpoints().any(|endpoint| !endpoint.settings.call_endpoints.is_empty()));
        let mut met = HashSet::new();
        let owners = endpoints().map(|endpoint| &endpoint.owner);
        let of_several = owners.filter(|owner| !met.insert(*owner)).cloned().collect();
        tenancy.set_owners_of_several_endpoints(of_several);
    }

    pub(super) fn apply(&mut self, change: CatalogChange) {
        let key = match &change {
            CatalogChange::Put(entry) => &entry.key(),
            CatalogChange::Delete(key) => key,
        };
        self.count(key, &change);
        match change {
            CatalogChange::Put(CatalogEntry::Template(template)) => {
                self.templates.insert(template.id.clone(), Arc::new(template));
            }
            CatalogChange::Put(CatalogEntry::Endpoint(endpoint)) => {
                self.forget_hosts(&endpoint.id);
                for host in &endpoint.settings.http.hosts {
                    self.hosts.insert(host.clone(), endpoint.id.clone());
                }
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
            CatalogChange::Put(CatalogEntry::Schedule(schedule)) => {
                self.schedules.insert(schedule.id.clone(), Arc::new(schedule));
            }
            CatalogChange::Delete(CatalogKey::Schedule(id)) => {
                self.schedules.remove(&id);
            }
            CatalogChange::Delete(CatalogKey::Template(id)) => {
                self.templates.remove(&id);
            }
            CatalogChange::Delete(CatalogKey::Endpoint(id)) => {
                self.forget_hosts(&id);
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

    fn forget_hosts(&mut self, id: &EndpointId) {
        let Some(deployment) = self.deployments.get(id) else { return };
        for host in &deployment.endpoint.settings.http.hosts {
            self.hosts.remove(host);
        }
    }

    /// Counts the record that a change leaves in place of the one with this key.
    fn count(&mut self, key: &CatalogKey, change: &CatalogChange) {
        let mut shares = std::mem::take(&mut self.shares);
        let mut of_endpoints = std::mem::take(&mut self.endpoint_shares);
        if let Some(replaced) = self.entry(key) {
            let counted = match key {
                CatalogKey::Endpoint(id) => of_endpoints.remove(id).unwrap_or_default(),
                _ => Share::of(replaced),
            };
            shares.remove(replaced, counted);
        }
        if let CatalogChange::Put(entry) = change {
            let added = Share::of(entry.into());
            if let CatalogKey::Endpoint(id) = key {
                of_endpoints.insert(id.clone(), added);
            }
            shares.add(entry.into(), added);
        }
        (self.shares, self.endpoint_shares) = (shares, of_endpoints);
    }

    /// The template that the endpoint names, if it exists.
    pub(super) fn template_of(&self, endpoint: &Endpoint) -> Option<&Arc<Template>> {
        // Another template may have the id of a deleted one by now: it was not meant.
        self.templates.get(&endpoint.template).filter(|_| !endpoint.template_is_deleted)
    }

    /// The component that the endpoint runs with this template.
    pub(super) fn component_for(
        &self,
        endpoint: &Endpoint,
        template: &Template,
    ) -> Option<ComponentDigest> {
        // A private template runs for its owner alone, even if it was public before.
        template.is_usable_by(&endpoint.owner).then(|| self.component_of(template)).flatten()
    }

    /// Joins an endpoint with its template and component. Without its template it has no component,
    /// and a placeholder for the template.
    fn join(&self, mut endpoint: Arc<Endpoint>) -> Deployment {
        let template = self.template_of(&endpoint);
        let component = template.and_then(|template| self.component_for(&endpoint, template));
        let template = template.cloned().unwrap_or_else(|| {
            Arc::new(Template::new(endpoint.template.clone(), endpoint.owner.clone(), ""))
        });
        Endpoint::follow(&mut endpoint, &template);
        let input_schema = component.as_ref().and_then(|component| self.components.get(component));
        let input_schema = input_schema.and_then(|component| component.input_schema.clone());
        let volume = endpoint.network_volume.as_ref().and_then(|id| self.volumes.get(id)).cloned();
        let incarnation =
            self.deployments.get(&endpoint.id).map(|current| current.incarnation.clone());
        let incarnation = incarnation.unwrap_or_else(|| endpoint.new_incarnation());
        Deployment { endpoint, template, component, input_schema, volume, incarnation }
    }

    /// Makes new deployments of these endpoints, where they have changed; the others stay the same
    /// objects, so that a holder can tell.
    pub(super) fn rejoin<'e>(&mut self, endpoints: impl Iterator<Item = &'e EndpointId>) {
        for id in endpoints {
            let Some(current) = self.deployments.get(id) else { continue };
            let joined = self.join(current.endpoint.clone());
            if joined != **current {
                self.deployments.insert(id.clone(), Arc::new(joined));
            }
        }
    }
}
