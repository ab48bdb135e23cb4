//! The sandbox of a host with a database, which outlives the change of the host from a standby to
//! the active host.
//!
//! While the host stands by, the records of components come from the active host, and the depot is
//! only read. The owner of the database then has the catalog, and writes to the depot.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use bytes::Bytes;
use gristmill_cluster::{CannotOpen, RuntimeSource};
use gristmill_core::catalog::{ArtifactDigest, Catalog, Component};
use gristmill_core::deploy::digest::ComponentDigest;
use gristmill_core::depot::Depot;
use gristmill_core::runtime::Runtime;
use gristmill_runtime::{
    ArtifactRecords, MemoryRecords, OpenRuntimeError, RecordError, RuntimeSettings, WasmtimeRuntime,
};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tracing::warn;

/// A runtime that is opened when it is first needed.
#[derive(Debug)]
pub(crate) struct HostRuntime {
    /// Taken by the opening.
    settings: Mutex<Option<RuntimeSettings>>,
    local_runtime: OnceLock<Arc<WasmtimeRuntime>>,
    /// The threads of its own work. It may be opened on those of handlers.
    threads: Handle,
    /// The records of components that the active host has sent.
    received: Arc<MemoryRecords>,
    records: Arc<Succession<dyn ArtifactRecords>>,
    depot: Arc<Succession<dyn Depot>>,
    /// Held while deleted components are removed.
    pruning: tokio::sync::Mutex<()>,
}

/// A part of a standby, and then that of the active host.
#[derive(Debug)]
struct Succession<T: ?Sized> {
    standby: Arc<T>,
    active: OnceLock<Arc<T>>,
}

impl<T: ?Sized> Succession<T> {
    fn new(standby: Arc<T>) -> Arc<Self> {
        Arc::new(Self { standby, active: OnceLock::new() })
    }

    fn current(&self) -> &T {
        self.active.get().unwrap_or(&self.standby)
    }
}

impl HostRuntime {
    /// A runtime that reads components from `read`, in place of the depot of the settings. To be
    /// called on the threads that serve calls.
    pub(crate) fn new(mut settings: RuntimeSettings, read: Arc<dyn Depot>) -> Arc<Self> {
        let depot = Succession::new(read);
        settings.depot = Some(depot.clone());
        let received = MemoryRecords::new();
        Arc::new(Self {
            settings: Mutex::new(Some(settings)),
            local_runtime: OnceLock::new(),
            threads: Handle::current(),
            records: Succession::new(received.clone()),
            received,
            depot,
            pruning: tokio::sync::Mutex::default(),
        })
    }

    /// The sandbox of the host that owns the database, with this catalog and depot.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub(crate) fn owned(
        &self,
        catalog: Arc<Catalog>,
        depot: Arc<dyn Depot>,
    ) -> Result<Arc<WasmtimeRuntime>, OpenRuntimeError> {
        // A host becomes active once.
        let _ = self.records.active.set(catalog);
        let _ = self.depot.active.set(depot);
        self.opened()
    }

    fn opened(&self) -> Result<Arc<WasmtimeRuntime>, OpenRuntimeError> {
        let mut settings = self.settings.lock();
        if let Some(opened) = self.local_runtime.get() {
            return Ok(opened.clone());
        }
        let taken = settings.take().ok_or_else(|| {
            // A runtime that could not be opened is not tried again: its host has to start again.
            io::Error::other("an earlier try has failed")
        })?;
        let _threads = self.threads.enter();
        let local_runtime = Arc::new(WasmtimeRuntime::open(taken, self.records.clone())?);
        Ok(self.local_runtime.get_or_init(|| local_runtime).clone())
    }
}

#[async_trait]
impl RuntimeSource for HostRuntime {
    fn open(&self, components: Vec<Component>) -> Result<Arc<dyn Runtime>, CannotOpen> {
        for component in components {
            self.add(component);
        }
        match self.opened() {
            Ok(local_runtime) => Ok(local_runtime),
            Err(error) => Err(CannotOpen(error.into())),
        }
    }

    /// A record that exists keeps the digests of the files that this host has compiled.
    fn add(&self, mut component: Component) {
        if let Some(known) = self.received.find(component.digest) {
            component.artifacts.extend(known.artifacts.clone());
        }
        self.received.put(component);
    }

    /// The depot has all components that exist, so the others were deleted.
    async fn prune(&self) {
        let Ok(_turn) = self.pruning.try_lock() else { return };
        let (None, Some(local_runtime)) = (self.depot.active.get(), self.local_runtime.get())
        else {
            return;
        };
        // Read before the depot: a component is in the depot before it is sent.
        let received = self.received.all();
        let pruned = async {
            let stored: HashSet<_> = self.depot.components().await?.into_iter().collect();
            for record in received.iter().filter(|record| !stored.contains(&record.digest)) {
                self.received.remove_same(record);
            }
            local_runtime.remove_orphans().await
        };
        if let Err(error) = pruned.await {
            warn!(%error, "deleted components stay until the next deployment: {error}");
        }
    }
}

#[async_trait]
impl ArtifactRecords for Succession<dyn ArtifactRecords> {
    fn find(&self, component: ComponentDigest) -> Option<Arc<Component>> {
        self.current().find(component)
    }

    async fn record(
        &self,
        component: ComponentDigest,
        engine_key: &str,
        artifact: ArtifactDigest,
        compiled_bytes: u64,
    ) -> Result<(), RecordError> {
        self.current().record(component, engine_key, artifact, compiled_bytes).await
    }
}

#[async_trait]
impl Depot for Succession<dyn Depot> {
    async fn put_part(
        &self,
        component: ComponentDigest,
        part: u32,
        bytes: Bytes,
    ) -> io::Result<()> {
        self.current().put_part(component, part, bytes).await
    }

    async fn part(&self, component: ComponentDigest, part: u32) -> io::Result<Option<Bytes>> {
        self.current().part(component, part).await
    }

    async fn remove(&self, component: ComponentDigest) -> io::Result<()> {
        self.current().remove(component).await
    }

    async fn components(&self) -> io::Result<Vec<ComponentDigest>> {
        self.current().components().await
    }
}
