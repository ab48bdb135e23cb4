//! The recorded digests of compiled files, which the catalog keeps separate from the files.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use gristmill_core::catalog::{ArtifactDigest, Catalog, CatalogChange, CatalogEntry, Component};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::store::StoreError;
use parking_lot::RwLock;

/// Access to the records of uploaded components. The sandbox reads a record before it loads a
/// compiled file, and adds to it after it compiled a component again, for example after an update
/// of the engine.
#[async_trait]
pub trait ArtifactRecords: Send + Sync + std::fmt::Debug {
    /// The record of a component.
    fn find(&self, component: ComponentDigest) -> Option<Arc<Component>>;

    /// Stores the digest of a newly compiled file, and the bytes of all compiled files of the
    /// component. Does nothing when the component has no record any more.
    ///
    /// # Errors
    /// [`RecordError`] when it could not be stored; the component runs nevertheless, and the next
    /// process compiles it again.
    async fn record(
        &self,
        component: ComponentDigest,
        engine_key: &str,
        artifact: ArtifactDigest,
        compiled_bytes: u64,
    ) -> Result<(), RecordError>;
}

/// The digest of a compiled file could not be stored.
#[derive(Debug, thiserror::Error)]
#[error("cannot keep the digest of a compiled component: {0}")]
pub struct RecordError(#[from] StoreError);

#[async_trait]
impl ArtifactRecords for Catalog {
    fn find(&self, component: ComponentDigest) -> Option<Arc<Component>> {
        self.view().components.get(&component).cloned()
    }

    async fn record(
        &self,
        component: ComponentDigest,
        engine_key: &str,
        artifact: ArtifactDigest,
        compiled_bytes: u64,
    ) -> Result<(), RecordError> {
        let added = self.change(|view| {
            let changed = view.components.get(&component).map(|current| {
                let mut changed = Component::clone(current);
                changed.artifacts.insert(engine_key.to_owned(), artifact.clone());
                changed.compiled_bytes = compiled_bytes;
                CatalogChange::Put(CatalogEntry::Component(changed))
            });
            Ok::<_, StoreError>((changed.into_iter().collect(), ()))
        });
        Ok(added.await?)
    }
}

/// Records that live as long as the process: for running a component without a server.
#[derive(Debug, Default)]
pub struct MemoryRecords {
    components: RwLock<HashMap<ComponentDigest, Arc<Component>>>,
}

impl MemoryRecords {
    /// No records.
    pub fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    /// Adds a record, or replaces it.
    pub fn put(&self, component: Component) {
        self.components.write().insert(component.digest, Arc::new(component));
    }

    /// Removes a record.
    pub fn remove(&self, component: ComponentDigest) {
        self.components.write().remove(&component);
    }

    /// All records.
    pub fn all(&self) -> Vec<Arc<Component>> {
        self.components.read().values().cloned().collect()
    }

    /// Removes a record, unless it was replaced meanwhile.
    pub fn remove_same(&self, record: &Arc<Component>) {
        let mut components = self.components.write();
        if components.get(&record.digest).is_some_and(|present| Arc::ptr_eq(present, record)) {
            components.remove(&record.digest);
        }
    }
}

#[async_trait]
impl ArtifactRecords for MemoryRecords {
    fn find(&self, component: ComponentDigest) -> Option<Arc<Component>> {
        self.components.read().get(&component).cloned()
    }

    async fn record(
        &self,
        component: ComponentDigest,
        engine_key: &str,
        artifact: ArtifactDigest,
        compiled_bytes: u64,
    ) -> Result<(), RecordError> {
        if let Some(record) = self.components.write().get_mut(&component) {
            let record = Arc::make_mut(record);
            record.artifacts.insert(engine_key.to_owned(), artifact);
            record.compiled_bytes = compiled_bytes;
        }
        Ok(())
    }
}
