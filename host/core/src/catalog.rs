//! What is deployed: templates, endpoints, uploaded components, image names, network volumes and
//! keys.
//!
//! Everything but components belongs to one owner. Handlers' names are an owner's own: two owners may
//! both have `echo:latest`. A component is stored once and remembers the owners who brought it.
//!
//! All of it is small and stays in memory as one immutable [`View`]; a change makes a new view
//! once it is on disk. A lookup takes a read lock for the time of one reference count.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};

use crate::digest::ComponentDigest;
use crate::endpoint::{Deployment, Endpoint, Release};
use crate::id::{EndpointId, KeyId, OwnerId, RegistryAuthId, TemplateId, VolumeId};
use crate::image::{PushedManifest, RemoteImage};
use crate::key::ApiKey;
use crate::owner_share::{OwnerBounds, OwnerShares};
use crate::registry_auth::RegistryAuth;
use crate::store::StoreError;
use crate::template::Template;
use crate::tenancy::Tenancy;
use crate::time::{Clock, Timestamp};
use crate::volume::Volume;

/// Keeps the catalog on disk.
#[async_trait]
pub trait CatalogStore: Send + Sync + std::fmt::Debug {
    /// Everything that was put and not deleted, in no particular order.
    async fn load_catalog(&self) -> Result<Vec<CatalogEntry>, StoreError>;

    /// Writes all changes as one; they are on stable storage when the future resolves.
    async fn write_catalog(&self, changes: Vec<CatalogChange>) -> Result<(), StoreError>;

    /// Begins to delete the jobs, counts and webhooks of endpoints that the catalog has deleted. Called
    /// once for each deletion, after the endpoint's life has ended and before another endpoint can
    /// have its name: from now on nothing of the deleted endpoint is found under its name. Must not
    /// wait; [`await_deletion`](crate::store::JobStore::await_deletion) does.
    fn forget_endpoints(&self, deleted: &[EndpointId]);
}

/// One change of the catalog.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "changes are rare, and a box would help nobody")]
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
}

impl CatalogKey {
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
        }
    }
}

/// An uploaded component that was checked and compiled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Component {
    /// SHA-256 of the uploaded bytes.
    pub digest: ComponentDigest,
    /// Size of the uploaded bytes.
    pub bytes: u64,
    /// What it imports, as `namespace:package/interface@version`.
    pub imports: Vec<String>,
    /// What it exports.
    pub exports: Vec<String>,
    /// When it was first uploaded.
    pub uploaded_at: Timestamp,
    /// Milliseconds that compiling took.
    pub compile_ms: u64,
    /// Each compiled file, by the key of the engine that it is for. A file with another digest is
    /// never loaded.
    pub artifacts: BTreeMap<String, ArtifactDigest>,
    /// What it was made with, as it says itself.
    #[serde(default)]
    pub producers: Producers,
    /// The owners who uploaded or fetched it, and still use it. Only they may name it by its digest.
    /// Records from before there were several owners belong to the operator.
    #[serde(default = "only_the_operator")]
    pub owners: BTreeSet<OwnerId>,
}

fn only_the_operator() -> BTreeSet<OwnerId> {
    BTreeSet::from([OwnerId::operator()])
}

impl Component {
    /// The record with one more owner, beside those that the stored record has.
    #[must_use]
    pub fn owned_by(mut self, owner: &OwnerId, stored: Option<&Self>) -> Self {
        self.owners.extend(stored.into_iter().flat_map(|stored| stored.owners.iter().cloned()));
        self.owners.insert(owner.clone());
        self
    }
}

/// BLAKE3 of a compiled file, in hexadecimal. Not SHA-256: 40 MB, a Python handler, take 7 ms instead
/// of 25, and the first job after a start waits for them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactDigest(pub String);

/// What a component was made with, from its `producers` sections.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producers {
    /// The languages that it was written in.
    pub languages: Vec<Producer>,
    /// Compilers, linkers and kits.
    pub tools: Vec<Producer>,
}

/// A language or a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Producer {
    /// Such as `Rust`, `rustc`.
    pub name: String,
    /// As the tool writes it; may be empty.
    pub version: String,
}

/// A name for a component, such as `echo:latest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    /// The name before the colon.
    pub name: String,
    /// The tag after it.
    pub tag: String,
    /// The component that it names now.
    pub digest: ComponentDigest,
    /// Who uploaded it.
    pub owner: OwnerId,
    /// When it was last moved to another component.
    pub updated_at: Timestamp,
    /// The manifest with which it was pushed; `None` when it was uploaded without one.
    #[serde(default)]
    pub manifest: Option<PushedManifest>,
}

impl Image {
    /// `name:tag`.
    pub fn reference(&self) -> String {
        format!("{}:{}", self.name, self.tag)
    }

    /// What it is found by.
    pub fn key(&self) -> ImageKey {
        ImageKey { owner: self.owner.clone(), reference: self.reference() }
    }
}

/// What an image is found by: each owner has names of their own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ImageKey {
    /// Whose name it is.
    pub owner: OwnerId,
    /// `name:tag`.
    pub reference: String,
}

impl ImageKey {
    /// The key that an owner means by `name`, which stands for `name:latest`, or by `name:tag`.
    pub fn new(owner: &OwnerId, reference: &str) -> Self {
        let reference = match reference.contains(':') {
            true => reference.to_owned(),
            false => format!("{reference}:latest"),
        };
        Self { owner: owner.clone(), reference }
    }

    /// The name of the stored row. The operator's rows are named as all rows were when the operator
    /// was the only owner; no `name:tag` has a slash.
    fn row_name(&self) -> String {
        match self.owner.is_operator() {
            true => self.reference.clone(),
            false => format!("{}/{}", self.owner, self.reference),
        }
    }
}

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
    shares: OwnerShares,
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

    /// The endpoints, of any owner, that use the template.
    pub fn bound_to<'v>(
        &'v self,
        template: &'v TemplateId,
    ) -> impl Iterator<Item = &'v Arc<Endpoint>> {
        let endpoints = self.deployments.values().map(|deployment| &deployment.endpoint);
        endpoints.filter(move |endpoint| endpoint.template == *template)
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
    fn entry(&self, key: &CatalogKey) -> Option<CatalogEntry> {
        fn copy<T: Clone>(entry: &Arc<T>) -> T {
            T::clone(entry)
        }
        Some(match key {
            CatalogKey::Template(id) => CatalogEntry::Template(self.templates.get(id).map(copy)?),
            CatalogKey::Endpoint(id) => {
                CatalogEntry::Endpoint(self.deployments.get(id).map(|d| copy(&d.endpoint))?)
            }
            CatalogKey::Component(digest) => {
                CatalogEntry::Component(self.components.get(digest).map(copy)?)
            }
            CatalogKey::Image(key) => CatalogEntry::Image(self.images.get(key).map(copy)?),
            CatalogKey::Key(id) => CatalogEntry::Key(self.keys.get(id).map(copy)?),
            CatalogKey::RegistryAuth(id) => {
                CatalogEntry::RegistryAuth(self.registry_auths.get(id).map(copy)?)
            }
            CatalogKey::Volume(id) => CatalogEntry::Volume(self.volumes.get(id).map(copy)?),
        })
    }

    fn has_several_owners(&self) -> bool {
        let mut owners = self.deployments.values().map(|deployment| &deployment.endpoint.owner);
        let first = owners.next();
        owners.any(|owner| Some(owner) != first)
    }

    fn apply(&mut self, change: CatalogChange) {
        let key = match &change {
            CatalogChange::Put(entry) => &entry.key(),
            CatalogChange::Delete(key) => key,
        };
        if let Some(replaced) = self.entry(key) {
            self.shares.remove(&replaced);
        }
        if let CatalogChange::Put(entry) = &change {
            self.shares.add(entry);
        }
        match change {
            CatalogChange::Put(CatalogEntry::Template(template)) => {
                self.templates.insert(template.id.clone(), Arc::new(template));
            }
            CatalogChange::Put(CatalogEntry::Endpoint(endpoint)) => {
                if let Some(deployment) = self.join(Arc::new(endpoint)) {
                    self.deployments.insert(deployment.endpoint.id.clone(), Arc::new(deployment));
                }
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

    /// Joins an endpoint with its template and component. `None` without the template, which the
    /// API never lets happen.
    fn join(&self, endpoint: Arc<Endpoint>) -> Option<Deployment> {
        let template = self.templates.get(&endpoint.template)?.clone();
        // A private template runs for its owner alone, even if it was public before.
        let is_usable = template.is_usable_by(&endpoint.owner);
        let component = self.component_of(&template).filter(|_| is_usable);
        let volume = endpoint.network_volume.as_ref().and_then(|id| self.volumes.get(id)).cloned();
        let life = self.deployments.get(&endpoint.id).map(|current| current.life.clone());
        Some(Deployment { endpoint, template, component, volume, life: life.unwrap_or_default() })
    }

    /// Gives the next version to each endpoint whose deployment is not what it was before, and answers
    /// with them.
    fn release(&mut self, before: &Self, now: Timestamp) -> Vec<Endpoint> {
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
                let surplus = endpoint.releases.len().saturating_sub(Release::KEPT);
                endpoint.releases.drain(..surplus);
            }
            let replaced = Endpoint::clone(&deployment.endpoint);
            self.shares.remove(&CatalogEntry::Endpoint(replaced));
            self.shares.add(&CatalogEntry::Endpoint(endpoint.clone()));
            released.push(endpoint.clone());
            let endpoint = Arc::new(endpoint);
            *deployment = Arc::new(Deployment { endpoint, ..(**deployment).clone() });
        }
        released
    }

    /// Makes new deployments where a template, an image or a volume has changed; the others stay the same
    /// objects, so that a holder can tell.
    fn rejoin(&mut self) {
        let changed: Vec<_> = self
            .deployments
            .values()
            .filter_map(|current| {
                let joined = self.join(current.endpoint.clone())?;
                (joined != **current).then(|| Arc::new(joined))
            })
            .collect();
        for deployment in changed {
            self.deployments.insert(deployment.endpoint.id.clone(), deployment);
        }
    }
}

/// The catalog: its newest view, and the one way to change it.
#[derive(Debug)]
pub struct Catalog {
    clock: Arc<dyn Clock>,
    bounds: OwnerBounds,
    tenancy: Tenancy,
    /// Changes come one at a time, so that each is decided on the view that it changes.
    change: Arc<tokio::sync::Mutex<()>>,
    shown: Arc<Shown>,
}

/// The part of the catalog that a change needs once it is decided.
#[derive(Debug)]
struct Shown {
    store: Arc<dyn CatalogStore>,
    view: RwLock<Arc<View>>,
    /// Deployments that are not in the view any more. A job that took one earlier may still run it.
    retired: Mutex<Vec<Weak<Deployment>>>,
}

/// An endpoint whose template is not in the catalog. The API never lets that happen: a row was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("endpoint `{endpoint}` uses template `{template}`, which is not in the catalog")]
pub struct MissingTemplate {
    /// The endpoint.
    pub endpoint: EndpointId,
    /// The template that it names.
    pub template: TemplateId,
}

/// The endpoints whose templates are missing, in the order of the entries.
pub fn missing_templates(entries: &[CatalogEntry]) -> Vec<MissingTemplate> {
    let templates: HashSet<_> = entries
        .iter()
        .filter_map(|entry| match entry {
            CatalogEntry::Template(template) => Some(&template.id),
            _ => None,
        })
        .collect();
    let missing = entries.iter().filter_map(|entry| match entry {
        CatalogEntry::Endpoint(Endpoint { id, template, .. }) if !templates.contains(template) => {
            Some(MissingTemplate { endpoint: id.clone(), template: template.clone() })
        }
        _ => None,
    });
    missing.collect()
}

/// Why a catalog cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenCatalogError {
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Endpoints without a template cannot run their jobs. They are not left out: the jobs of an
    /// endpoint that is not in the catalog are deleted.
    #[error(
        "the catalog is damaged: {first}{}; restore a backup, or save the rest with `gristmill repair`, \
         which keeps the endpoint, paused, with its jobs",
        more(*.others)
    )]
    MissingTemplates {
        /// The first of them.
        first: MissingTemplate,
        /// How many more there are.
        others: usize,
    },
}

fn more(others: usize) -> String {
    if others == 0 { String::new() } else { format!(", and {others} more like it") }
}

impl Catalog {
    /// Reads the catalog from the store.
    ///
    /// # Errors
    /// [`OpenCatalogError`]; nothing has changed then.
    pub async fn open(
        store: Arc<dyn CatalogStore>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenCatalogError> {
        let mut entries = store.load_catalog().await?;
        let missing = missing_templates(&entries);
        if let [first, others @ ..] = &missing[..] {
            let (first, others) = (first.clone(), others.len());
            return Err(OpenCatalogError::MissingTemplates { first, others });
        }
        // Endpoints last: they are joined with what the others bring.
        entries.sort_by_key(|entry| matches!(entry, CatalogEntry::Endpoint(_)));
        let mut view = View::default();
        for entry in entries {
            view.apply(CatalogChange::Put(entry));
        }
        let tenancy = Tenancy::default();
        tenancy.set_several_owners(view.has_several_owners());
        let view = RwLock::new(Arc::new(view));
        let shown = Shown { store, view, retired: Mutex::default() };
        let bounds = OwnerBounds::default();
        Ok(Self { clock, bounds, tenancy, change: Arc::default(), shown: Arc::new(shown) })
    }

    /// The catalog with other bounds of what one owner may have.
    #[must_use]
    pub fn with_bounds(self, bounds: OwnerBounds) -> Self {
        Self { bounds, ..self }
    }

    /// The catalog with this answer to whether several owners share the host, which it keeps up to
    /// date from now on: parts that were made before the catalog hold it already.
    #[must_use]
    pub fn with_tenancy(self, tenancy: Tenancy) -> Self {
        tenancy.set_several_owners(self.view().has_several_owners());
        Self { tenancy, ..self }
    }

    /// The newest view.
    pub fn view(&self) -> Arc<View> {
        self.shown.view.read().clone()
    }

    /// Whether endpoints of several owners are deployed, now and after later changes.
    pub fn tenancy(&self) -> Tenancy {
        self.tenancy.clone()
    }

    /// The endpoint with what it runs.
    pub fn deployment(&self, id: &EndpointId) -> Option<Arc<Deployment>> {
        self.shown.view.read().deployments.get(id).cloned()
    }

    /// Changes the catalog, and counts the versions of the endpoints that it changes: `decide`
    /// looks at the newest view and says what to change, or why not. Nobody else changes the
    /// catalog meanwhile, and the new view is shown only once the change is on disk. With nothing
    /// to change nothing is written.
    ///
    /// A change that has been decided is completed even when the caller drops the future: disk and
    /// view never differ because a client closed its connection.
    ///
    /// # Errors
    /// What `decide` refuses, those of the store, and [`StoreError::OwnerFull`].
    pub async fn change<T, E: From<StoreError>>(
        &self,
        decide: impl FnOnce(&View) -> Result<(Vec<CatalogChange>, T), E>,
    ) -> Result<T, E> {
        let turn = self.change.clone().lock_owned().await;
        let before = self.view();
        let (mut changes, answer) = decide(&before)?;
        if changes.is_empty() {
            return Ok(answer);
        }
        let mut view = (*before).clone();
        for change in changes.iter().cloned() {
            view.apply(change);
        }
        view.shares.check(&before.shares, &changes, &self.bounds)?;
        view.rejoin();
        for endpoint in view.release(&before, self.clock.now()) {
            changes.retain(|change| !matches!(change, CatalogChange::Put(CatalogEntry::Endpoint(put)) if put.id == endpoint.id));
            changes.push(CatalogChange::Put(CatalogEntry::Endpoint(endpoint)));
        }
        let (shown, tenancy) = (self.shown.clone(), self.tenancy.clone());
        let written = tokio::spawn(async move {
            let _turn = turn;
            shown.write(changes, view, &tenancy).await
        });
        match written.await {
            Ok(written) => written?,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return Err(StoreError::Closed.into()), // the runtime is shutting down
            },
        }
        Ok(answer)
    }

    /// Deletes the components that nothing names and no deployment can be running, and returns their
    /// digests: their files are not needed any more. An owner who no longer uses a component that
    /// others use stops being one of its owners.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn forget_unused(&self) -> Result<Vec<ComponentDigest>, StoreError> {
        self.change(|view| {
            let users = self.users_of_components(view);
            let mut changes = vec![];
            let mut unused = vec![];
            for (digest, component) in &view.components {
                let Some(users) = users.get(digest) else {
                    changes.push(CatalogChange::Delete(CatalogKey::Component(*digest)));
                    unused.push(*digest);
                    continue;
                };
                if !component.owners.is_subset(users) {
                    let mut component = Component::clone(component);
                    component.owners.retain(|owner| users.contains(owner));
                    changes.push(CatalogChange::Put(CatalogEntry::Component(component)));
                }
            }
            Ok((changes, unused))
        })
        .await
    }

    /// Each component that is still needed, with the owners who need it.
    fn users_of_components(&self, view: &View) -> HashMap<ComponentDigest, BTreeSet<OwnerId>> {
        let retired = self.shown.retired.lock();
        let running = retired.iter().filter_map(Weak::upgrade);
        let running = running.filter_map(|d| Some((d.component?, d.template.owner.clone())));
        let named = view.images.values().map(|image| (image.digest, image.owner.clone()));
        // What an endpoint may go back to.
        let released = view.deployments.values().flat_map(|deployment| {
            let Endpoint { releases, owner, .. } = &*deployment.endpoint;
            releases.iter().map(|release| (release.component, owner.clone()))
        });
        let in_templates = view
            .templates
            .values()
            .filter_map(|template| Some((view.component_of(template)?, template.owner.clone())));
        let mut users: HashMap<_, BTreeSet<_>> = HashMap::new();
        for (digest, owner) in in_templates.chain(named).chain(running).chain(released) {
            users.entry(digest).or_default().insert(owner);
        }
        users
    }
}

impl Shown {
    /// Writes the changes, and shows the view that they lead to.
    async fn write(
        &self,
        changes: Vec<CatalogChange>,
        view: View,
        tenancy: &Tenancy,
    ) -> Result<(), StoreError> {
        self.store.write_catalog(changes).await?;
        let deleted = self.retire(&view);
        self.store.forget_endpoints(&deleted);
        tenancy.set_several_owners(view.has_several_owners());
        *self.view.write() = Arc::new(view);
        Ok(())
    }

    /// Remembers the deployments that `next` does not show any more, for as long as they are in use.
    /// Ends the lives of deleted endpoints, and returns these endpoints.
    fn retire(&self, next: &View) -> Vec<EndpointId> {
        let mut retired = self.retired.lock();
        retired.retain(|deployment| deployment.strong_count() > 0);
        let view = self.view.read().clone();
        let gone = view.deployments.iter().filter(|(id, shown)| {
            next.deployments.get(*id).is_none_or(|newer| !Arc::ptr_eq(newer, shown))
        });
        retired.extend(gone.map(|(_, deployment)| Arc::downgrade(deployment)));
        // From now on no submission to a deleted endpoint is accepted, however long ago its call looked
        // the endpoint up.
        let deleted = view.deployments.iter().filter(|(id, shown)| {
            next.deployments.get(*id).is_none_or(|newer| newer.life != shown.life)
        });
        let deleted = deleted.map(|(id, shown)| {
            shown.life.end();
            id.clone()
        });
        deleted.collect()
    }
}
