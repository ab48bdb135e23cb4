//! The deployed objects, and what a change of them entails.
//!
//! **Promises.** A key that was revoked, or has expired, changes nothing. Minutes may pass between
//! the first check of the key and the change: the body arrives slowly, a component waits for its
//! compile, or an image is being fetched. So the change itself checks the key again, in the same
//! view of the catalog that it decides on.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use gristmill_core::access::key::ApiKey;
use gristmill_core::catalog::{Catalog, CatalogChange, View};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::id::{EndpointId, TemplateId};
use gristmill_core::runtime::{AddedComponent, Components};
use gristmill_core::store::JobStore;
use gristmill_core::time::Timestamp;
use gristmill_core::workers::Workers;
use tokio::sync::RwLock;
use tracing::{error, warn};

use crate::access::Access;
use crate::error::ControlError;

/// How far an operation goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The operation is checked as far as it can be without its effects, and changes nothing.
    CheckOnly,
    /// The operation is carried out.
    Whole,
}

/// The catalog, with the parts of the host that learn of its changes.
#[derive(Debug)]
pub(crate) struct Deployed {
    pub(crate) catalog: Arc<Catalog>,
    /// The store of jobs, whose time is the time of the objects too.
    pub(crate) store: Arc<dyn JobStore>,
    pub(crate) workers: Arc<dyn Workers>,
    pub(crate) components: Arc<dyn Components>,
    pub(crate) access: Access,
    /// Written by the one backup that is being sent, read by each call that deletes components.
    pub(crate) backup_turn: Arc<RwLock<()>>,
    /// When the last backup was complete, in milliseconds; 0 before the first one of this process.
    pub(crate) backed_up_at_ms: AtomicU64,
}

impl Deployed {
    pub(crate) fn view(&self) -> Arc<View> {
        self.catalog.view()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.store.now()
    }

    /// Refuses a key that was revoked, or has expired, since the call began. It must be equal in
    /// all fields, scopes and endpoints included: a key with other ones would be another key.
    ///
    /// # Errors
    /// [`ControlError::KeyEnded`].
    pub(crate) fn check_key(&self, key: &ApiKey, view: &View) -> Result<(), ControlError> {
        // A host without keys made one for all callers, which is not in the catalog.
        if self.access.key_of_all().is_some() {
            return Ok(());
        }
        let now = view.keys.get(&key.id).filter(|now| ***now == *key);
        match now.is_some_and(|key| !key.is_expired(self.now())) {
            true => Ok(()),
            false => Err(ControlError::KeyEnded),
        }
    }

    /// `decide`, behind the check that the caller's key is still valid.
    fn if_valid<T>(
        &self,
        caller: &ApiKey,
        decide: impl FnOnce(&View) -> Result<T, ControlError>,
    ) -> impl FnOnce(&View) -> Result<T, ControlError> {
        move |view| {
            self.check_key(caller, view)?;
            decide(view)
        }
    }

    /// Checks the change that `decide` returns, as [`change`](Self::change) would, and writes
    /// nothing.
    ///
    /// # Errors
    /// Those of `decide`, the refusals of the catalog, and [`ControlError::KeyEnded`].
    pub(crate) fn check<T>(
        &self,
        caller: &ApiKey,
        decide: impl FnOnce(&View) -> Result<(Vec<CatalogChange>, T), ControlError>,
    ) -> Result<T, ControlError> {
        self.catalog.check(self.if_valid(caller, decide))
    }

    /// Changes the catalog as `decide` returns, if the caller's key is still valid. See
    /// [`Catalog::change_for`].
    ///
    /// # Errors
    /// Those of `decide` and of the catalog, and [`ControlError::KeyEnded`].
    pub(crate) async fn change<T>(
        &self,
        caller: &ApiKey,
        decide: impl FnOnce(&View) -> Result<(Vec<CatalogChange>, T), ControlError>,
    ) -> Result<T, ControlError> {
        self.catalog.change_for(caller, self.if_valid(caller, decide)).await
    }

    /// Notifies the workers of an endpoint that was created, changed or deleted.
    pub(crate) fn refresh(&self, endpoint: &EndpointId) {
        self.workers.refresh(endpoint);
    }

    /// Notifies the workers of all endpoints with this template of its change, including endpoints
    /// that may no longer use it.
    pub(crate) fn refresh_bound(&self, template: &TemplateId) {
        for deployment in self.view().deployments.values() {
            if deployment.endpoint.template == *template {
                self.refresh(&deployment.endpoint.id);
            }
        }
    }

    /// Deletes unused components. A component that still runs is deleted by a later call of this,
    /// or by the next start.
    pub(crate) async fn remove_unused_components(&self) {
        // A backup in progress must still read the files that it names. Calls do not exclude each
        // other: a component that one call replaces while another call deletes files would stay.
        let Ok(_turn) = self.backup_turn.try_read() else { return };
        let unused = match self.catalog.remove_unused_components().await {
            Ok(unused) => unused,
            // The preceding change was written; the deletion can wait.
            Err(error) => return warn!("unused components are not removed yet: {error}"),
        };
        self.remove_files(unused).await;
    }

    /// Releases the files of an added component, after its record is in the catalog or was refused.
    /// When this returns, files without a record are removed: the record was refused, or another
    /// call has deleted it already.
    pub(crate) async fn release(&self, added: AddedComponent) {
        let digest = added.component.digest;
        drop(added);
        if !self.view().components.contains_key(&digest) {
            self.remove_files(vec![digest]).await;
        }
    }

    async fn remove_files(&self, components: Vec<ComponentDigest>) {
        if let Err(error) = self.components.remove_components(components).await {
            error!("cannot remove the files of components that are not used: {error}");
        }
    }
}
