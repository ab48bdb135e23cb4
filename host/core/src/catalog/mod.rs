//! All deployed objects: templates, endpoints, uploaded components, image names, network volumes
//! and keys.
//!
//! Everything but components belongs to one owner. Handlers' names are an owner's own: two owners
//! may both have `echo:latest`. A component is stored once and remembers the owners who brought it.
//!
//! All of it is small and stays in memory as one immutable [`View`]; a change makes a new view
//! once it is on disk. A lookup takes a read lock for the time of one reference count.

mod component;
mod component_charges;
mod entry;
mod image;
mod missing;
mod owner_share;
mod versions;
mod view;

use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use hashbrown::HashMap;
use parking_lot::{Mutex, RwLock};

pub use self::component::{ArtifactDigest, Component, Producer, Producers};
use self::component_charges::ComponentCharges;
pub use self::entry::{CatalogChange, CatalogEntry, CatalogKey};
pub use self::image::{Image, ImageKey};
pub use self::missing::{MissingTemplate, OpenCatalogError, missing_templates};
pub use self::owner_share::OwnerBounds;
use self::versions::Step;
pub use self::view::View;
use crate::access::key::ApiKey;
use crate::deploy::digest::ComponentDigest;
use crate::deploy::endpoint::Deployment;
use crate::deploy::input_checks::InputChecks;
use crate::id::{EndpointId, OwnerId};
use crate::sharing::disk_space::DiskSpaceGauge;
use crate::sharing::permits::{PermitShare, Permits};
use crate::sharing::tenancy::Tenancy;
use crate::store_error::StoreError;
use crate::time::Clock;

/// Keeps the catalog on disk.
#[async_trait]
pub trait CatalogStore: Send + Sync + std::fmt::Debug {
    /// Everything that was put and not deleted, in no particular order.
    async fn load_catalog(&self) -> Result<Vec<CatalogEntry>, StoreError>;

    /// Writes all changes as one; they are on stable storage when the future resolves.
    async fn write_catalog(&self, changes: Vec<CatalogChange>) -> Result<(), StoreError>;

    /// Begins to delete the jobs, counts and webhooks of endpoints that the catalog has deleted.
    /// Called once for each deletion, after the endpoint's life has ended and before another
    /// endpoint can have its name: from now on nothing of the deleted endpoint is found under its
    /// name. Must not wait; [`await_deletion`](crate::store::JobStore::await_deletion) does.
    fn forget_endpoints(&self, deleted: &[EndpointId]);
}

/// The catalog: its newest view, and the one way to change it.
#[derive(Debug)]
pub struct Catalog {
    clock: Arc<dyn Clock>,
    bounds: OwnerBounds,
    tenancy: Tenancy,
    charges: Arc<ComponentCharges>,
    input_checks: Arc<InputChecks>,
    /// Changes come one at a time, so that each is decided on the view that it changes. Owners take
    /// turns, and so do the keys of an owner.
    turns: Permits,
    shown: Arc<CatalogState>,
}

/// The part of the catalog that a change needs once it is decided.
#[derive(Debug)]
struct CatalogState {
    store: Arc<dyn CatalogStore>,
    view: RwLock<Arc<View>>,
    /// Deployments that are not in the view any more. A job that took one earlier may still run it.
    retired: Mutex<Vec<Weak<Deployment>>>,
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
        let entries = store.load_catalog().await?;
        let missing = missing_templates(&entries);
        if let [first, others @ ..] = &missing[..] {
            let (first, others) = (first.clone(), others.len());
            return Err(OpenCatalogError::MissingTemplates { first, others });
        }
        let view = View::of(entries);
        let tenancy = Tenancy::default();
        view.show_tenants(&tenancy);
        let view = RwLock::new(Arc::new(view));
        let shown = CatalogState { store, view, retired: Mutex::default() };
        let bounds = OwnerBounds::default();
        let turns = Permits::for_work(1);
        let (charges, input_checks) = (Arc::default(), Arc::default());
        let shown = Arc::new(shown);
        Ok(Self { clock, bounds, tenancy, charges, input_checks, turns, shown })
    }

    /// The catalog with other bounds of what one owner may have.
    #[must_use]
    pub fn with_bounds(self, bounds: OwnerBounds) -> Self {
        Self { bounds, ..self }
    }

    /// The catalog with these answers about the parties that share the host, which it keeps up to
    /// date from now on: parts that were made before the catalog hold them already.
    #[must_use]
    pub fn with_tenancy(self, tenancy: Tenancy) -> Self {
        self.view().show_tenants(&tenancy);
        Self { tenancy, ..self }
    }

    /// The catalog of a host with this disk: components count in the shares of their owners.
    #[must_use]
    pub fn with_disk_space(self, disk_space: Arc<DiskSpaceGauge>) -> Self {
        let charges = ComponentCharges::new(disk_space, &self.view().shares);
        Self { charges: Arc::new(charges), ..self }
    }

    /// The newest view.
    pub fn view(&self) -> Arc<View> {
        self.shown.view.read().clone()
    }

    /// The parties that share the host, now and after later changes.
    pub fn tenancy(&self) -> Tenancy {
        self.tenancy.clone()
    }

    /// The checks of new jobs' inputs by the schemas of the components.
    pub fn input_checks(&self) -> &Arc<InputChecks> {
        &self.input_checks
    }

    /// The endpoint with what it runs.
    pub fn deployment(&self, id: &EndpointId) -> Option<Arc<Deployment>> {
        self.shown.view.read().deployments.get(id).cloned()
    }

    /// Changes the catalog for a caller, and counts the versions of the endpoints that it changes:
    /// `decide` looks at the newest view and says what to change, or why not. Nobody else changes
    /// the catalog meanwhile, and the new view is shown only once the change is on disk. With
    /// nothing to change nothing is written. The call waits for at most one change of each other
    /// owner.
    ///
    /// A change that has been decided is completed even when the caller drops the future: disk and
    /// view never differ because a client closed its connection.
    ///
    /// # Errors
    /// What `decide` refuses, those of the store, and [`StoreError::QuotaExceeded`].
    pub async fn change_for<T, E: From<StoreError>>(
        &self,
        caller: &ApiKey,
        decide: impl FnOnce(&View) -> Result<(Vec<CatalogChange>, T), E>,
    ) -> Result<T, E> {
        let share = self.turns.share_of_key(&caller.owner, &caller.id);
        self.change_in_turn(&share, decide).await
    }

    /// Changes the catalog for the host itself, in the operator's turn; see [`Self::change_for`].
    ///
    /// # Errors
    /// Those of [`Self::change_for`].
    pub async fn change<T, E: From<StoreError>>(
        &self,
        decide: impl FnOnce(&View) -> Result<(Vec<CatalogChange>, T), E>,
    ) -> Result<T, E> {
        let share = self.turns.owner_share(&OwnerId::operator());
        self.change_in_turn(&share, decide).await
    }

    /// Checks a change as [`Self::change_for`] would, on the newest view, and writes nothing.
    ///
    /// # Errors
    /// What `decide` refuses, and [`StoreError::QuotaExceeded`].
    pub fn check<T, E: From<StoreError>>(
        &self,
        decide: impl FnOnce(&View) -> Result<(Vec<CatalogChange>, T), E>,
    ) -> Result<T, E> {
        let before = self.view();
        let (changes, answer) = decide(&before)?;
        self.step(&before, changes)?;
        Ok(answer)
    }

    /// The changes with their effects, if the owners stay within their bounds.
    fn step(&self, before: &View, changes: Vec<CatalogChange>) -> Result<Step, StoreError> {
        let owners = owner_share::owners_of_written(&changes);
        let step = Step::from(before, changes, self.clock.now());
        step.view.shares.check(&before.shares, &owners, &self.bounds)?;
        self.charges.check(&before.shares, &step.view.shares, &owners)?;
        Ok(step)
    }

    async fn change_in_turn<T, E: From<StoreError>>(
        &self,
        share: &PermitShare,
        decide: impl FnOnce(&View) -> Result<(Vec<CatalogChange>, T), E>,
    ) -> Result<T, E> {
        let turn = share.acquire().await;
        let before = self.view();
        let (changes, answer) = decide(&before)?;
        if changes.is_empty() {
            return Ok(answer);
        }
        let Step { view, written: changes, .. } = self.step(&before, changes)?;
        let (shown, tenancy) = (self.shown.clone(), self.tenancy.clone());
        let charges = self.charges.clone();
        let written = tokio::spawn(async move {
            let _turn = turn;
            shown.write(changes, view, &tenancy, &charges).await
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

    /// Deletes the components that nothing names and no deployment can be running, and returns
    /// their digests: their files are not needed any more. An owner who no longer uses a component
    /// that others use stops being one of its owners.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn remove_unused_components(&self) -> Result<Vec<ComponentDigest>, StoreError> {
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
        let mut users = view.users_of_components();
        for deployment in self.shown.retired.lock().iter().filter_map(Weak::upgrade) {
            if let Some(running) = deployment.component {
                users.entry(running).or_default().insert(deployment.template.owner.clone());
            }
        }
        users
    }
}

/// The components that a start with these entries keeps: those that have a record, and that another
/// record names.
pub fn kept_components(entries: Vec<CatalogEntry>) -> BTreeSet<ComponentDigest> {
    let view = View::of(entries);
    let users = view.users_of_components();
    view.components.keys().filter(|digest| users.contains_key(*digest)).copied().collect()
}

impl CatalogState {
    /// Writes the changes, and shows the view that they lead to.
    async fn write(
        &self,
        changes: Vec<CatalogChange>,
        view: View,
        tenancy: &Tenancy,
        charges: &ComponentCharges,
    ) -> Result<(), StoreError> {
        self.store.write_catalog(changes).await?;
        let deleted = self.retire(&view);
        self.store.forget_endpoints(&deleted);
        view.show_tenants(tenancy);
        charges.update(&view.shares);
        *self.view.write() = Arc::new(view);
        Ok(())
    }

    /// Remembers the deployments that `next` does not show any more, for as long as they are in
    /// use. Ends the lives of deleted endpoints, and returns these endpoints.
    fn retire(&self, next: &View) -> Vec<EndpointId> {
        let mut retired = self.retired.lock();
        retired.retain(|deployment| deployment.strong_count() > 0);
        let view = self.view.read().clone();
        let deleted = view.deployments.iter().filter(|(id, shown)| {
            next.deployments.get(*id).is_none_or(|newer| !Arc::ptr_eq(newer, shown))
        });
        retired.extend(deleted.map(|(_, deployment)| Arc::downgrade(deployment)));
        // From now on no submission to a deleted endpoint is accepted, however long ago its call
        // looked the endpoint up.
        let deleted = view.deployments.iter().filter(|(id, shown)| {
            next.deployments.get(*id).is_none_or(|newer| newer.incarnation != shown.incarnation)
        });
        let deleted = deleted.map(|(id, shown)| {
            shown.incarnation.end();
            id.clone()
        });
        deleted.collect()
    }
}
